"""What PPO adds to a policy."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from operant.buffers.normalizer import RunningNormalizer
from operant.models.actor_critic import ActorCritic
from operant.models.popart import popart_head, task_space
from operant.ppo.config import Config


def add_return_normalizer(policy: Any, config: Config) -> None:
    """Give a policy a ``return_normalizer`` if `config` asks for one and it has none."""
    if config.ppo.normalize_reward and not hasattr(policy, "return_normalizer"):
        policy.return_normalizer = RunningNormalizer()


def check_value_scale(policy: Any, observation_space: spaces.Space[Any]) -> None:
    """Refuse a policy whose `PopArtValueHead` has tasks that the observations do not tell.

    Raises:
        ValueError: they have no leaf ``task`` of as many.
    """
    head, space = popart_head(policy), task_space(observation_space)
    told = 1 if space is None else int(space.n)
    if head is not None and head.tasks not in (1, told):
        raise ValueError(
            f"the policy's PopArtValueHead has {head.tasks} tasks, and the observations "
            f"{observation_space} tell {told}: they need a leaf 'task' of Discrete({head.tasks})"
        )


def add_intrinsic_head(policy: Any, config: Config) -> None:
    """Give a policy a value of bonuses if `config` asks for one and it has none.

    Raises:
        ValueError: it is somebody's own and does not say how.
    """
    if not config.intrinsic.separate_value:
        return
    if isinstance(policy, ActorCritic):
        if policy.intrinsic_head is None:
            policy.add_intrinsic_head()
    elif not (callable(getattr(policy, "streams", None)) and hasattr(policy, "intrinsic_value")):
        raise ValueError(
            "intrinsic.separate_value needs a policy with streams(obs), which returns (head, "
            "value, intrinsic value), and intrinsic_value(obs)"
        )
