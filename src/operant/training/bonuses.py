"""The library's bonuses, and the options of ``[intrinsic]`` that describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from operant.models.bonus import Bonus
from operant.models.episodic_count import EpisodicCount
from operant.models.icm import ICM
from operant.models.rnd import RND
from operant.training.intrinsic_config import IntrinsicConfig

KINDS: Mapping[str, type[Bonus]] = {"rnd": RND, "icm": ICM, "count": EpisodicCount}
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "rnd": {"hidden": "hidden", "features": "features", "random_steps": "random_steps"},
    "icm": {
        "hidden": "hidden",
        "features": "features",
        "beta": "icm_beta",
        "random_steps": "random_steps",
    },
    "count": {
        "form": "count_form",
        "leaves": "count_leaves",
        "resolution": "count_resolution",
        "capacity": "count_capacity",
    },
}
"""Arguments of the library's bonuses, and the options that say them."""


def bonus_of(config: IntrinsicConfig, kind: str) -> Bonus:
    """A bonus of the library, with the options of `config`."""
    named = OPTIONS[kind]
    return KINDS[kind](**{ours: getattr(config, name) for ours, name in named.items()})


def listed(given: str | Bonus | Sequence[str | Bonus] | None) -> tuple[list[Bonus], list[str]]:
    """Bonuses that were made, and names of others, of what a trainer is given as ``intrinsic``.

    Raises:
        TypeError: something else.
    """
    items: list[Any] = [] if given is None else [given]
    if isinstance(given, list | tuple):
        items = list(given)
    for one in items:
        if not isinstance(one, str | Bonus):
            raise TypeError(
                "intrinsic must be names or objects of operant.models.Bonus, such as "
                f"intrinsic=RND(), got {one!r}"
            )
    made = [one for one in items if isinstance(one, Bonus)]
    return made, [one for one in items if isinstance(one, str) and one != "none"]


def values_of(bonuses: list[Bonus], names: Sequence[str] = ()) -> dict[str, Any]:
    """The options, by dotted name, that describe those of `bonuses` that are the library's, and
    others by their `names`; a trainer that is loaded makes them again from these.

    Raises:
        ValueError: two of them say different things of one option.
    """
    values: dict[str, Any] = {}
    kinds = list(names)
    for bonus in bonuses:
        if KINDS.get(bonus.name) is not type(bonus):
            continue
        kinds.append(bonus.name)
        for ours, name in OPTIONS[bonus.name].items():
            value = getattr(bonus, ours)
            if values.setdefault(f"intrinsic.{name}", value) != value:
                raise ValueError(
                    f"intrinsic.{name} is {values[f'intrinsic.{name}']!r} for one bonus and "
                    f"{value!r} for another; give both the same"
                )
    return values | ({"intrinsic.kind": tuple(kinds)} if kinds else {})
