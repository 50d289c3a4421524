"""What the host and the card tell each other in an iteration, and when."""

from __future__ import annotations

import time
from typing import Any

import torch


class Exchange:
    """The same numbers twice: ``card``, a tensor, and ``host``, an array to write to or read from.

    Copies go through memory that is not paged, at fixed addresses: they wait for nothing and can be
    captured in a graph. So the host may touch ``host`` only while no copy can be under way. In
    memory of the CPU (Triton's interpreter) copies are done at once.

    Args:
        shape, dtype: of both.
        device: where ``card`` is.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.card = torch.zeros(shape, dtype=dtype, device=device)
        self._pinned = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")
        self.host = self._pinned.numpy()

    def send(self) -> None:
        """Copy the host's numbers to the card."""
        self.card.copy_(self._pinned, non_blocking=True)

    def fetch(self) -> None:
        """Copy the card's numbers to the host, where they are after a wait."""
        self._pinned.copy_(self.card, non_blocking=True)


class Marks:
    """Moments of an iteration by the card's clock: its start, and the ends of its three parts."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._noted = device, 0
        self._times = [0.0] * 4
        self._events: list[Any] = []
        if device.type == "cuda":
            new = torch.cuda.Event
            self._events = [new(enable_timing=True) for _ in self._times]  # type: ignore[no-untyped-call]

    def note(self, moment: int) -> None:
        """It is now, for the host, or after what was launched so far, for a card."""
        self._noted = moment + 1
        if self._events:
            self._events[moment].record(torch.cuda.current_stream(self._device))
        else:
            self._times[moment] = time.perf_counter()

    def wait(self, moment: int) -> None:
        """Wait for a moment that was noted."""
        if self._events:
            self._events[moment].synchronize()

    def seconds(self) -> tuple[float, float, float] | None:
        """Between the moments, once the last has come; None before it was noted."""
        if self._noted < 4:
            return None
        if not self._events:
            a, b, c, d = self._times
            return b - a, c - b, d - c
        began, collected, estimated, ended = self._events
        return (
            began.elapsed_time(collected) * 1e-3,
            collected.elapsed_time(estimated) * 1e-3,
            estimated.elapsed_time(ended) * 1e-3,
        )
