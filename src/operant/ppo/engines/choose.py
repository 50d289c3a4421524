"""Which engine and which device a job runs on, and why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch

from operant.ppo.engines.eager import EagerEngine
from operant.ppo.job import Engine, Job


class Choice(NamedTuple):
    """An engine and the reason for it."""

    create: Callable[[Job], Engine]
    reason: str


def choose_engine(job: Job) -> Choice:
    """The engine that the configuration asks for; for ``"auto"`` the fastest that can do the job.

    A job that the `fused` engine cannot do goes to `eager`, also where `fused` was asked for.

    Raises:
        ValueError: the engine asked for is not part of this version.
    """
    wanted = job.config.run.engine
    if wanted == "graph":
        raise ValueError("the engine 'graph' is not part of this version; use --engine auto")
    if wanted == "eager":
        return Choice(EagerEngine, "as asked")
    reason = _why_not_fused(job)
    if reason is not None:
        return Choice(EagerEngine, f"the fused engine cannot do this job: {reason}")
    from operant.ppo.engines.fused_cpu import FusedEngine

    return Choice(FusedEngine, "as asked" if wanted == "fused" else "the fastest for this job")


def _why_not_fused(job: Job) -> str | None:
    if job.device.type != "cpu":
        return f"it runs on the CPU, not on {job.device}"
    if job.env.backend != "cpu":
        return f"it needs compiled environments, and these run on backend {job.env.backend!r}"
    from operant.ppo.engines.fused_scope import why_not_fused

    return why_not_fused(job)


def choose_device(name: str) -> torch.device:
    """The device of that name; ``"auto"`` is the first GPU, or the CPU where there is none.

    Raises:
        ValueError: no such device on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device: torch.device | None = None
    with suppress(RuntimeError):
        device = torch.device(name)
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if count == 0:
            raise ValueError(f"the device {name!r} was asked for, but this machine has no GPU")
        if (device.index or 0) >= count:
            raise ValueError(f"the device {name!r} was asked for, but there are only {count} GPUs")
    return device
