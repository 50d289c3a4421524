"""`ReturnScale`: bonuses divided by the running deviation of their discounted sums."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer

_CHUNK = 128


class ReturnScale(nn.Module):
    """The sums go on from episode to episode, as in Burda et al. (2018), and from rollout to
    rollout: ``g[t] = gamma * g[t - 1] + bonus[t]``. Where a row rests they stand still.

    Args:
        num_envs: N.
        gamma: discount.
    """

    carry: Tensor
    weights: Tensor
    fading: Tensor

    def __init__(self, num_envs: int, gamma: float) -> None:
        super().__init__()
        self.normalizer = RunningNormalizer()
        self.register_buffer("carry", torch.zeros(num_envs))
        # Sums as a product of matrices: one operation for many steps, on any device.
        power = torch.arange(_CHUNK)[:, None] - torch.arange(_CHUNK)
        weights = torch.where(power >= 0, float(gamma) ** power.clamp(min=0).double(), 0.0)
        fading = float(gamma) ** torch.arange(1, _CHUNK + 1).double()
        self.register_buffer("weights", weights.float(), persistent=False)
        self.register_buffer("fading", fading.float(), persistent=False)

    @torch.no_grad()
    def forward(self, bonus: Tensor, live: Tensor | None = None) -> Tensor:
        """`bonus` ``[T, N]`` scaled, after its sums were taken in; a new tensor.

        `live`, bool ``[T, N]``, says which of these are samples; None: all.
        """
        sums = self.sums(bonus) if live is None else self._sums_of(bonus, live)[live]
        self.normalizer.update(sums)
        return bonus * self.normalizer.scale()

    def sums(self, bonus: Tensor) -> Tensor:
        """Discounted sums up to each step, ``[T, N]``; ``carry`` becomes the last."""
        found = []
        carry = self.carry
        for part in torch.split(bonus, _CHUNK):
            size = len(part)
            sums = self.weights[:size, :size] @ part + self.fading[:size, None] * carry
            found.append(sums)
            carry = sums[-1]
        self.carry.copy_(carry)
        return torch.cat(found)

    def _sums_of(self, bonus: Tensor, live: Tensor) -> Tensor:
        """`sums` of the samples alone; where a row rests, the last one before."""
        found = torch.empty_like(bonus)
        carry = self.carry.clone()
        gamma = self.fading[0]
        for t in range(len(bonus)):
            carry = torch.where(live[t], gamma * carry + bonus[t], carry)
            found[t] = carry
        self.carry.copy_(carry)
        return found
