"""How long a step of a batch takes, on the host and on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Timed = Callable[[int], float]
"""Takes at least so many steps; the seconds that one of them took."""


def timed_on_host(env: Any, actions: list[np.ndarray]) -> Timed:
    """Steps called one after the other, each with the next actions; timed by the wall's clock."""
    step = env.step

    def timed(steps: int) -> float:
        began = time.perf_counter()
        for k in range(steps):
            step(actions[k % len(actions)])
        return (time.perf_counter() - began) / steps

    return timed


def timed_on_gpu(env: Any, actions: list[np.ndarray]) -> Timed:
    """Steps captured in a graph, each with its own actions; timed by the GPU's events."""
    import torch

    tensors = [torch.from_numpy(batch).to(env.device) for batch in actions]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for batch in tensors:
            env.step(batch)

    def timed(steps: int) -> float:
        replays = -(-steps // len(tensors))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / (replays * len(tensors))

    return timed
