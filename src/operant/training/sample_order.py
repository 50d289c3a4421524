"""`SampleOrder`: which samples of a rollout are trained on, drawn where they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_STRIDES = 64
_MIX = 0x5DEECE66D


class SampleOrder:
    """Distinct samples ``(a * k + b) mod n`` for k = 0, 1, ..., with `a` and `b` drawn anew each
    time: spread over the rollout, without a shuffle, which a GPU would have to be told of.

    Args:
        count: samples of a rollout, n.
        share: of them, that are drawn.
        device: where.
    """

    def __init__(self, count: int, share: float, device: torch.device) -> None:
        self._count = count
        self._numbers = torch.arange(max(1, round(count * share)), device=device)
        self._strides = torch.tensor(_strides(count), device=device)
        self.drawn = torch.zeros((), dtype=torch.int64, device=device)
        """How often it was drawn; the order depends on that alone."""

    def draw(self) -> Tensor:
        """The next samples, int64 ``[share * n]``."""
        mixed = (self.drawn * _MIX + 11) & ((1 << 48) - 1)
        mixed = (mixed * _MIX + 11) & ((1 << 48) - 1)
        self.drawn.add_(1)
        stride = self._strides.index_select(0, ((mixed >> 40) % len(self._strides)).view(1))
        return (stride * self._numbers + (mixed >> 8)) % self._count


def _strides(count: int) -> list[int]:
    """Numbers without a common factor with `count`, spread around its golden section."""
    first = max(1, int(count * 0.618))
    found: list[int] = []
    candidate = first
    while len(found) < _STRIDES and candidate < first + 64 * _STRIDES:
        if math.gcd(candidate, count) == 1:
            found.append(candidate)
        candidate += 1 + (count // 512)
    return found or [1]
