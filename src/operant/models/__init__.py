"""Networks, distributions, and `PPO`, which trains them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.buffers.normalizer import RunningNormalizer
    from operant.models.actor_critic import (
        ActorCritic,
        ContinuousActorCritic,
        DiscreteActorCritic,
        policy_for,
    )
    from operant.models.distributions import Distribution, distribution_for
    from operant.ppo.ppo import PPO

_HOMES = {
    "ActorCritic": "operant.models.actor_critic",
    "ContinuousActorCritic": "operant.models.actor_critic",
    "DiscreteActorCritic": "operant.models.actor_critic",
    "policy_for": "operant.models.actor_critic",
    "Distribution": "operant.models.distributions",
    "distribution_for": "operant.models.distributions",
    "RunningNormalizer": "operant.buffers.normalizer",
    "PPO": "operant.ppo.ppo",
}

__all__ = [
    "PPO",
    "ActorCritic",
    "ContinuousActorCritic",
    "DiscreteActorCritic",
    "Distribution",
    "RunningNormalizer",
    "distribution_for",
    "policy_for",
]


def __getattr__(name: str) -> Any:
    # PPO imports this package, so it is looked up when asked for.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
