"""Add-ons that the arguments and the configuration of `PPO` ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from operant.models.bonus import Bonus
from operant.models.popart import popart_head
from operant.ppo.config import Config
from operant.training.add_on import AddOn


def with_bonuses(
    given: str | Bonus | Sequence[str | Bonus] | None, options: Mapping[str, Any]
) -> tuple[list[Bonus], dict[str, Any]]:
    """The bonuses that were made already, and `options` with what the configuration has to say.

    Raises:
        TypeError, ValueError: no bonus, or an option that says otherwise.
    """
    if given is None:
        return [], dict(options)
    from operant.training.bonuses import listed, values_of

    made, names = listed(given)
    values = values_of(made, names)
    for name, value in values.items():
        if options.get(name, value) != value:
            raise ValueError(f"{name} is {options[name]!r}, but intrinsic= says {value!r}")
    return made, {**options, **values}


def with_intrinsic(
    add_ons: Sequence[AddOn], bonuses: list[Bonus], config: Config
) -> tuple[AddOn, ...]:
    """`add_ons`, and the one that pays bonuses, if there are any.

    Raises:
        TypeError, ValueError: names that are not unique.
    """
    given = [one for one in add_ons if isinstance(one, AddOn) and one.name == "intrinsic"]
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
    return tuple(add_ons)


def with_popart(
    add_ons: tuple[AddOn, ...], policy: nn.Module | None, config: Config
) -> tuple[AddOn, ...]:
    """`add_ons`, and the one that reports the statistics of values, if they have such."""
    if policy is None:
        wanted = config.policy.value_head == "popart"
    else:
        wanted = popart_head(policy) is not None
    if not wanted or any(isinstance(one, AddOn) and one.name == "popart" for one in add_ons):
        return add_ons
    from operant.training.popart_figures import PopArtFigures

    return (*add_ons, PopArtFigures())
