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


def listed(given: str | Bonus | Sequence[str | Bonus]) -> list[str | Bonus]:
    """What a trainer is given as ``intrinsic``, one by one; nothing for ``"none"``.

    Raises:
        TypeError: something else than names and bonuses.
    """
    items: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    for one in items:
        if not isinstance(one, str | Bonus):
            raise TypeError(
                "intrinsic must be names or objects of operant.models.Bonus, such as "
                f"intrinsic=RND(), got {one!r}"
            )
    return [] if items == ["none"] else items


def kinds_of(items: Sequence[str | Bonus]) -> tuple[str, ...]:
    """``intrinsic.kind`` of names and of the library's bonuses; ones of one's own have none."""
    return tuple(
        one if isinstance(one, str) else one.name
        for one in items
        if isinstance(one, str) or is_ours(one)
    )


def is_ours(bonus: Bonus) -> bool:
    """Whether it is the library's, which a configuration can describe."""
    return KINDS.get(bonus.name) is type(bonus)


def values_of(items: Sequence[str | Bonus]) -> dict[str, Any]:
    """The options, by dotted name, that describe those of `items` that are the library's; a trainer
    that is loaded makes them again from these, and from their kinds.

    Raises:
        ValueError: two of them say different things of one option.
    """
    values: dict[str, Any] = {}
    for bonus in items:
        if isinstance(bonus, str) or not is_ours(bonus):
            continue
        for ours, name in OPTIONS[bonus.name].items():
            value = getattr(bonus, ours)
            if values.setdefault(f"intrinsic.{name}", value) != value:
                raise ValueError(
                    f"intrinsic.{name} is {values[f'intrinsic.{name}']!r} for one bonus and "
                    f"{value!r} for another; give both the same"
                )
    return values
