"""Add-ons that the arguments and the configuration of `PPO` ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from operant.models.bonus import Bonus
from operant.models.popart import popart_head
from operant.ppo.config import Config
from operant.training.add_on import AddOn
from operant.training.intrinsic_config import IntrinsicConfig

Given = str | Bonus | Sequence[str | Bonus] | None
"""What `PPO` takes as ``intrinsic``."""


def with_bonuses(
    given: Given, add_ons: Sequence[AddOn], config: Config | None, options: Mapping[str, Any]
) -> tuple[list[Bonus], dict[str, Any]]:
    """The bonuses that were made already, and `options` with what the configuration has to say.

    Bonuses that are given, as `given` or in an add-on, are instead of those that the environment
    ships. Ones of one's own are beside those that a whole `config` or an option names: it cannot
    name them.

    Raises:
        TypeError, ValueError: no bonus, or something that says otherwise.
    """
    holders = _holders(add_ons)
    if given is not None and holders:
        raise ValueError(
            "bonuses are given twice: by intrinsic=, and by the add-on 'intrinsic' in add_ons=; "
            "give all of them by intrinsic="
        )
    inside: list[Any] = [one for holder in holders for one in getattr(holder, "bonuses", ())]
    if given is None and not inside:
        return [], dict(options)
    from operant.training.bonuses import kinds_of, listed, values_of

    items = inside if given is None else listed(given)
    kinds, named = kinds_of(items), _named_already(config, options)
    if given is None:
        kinds = (*named, *(kind for kind in kinds if kind not in named))
        options = {**options, "intrinsic.kind": kinds}
    elif items and not kinds:
        kinds = named
    values = {**values_of(items), "intrinsic.kind": kinds}
    source = "a bonus in add_ons=" if given is None else "intrinsic="
    for name, value in values.items():
        said = _said(name, options)
        if said is not None and said != value:
            raise ValueError(f"{name} is {options[name]!r}, but {source} says {value!r}")
    made = [] if given is None else [one for one in items if isinstance(one, Bonus)]
    return made, {**options, **values}


def _holders(add_ons: Sequence[AddOn]) -> list[AddOn]:
    """Add-ons that pay bonuses, or have the name of the one that does."""
    return [one for one in add_ons if isinstance(one, AddOn) and one.name == "intrinsic"]


def _named_already(config: Config | None, options: Mapping[str, Any]) -> tuple[str, ...]:
    """``intrinsic.kind`` as the caller has it, by an option or in a whole configuration."""
    said: tuple[str, ...] | None = _said("intrinsic.kind", options)
    if said is not None:
        return said
    return () if config is None else config.intrinsic.kind


def _said(name: str, options: Mapping[str, Any]) -> Any:
    """The value of an option of ``[intrinsic]`` as the configuration will have it; None: it is not
    among them."""
    if name not in options:
        return None
    key = name.removeprefix("intrinsic.")
    return getattr(IntrinsicConfig(**{key: options[name]}), key)


def with_intrinsic(
    add_ons: Sequence[AddOn], bonuses: list[Bonus], config: Config
) -> tuple[AddOn, ...]:
    """`add_ons`, and the one that pays bonuses, if there are any.

    Raises:
        TypeError, ValueError: names that are not unique, or a bonus that another trainer has.
    """
    given = _holders(add_ons)
    if not (given or bonuses or config.intrinsic.kind):
        if config.intrinsic.separate_value:
            raise ValueError(
                "intrinsic.separate_value is for a bonus, and there is none: set intrinsic.kind"
            )
        return tuple(add_ons)
    from operant.training.intrinsic import Intrinsic

    if not given:
        return (*add_ons, Intrinsic(bonuses).complete(config.intrinsic))
    for one in given:
        if isinstance(one, Intrinsic):
            one.complete(config.intrinsic)
        elif config.intrinsic.kind:
            raise ValueError(
                f"the add-on {one!r} has the name 'intrinsic' of that for the bonuses "
                f"{', '.join(config.intrinsic.kind)}; call it something else, or set "
                "intrinsic.kind=none"
            )
    return tuple(add_ons)


def with_popart(
    add_ons: tuple[AddOn, ...], policy: nn.Module | None, config: Config
) -> tuple[AddOn, ...]:
    """`add_ons`, and the one that reports the statistics of values, if they have such.

    Raises:
        ValueError: another one has its name.
    """
    if policy is None:
        wanted = config.policy.value_head == "popart"
    else:
        wanted = popart_head(policy) is not None
    if not wanted:
        return add_ons
    from operant.training.popart_figures import PopArtFigures

    for one in add_ons:
        if isinstance(one, PopArtFigures):
            return add_ons
        if isinstance(one, AddOn) and one.name == "popart":
            raise ValueError(
                f"the add-on {one!r} has the name 'popart' of that which reports the statistics of "
                "values; call it something else"
            )
    return (*add_ons, PopArtFigures())
