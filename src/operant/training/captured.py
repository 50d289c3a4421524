"""`Captured`: work of PyTorch's as one CUDA graph."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger("operant.engine")


class Captured:
    """Calls a function, or replays what it launched.

    A graph reads and writes where the function did when it was captured: tensors that keep their
    addresses. What cannot be captured, because it waits for the GPU, say, is called; a warning says
    so.

    Args:
        function: of one argument, always the same object.
        changed: the tensors that it changes; put back after the trial runs.
        replays: whether to capture; else it is called.
    """

    def __init__(
        self, function: Callable[[Any], None], changed: Sequence[Tensor], replays: bool
    ) -> None:
        self._function, self._changed, self._replays = function, list(changed), replays
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, argument: Any) -> None:
        """Do it."""
        if self._replays and self._graph is None:
            self._capture(argument)
        if self._graph is None:
            self._function(argument)
        else:
            self._graph.replay()

    def _capture(self, argument: Any) -> None:
        device = self._changed[0].device
        before = [x.clone() for x in self._changed]
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        collecting = gc.isenabled()
        gc.disable()  # memory that is freed meanwhile would break the capture
        try:
            with torch.cuda.device(device):
                with torch.cuda.stream(stream):
                    for _ in range(2):
                        self._function(argument)
                torch.cuda.current_stream(device).wait_stream(stream)
                torch.cuda.synchronize(device)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    self._function(argument)
            self._graph = graph
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize(device)
            self._replays = False
            reason = str(error).strip().partition("\n")[0]
            log.warning("the bonus is computed step by step, not as a graph: %s", reason)
        finally:
            if collecting:
                gc.enable()
            with torch.no_grad():
                for x, good in zip(self._changed, before, strict=True):
                    x.copy_(good)
