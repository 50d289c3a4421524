"""What a training keeps in memory, by part."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from operant.ppo.ppo import PPO


class Part(NamedTuple):
    """Something that takes memory."""

    name: str
    nbytes: int
    each: float
    """Bytes for one environment more, where it grows with them; else 0."""


def memory_parts(ppo: PPO) -> list[Part]:
    """What is known of the trainer's own memory, in bytes.

    Environments are counted by what a checkpoint keeps of them, if it can: their state, random
    streams and last results.
    """
    rows = ppo.env.num_envs
    sizes: list[tuple[str, int, bool]] = [
        ("rollout", _rollout_bytes(ppo.buffer), True),
        ("networks", sum(_nbytes(one) for one in ppo.policy.parameters()), False),
        ("statistics of the networks", sum(_nbytes(one) for one in ppo.policy.buffers()), False),
        ("optimiser", sum(_nbytes(one) for one in ppo.optimizer_tensors().values()), False),
    ]
    if ppo.env.why_not_saved is None:
        state = ppo.env.get_state()
        sizes.insert(0, ("environments", sum(array.nbytes for array in state.values()), True))
    return [Part(name, size, size / rows if grows else 0.0) for name, size, grows in sizes]


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _rollout_bytes(buffer: Any) -> int:
    found = getattr(buffer, "nbytes", None)
    if found is None:  # in main memory: its arrays are all of it
        found = sum(array.nbytes for array in buffer.arrays.values())
    return int(found)


def process_bytes() -> int:
    """Memory of this process now."""
    import psutil

    return int(psutil.Process().memory_info().rss)  # type: ignore[no-untyped-call]


def peak_bytes() -> int:
    """The most that this process had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_record(ppo: PPO, before: int) -> dict[str, Any]:
    """All of it, for JSON; `before`: the process before there was a trainer. Bytes."""
    found: dict[str, Any] = {
        "num_envs": ppo.env.num_envs,
        "device": str(ppo.device),
        "engine": ppo.engine_name,
        "parts": [
            {"name": one.name, "bytes": one.nbytes, "bytes_per_env": round(one.each, 1)}
            for one in memory_parts(ppo)
        ],
        "process_before": before,
        "process_now": process_bytes(),
        "process_peak": peak_bytes(),
    }
    if ppo.device.type == "cuda":
        import torch

        found["gpu_now"] = torch.cuda.memory_allocated(ppo.device)
        found["gpu_peak"] = torch.cuda.max_memory_allocated(ppo.device)
    return found
