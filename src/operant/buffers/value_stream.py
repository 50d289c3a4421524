"""`ValueStream`: rewards with a value function of their own, beside those of the environment."""

from __future__ import annotations

import torch
from torch import Tensor

from operant.buffers.advantages import gae_torch


class ValueStream:
    """Bonuses that go on from episode to episode: an end is a step like any other, and what follows
    it is the next episode's first observation, as in Burda et al. (2018). Steps in which a row
    rests are left out.

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

    def add_to(
        self, advantage: Tensor, live: Tensor | None = None, goes_on: Tensor | None = None
    ) -> None:
        """Estimate advantages and targets, and make `advantage` ``[T, N]``, the environment's, the
        weighted sum of both.

        Args:
            advantage: changed in place.
            live: bool ``[T, N]``: which of these are samples; None: all.
            goes_on: bool ``[N]``: which rows act after the last step; wanted with `live`.
        """
        if live is None or goes_on is None:
            never, value = self._never, self.value
            inputs = (self.reward, value[:-1], never, never, self.reward, value[-1])
            own, target = gae_torch(*inputs, self._gamma, self._gae_lambda)
        else:
            own = self._of_samples(live, goes_on)
            target = own + self.value[:-1]
        self.advantage.copy_(own)
        self.target.copy_(target)
        advantage.copy_(self.weights[0] * advantage + self.weights[1] * self.advantage)

    def _of_samples(self, live: Tensor, goes_on: Tensor) -> Tensor:
        """Advantages ``[T, N]`` where the sample after a step is the next in which its row acts;
        where there is none yet, its own value is taken for what follows. 0 where a row rests."""
        value, decay = self.value, self._gamma * self._gae_lambda
        found, trace = torch.zeros_like(self.reward), torch.zeros_like(self.reward[0])
        known, following = goes_on, value[-1]
        for t in reversed(range(len(live))):
            after = torch.where(known, following, value[t])
            trace_now = self.reward[t] + self._gamma * after - value[t] + decay * trace
            found[t] = torch.where(live[t], trace_now, 0.0)
            trace = torch.where(live[t], trace_now, trace)
            following = torch.where(live[t], value[t], following)
            known = known | live[t]
        return found
