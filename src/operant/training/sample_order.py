"""`SampleOrder`: which samples of a rollout are trained on, drawn where they are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operant.models.hashing import mixed


class SampleOrder:
    """The first of a permutation that is drawn anew each time: all sets of so many samples, in all
    orders, are equally probable.

    Every sample gets a hash of 64 bits, and they are sorted by these: different numbers have
    different hashes, so that the order is the same on every device, and the host has nothing to
    tell a GPU.

    Args:
        count: samples of a rollout, n.
        share: of them, that are drawn.
        device: where.
        seed: 0 .. 2**64 - 1.
    """

    def __init__(self, count: int, share: float, device: torch.device, seed: int = 0) -> None:
        self._share = share
        # Golden steps, as splitmix64 takes them from one random number to the next.
        steps = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._steps = torch.from_numpy(steps.view(np.int64)).to(device)
        own = np.array([seed], np.uint64).view(np.int64)
        self._seed = mixed(torch.from_numpy(own)).to(device)
        self.drawn = torch.zeros((), dtype=torch.int64, device=device)
        """How often it was drawn; the order depends on that and the seed alone."""

    def draw(self, live: Tensor | None = None) -> Tensor:
        """The next samples, int64 ``[share * n]``; of those that are `live`, bool ``[n]``, if that
        is given, their share, which may be none. With `live` this waits for a GPU."""
        hashes = mixed(self._steps + mixed(self._seed + self.drawn))
        self.drawn.add_(1)
        if hashes.device.type == "cpu":
            order = torch.from_numpy(np.argsort(hashes.numpy()))
        else:
            order = torch.argsort(hashes)
        if live is not None:
            order = order[live[order]]
        return order[: max(1, round(len(order) * self._share))]
