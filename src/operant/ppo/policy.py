"""The network that a configuration describes."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from operant.buffers.normalizer import RunningNormalizer
from operant.models.actor_critic import ActorCritic
from operant.ppo.config import Config
from operant.training.network import new_network


def configured_policy(
    config: Config, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> ActorCritic:
    """A new network for these spaces, with the normalisers that `config` asks for.

    Raises:
        ValueError: spaces or options that do not fit together.
    """
    policy = new_network(config.policy, observation_space, action_space)
    add_return_normalizer(policy, config)
    return policy


def add_return_normalizer(policy: Any, config: Config) -> None:
    """Give a policy a ``return_normalizer`` if `config` asks for one and it has none."""
    if config.ppo.normalize_reward and not hasattr(policy, "return_normalizer"):
        policy.return_normalizer = RunningNormalizer()
