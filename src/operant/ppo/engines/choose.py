"""Which engine and which device a job runs on, and why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch

from operant.ppo.engines.eager import EagerEngine
from operant.ppo.engines.fused_cpu import FusedEngine
from operant.ppo.job import Engine, Job

ENGINES: dict[str, Callable[[Job], Engine]] = {"fused": FusedEngine, "eager": EagerEngine}
"""Engines of this version, the fastest first."""


class Choice(NamedTuple):
    """An engine and the reason for it."""

    create: Callable[[Job], Engine]
    reason: str


def choose_engine(job: Job) -> Choice:
    """The engine that the configuration asks for; for ``"auto"`` the fastest that can do the job.

    Raises:
        ValueError: the engine asked for is not part of this version.
    """
    wanted = job.config.run.engine
    if wanted == "auto":
        return Choice(EagerEngine, "the only engine of this version")
    if wanted not in ENGINES:
        raise ValueError(
            f"the engine {wanted!r} is not part of this version; use --engine {next(iter(ENGINES))}"
        )
    return Choice(ENGINES[wanted], "as asked")


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
