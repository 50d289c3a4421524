"""What the host and the GPU tell each other in an iteration, and when."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch


class HostMirror:
    """The same numbers twice: ``gpu``, a tensor, and ``host``, an array to write to or read from.

    Copies go through memory that is not paged, at fixed addresses: they wait for nothing and can be
    captured in a graph. So the host may touch ``host`` only while no copy can be under way. In
    memory of the CPU (Triton's interpreter) copies are done at once.

    Args:
        shape, dtype: of both.
        device: where ``gpu`` is.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.gpu = torch.zeros(shape, dtype=dtype, device=device)
        self._pinned = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")
        self.host = self._pinned.numpy()

    def send(self) -> None:
        """Copy the host's numbers to the GPU."""
        self.gpu.copy_(self._pinned, non_blocking=True)

    def fetch(self) -> None:
        """Copy the GPU's numbers to the host, where they are after a wait."""
        self._pinned.copy_(self.gpu, non_blocking=True)


class PhaseTimer:
    """Moments of an iteration by the GPU's clock: its start (0), and the ends of its three parts.

    The next iteration may begin before someone asks how long the last one took: two sets of moments
    take turns.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._complete: list[Any] | None = None
        self._now, self._next = ([self._new() for _ in range(4)] for _ in range(2))

    def _new(self) -> Any:
        if self._device.type != "cuda":
            return 0.0
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self, moment: int) -> None:
        """It is now, for the host, or after what was launched so far, for a GPU."""
        if moment == 0:
            self._now, self._next = self._next, self._now
        if self._device.type == "cuda":
            self._now[moment].record(torch.cuda.current_stream(self._device))
        else:
            self._now[moment] = time.perf_counter()

    def wait(self) -> None:
        """Wait for the last moment of the iteration, which was recorded."""
        self._complete = self._now
        if self._device.type == "cuda":
            self._now[3].synchronize()

    def seconds(self) -> tuple[float, float, float] | None:
        """Between the moments of the last iteration that was waited for; None before the first."""
        if self._complete is None:
            return None
        pairs = itertools.pairwise(self._complete)
        if self._device.type == "cuda":
            a, b, c = (one.elapsed_time(other) * 1e-3 for one, other in pairs)
        else:
            a, b, c = (other - one for one, other in pairs)
        return a, b, c
