"""`ValueStream`: rewards with a value function of their own, beside those of the environment."""

from __future__ import annotations

import torch
from torch import Tensor

from operant.buffers.advantages import gae_torch


class ValueStream:
    """Bonuses that go on from episode to episode: an end is a step like any other, and what follows
    it is the next episode's first observation, as in Burda et al. (2018).

    - ``reward`` ``[T, N]``, ``value`` ``[T + 1, N]``: of all observations of a rollout;
    - ``advantage``, ``target`` ``[T, N]``;
    - ``weights`` ``[2]``: of the environment's advantages, and of these.

    All float32, at fixed addresses.

    Args:
        num_steps, num_envs: T and N.
        gamma, gae_lambda: discount and trace decay, 0 to 1.
        device: where.
    """

    def __init__(
        self, num_steps: int, num_envs: int, gamma: float, gae_lambda: float, device: torch.device
    ) -> None:
        self._gamma, self._gae_lambda = gamma, gae_lambda
        shape = (num_steps, num_envs)
        self.reward, self.advantage, self.target = (
            torch.zeros(shape, device=device) for _ in range(3)
        )
        self.value = torch.zeros((num_steps + 1, num_envs), device=device)
        self.weights = torch.ones(2, device=device)
        self._never = torch.zeros(shape, dtype=torch.bool, device=device)

    def add_to(self, advantage: Tensor) -> None:
        """Estimate advantages and targets, and make `advantage` ``[T, N]``, the environment's, the
        weighted sum of both."""
        never = self._never
        inputs = (self.reward, self.value[:-1], never, never, self.reward, self.value[-1])
        own, target = gae_torch(*inputs, self._gamma, self._gae_lambda)
        self.advantage.copy_(own)
        self.target.copy_(target)
        advantage.copy_(self.weights[0] * advantage + self.weights[1] * self.advantage)
