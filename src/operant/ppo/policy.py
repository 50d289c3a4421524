"""The network that a configuration describes."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from operant.buffers.normalizer import RunningNormalizer
from operant.models.actor_critic import ActorCritic, policy_for
from operant.ppo.config import Config


def configured_policy(
    config: Config, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> ActorCritic:
    """A new network for these spaces, with the normalisers that `config` asks for.

    Only numbers are normalised: a Discrete observation is one of several, not more or less. Dict
    and Tuple observations are not.

    Raises:
        ValueError: spaces or options that do not fit together.
    """
    p = config.policy
    policy = policy_for(
        observation_space,
        action_space,
        hidden=p.hidden,
        activation=p.activation,
        shared=p.shared,
        normalize_obs=p.normalize_obs and isinstance(observation_space, spaces.Box),
        log_std=p.log_std,
        squash=p.squash,
    )
    add_return_normalizer(policy, config)
    return policy


def add_return_normalizer(policy: Any, config: Config) -> None:
    """Give a policy a ``return_normalizer`` if `config` asks for one and it has none."""
    if config.ppo.normalize_reward and not hasattr(policy, "return_normalizer"):
        policy.return_normalizer = RunningNormalizer()
