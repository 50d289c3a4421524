"""Launches that may run beside others on the same GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class SideStreams:
    """Two streams beside the current one. On a CPU everything is done in order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams: list[torch.cuda.Stream] = []
        if device.type == "cuda":
            self._streams = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]
        self._apart: set[torch.cuda.Stream] = set()

    def beside(self, side: int = 0) -> AbstractContextManager[Any]:
        """What is launched within may run at the same time as what is launched after it, until they
        are joined. `side` is 0 or 1."""
        if self._device.type != "cuda":
            return nullcontext()
        stream = self._streams[side]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        self._apart.add(stream)
        return torch.cuda.stream(stream)

    def join(self) -> None:
        """What is launched from now on comes after all that was launched beside."""
        for stream in self._apart:
            torch.cuda.current_stream(self._device).wait_stream(stream)
        self._apart.clear()
