"""CUDA graphs without a GPU: what is launched while one is captured is recorded, and done again
when it is replayed. For tests of what engines do around their graphs, in Triton's interpreter.

Unlike a GPU, which only notes what is captured, this does it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class Recorder(TorchDispatchMode):
    """Calls `on_launch` with the name of each operation or kernel, and what does it once more."""

    def __init__(self, on_launch: Callable[[str, Callable[[], None]], None]) -> None:
        super().__init__()
        self.on_launch = on_launch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)

        def again() -> None:
            for old, new in zip(_tensors(found), _tensors(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():  # not a view, nor what was changed in place
                    old.copy_(new)

        self.on_launch(str(func), again)
        return found

    def kernel(self, name: str, launch: Callable[[], None]) -> None:
        """A kernel that is not PyTorch's; its own operations on tensors are not recorded."""

        def hidden() -> None:
            with _disable_current_modes():
                launch()

        hidden()
        self.on_launch(name, hidden)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


@contextmanager
def recording(
    on_launch: Callable[[str, Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Tell `on_launch` of all that runs within."""
    from triton.runtime import interpreter

    recorder = Recorder(on_launch)
    launch = interpreter.GridExecutor.__call__

    def seen(executor: Any, *args: Any, **kwargs: Any) -> None:
        recorder.kernel(executor.fn.__name__, lambda: launch(executor, *args, **kwargs))

    with monkeypatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "__call__", seen)
        with recorder:
            yield


class FakeGraph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []
        self.replays = 0

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for again in self.launches:
            again()


def fake_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `torch.cuda` capture on a CPU."""

    @contextmanager
    def graph(graph: FakeGraph, **_: Any) -> Iterator[None]:
        with recording(lambda _, again: graph.launches.append(again), monkeypatch):
            yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes: dict[str, Any] = {
        "CUDAGraph": FakeGraph,
        "graph": graph,
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device: None,
        "graph_pool_handle": lambda: None,
        "get_rng_state": lambda device: torch.get_rng_state(),
        "set_rng_state": lambda state, device: torch.set_rng_state(state),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
