"""What PPO adds to a policy."""

from __future__ import annotations

from typing import Any

from operant.buffers.normalizer import RunningNormalizer
from operant.models.actor_critic import ActorCritic
from operant.ppo.config import Config


def add_return_normalizer(policy: Any, config: Config) -> None:
    """Give a policy a ``return_normalizer`` if `config` asks for one and it has none."""
    if config.ppo.normalize_reward and not hasattr(policy, "return_normalizer"):
        policy.return_normalizer = RunningNormalizer()


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
