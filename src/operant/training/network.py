"""The network that a configuration describes, and what any network must be able to do."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from operant.models.actor_critic import ActorCritic, normalizable, policy_for
from operant.models.distributions import Distribution
from operant.models.encoders import EncoderOptions
from operant.spaces.rows import ObsLayout
from operant.training.config import PolicyConfig
from operant.vector.batch import Batch


def new_network(
    config: PolicyConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> ActorCritic:
    """A new network for these spaces, initialised by PyTorch's global generator.

    Only numbers are normalised: a Discrete observation is one of several, not more or less.

    Raises:
        ValueError: spaces or options that do not fit together.
    """
    options = EncoderOptions(config.image, config.channels, config.embedding)
    return policy_for(
        observation_space,
        action_space,
        hidden=config.hidden,
        activation=config.activation,
        shared=config.shared,
        image=config.image,
        channels=config.channels,
        embedding=config.embedding,
        normalize_obs=config.normalize_obs and normalizable(observation_space, options),
        log_std=config.log_std,
        squash=config.squash,
        value_head=config.value_head,
    )


def check_network(
    policy: nn.Module, distribution: Distribution, env: Batch, device: torch.device
) -> None:
    """Raise ValueError unless `policy` follows the protocol of `operant.models.actor_critic`.

    It is in evaluation mode afterwards.
    """
    layout = ObsLayout.of(env.single_observation_space)
    sample = layout.split(torch.from_numpy(layout.example(2)).to(device))
    policy.eval()
    with torch.inference_mode():
        outputs = policy(sample)
    wanted = f"(head [B, {distribution.head_size}], value [B])"
    if not (isinstance(outputs, tuple) and len(outputs) == 2):
        raise ValueError(f"the policy's forward must return {wanted}, got {type(outputs)}")
    shapes = [tuple(output.shape) for output in outputs]
    if shapes != [(2, distribution.head_size), (2,)]:
        raise ValueError(
            f"the policy's forward must return {wanted} for {env.single_action_space}; "
            f"for B = 2 it returned shapes {shapes[0]} and {shapes[1]}"
        )
    size = env.mask_size
    if size not in (0, distribution.head_size):
        raise ValueError(
            f"the environment's action mask has {size} entries, the policy's head "
            f"{distribution.head_size}"
        )
