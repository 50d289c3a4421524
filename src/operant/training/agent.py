"""`Agent`: a trained policy, ready to act."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from operant.backends.foreign.actions import Reader, action_reader
from operant.models.distributions import Distribution, masked
from operant.models.outputs import head_of
from operant.spaces.batches import unflatten
from operant.spaces.rows import ObsLayout


@dataclass(frozen=True)
class Agent:
    """A policy with the spaces it acts between."""

    policy: nn.Module
    distribution: Distribution
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    device: torch.device

    @cached_property
    def action_layout(self) -> ObsLayout:
        """How actions lie in memory."""
        return ObsLayout.of(self.action_space)

    @cached_property
    def _read(self) -> Reader:
        return action_reader(self.action_layout)

    @cached_property
    def obs_layout(self) -> ObsLayout:
        """How observations lie in memory."""
        return ObsLayout.of(self.observation_space)

    @torch.inference_mode()
    def act(self, obs: Any, noise: np.ndarray | None = None, action_masks: Any = None) -> Any:
        """Actions for observations, as the environment takes them: a new array, of a Dict or Tuple
        space a dict or tuple of these.

        Args:
            obs: one observation, or a batch ``[B, *obs_shape]``; of a Dict or Tuple space a dict or
                tuple of these.
            noise: float32 ``[B, noise_size]`` in [0, 1) to sample with; None: the most probable
                action (the mean, for Box).
            action_masks: which actions are allowed, as the environment's ``action_masks()`` gives
                them: one row, or ``[B, H]``; None: all.

        Raises:
            ValueError: a wrong shape.
        """
        rows, single = self.obs_layout.rows(obs)
        self.policy.eval()
        head = head_of(self.policy, self.obs_layout.split(torch.from_numpy(rows).to(self.device)))
        if action_masks is not None:
            allowed = np.asarray(action_masks, np.bool_)
            if allowed.shape not in (head.shape[-1:] if single else (), tuple(head.shape)):
                raise ValueError(
                    f"action_masks must have shape {tuple(head.shape)}, got {allowed.shape}"
                )
            head = masked(head, torch.from_numpy(allowed.reshape(head.shape)).to(self.device))
        if noise is None:
            action = self.distribution.mode(head)
        else:
            numbers = torch.from_numpy(noise).to(self.device)
            action, _ = self.distribution.sample(head, numbers)
        actions = self.distribution.to_env(action).cpu().numpy()
        if self.action_layout.is_tree:
            return self._read(actions[0]) if single else unflatten(self.action_layout, actions)
        if isinstance(self.action_space, spaces.Box):
            actions = actions.astype(self.action_space.dtype, copy=False)
        return actions[0] if single else actions
