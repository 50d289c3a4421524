"""What PyTorch did when, in Chrome's format (https://ui.perfetto.dev)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.ppo.ppo import PPO

PARTS = ("collect", "advantages", "update")


class NamedParts:
    """An engine whose parts have names in traces: for PyTorch's profiler, and on a GPU for NVIDIA's
    (NVTX ranges).

    Args:
        engine: does the work.
        on_gpu: whether to make NVTX ranges too.
    """

    def __init__(self, engine: Any, on_gpu: bool) -> None:
        self._engine, self._on_gpu = engine, on_gpu

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return self._named(name, found) if name in PARTS else found

    def _named(self, name: str, part: Any) -> Any:
        def called(*arguments: Any) -> Any:
            with named(name, self._on_gpu):
                return part(*arguments)

        return called


@contextmanager
def named(name: str, on_gpu: bool) -> Iterator[None]:
    """What happens inside has this name in a trace."""
    import torch

    with torch.profiler.record_function(name):
        if on_gpu:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            if on_gpu:
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


def record_trace(ppo: PPO, steps: int, path: Path) -> int:
    """Train for so many steps, and write the trace; how many events it has.

    Args:
        ppo: has trained before, so that nothing is compiled any more.
        steps: at least; whole iterations.
        path: the file to write. Its size grows with the operations: on `eager` a few hundred bytes
            each.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = ppo.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    engine: Any = ppo.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's, of its own past
        ppo.engine = NamedParts(engine, on_gpu)
        try:
            with profile(activities=activities) as found:
                ppo.learn(ppo.steps + steps, progress=False)
                if on_gpu:
                    torch.cuda.synchronize(ppo.device)
        finally:
            ppo.engine = engine
        found.export_chrome_trace(str(path))
    return len(found.events())
