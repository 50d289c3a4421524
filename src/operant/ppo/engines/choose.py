"""Which engine and which device a job runs on, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import NamedTuple, cast

import torch

from operant.ppo.engines.async_engine import AsyncEngine, acting_job, why_not_async
from operant.ppo.job import Engine, HostEngine, Job
from operant.vector.batch import compiled_batch, is_batch

log = logging.getLogger("operant.engine")


class Choice(NamedTuple):
    """An engine and the reason for it."""

    engine: Engine
    reason: str


def choose_engine(job: Job) -> Choice:
    """The engine that the configuration asks for; for ``"auto"`` the fastest that can do the job.

    A job that the engine asked for cannot do goes to the next one, with the reason.
    """
    if job.config.run.mode == "async":
        refused = why_not_async(job)
        if refused is not None:
            raise ValueError(refused)
    compiled_on_gpu = job.env.backend == "cuda" and compiled_batch(job.env) is not None
    chosen = _on_gpu(job) if compiled_on_gpu else _on_host(job)
    wanted = job.config.run.engine
    if wanted not in ("auto", chosen.engine.name):
        log.warning("engine %s: %s", chosen.engine.name, chosen.reason)
    return _beside_updates(chosen) if job.config.run.mode == "async" else chosen


def _beside_updates(chosen: Choice) -> Choice:
    """The engine that was chosen, with another one of its kind that collects meanwhile."""
    learner = cast(HostEngine, chosen.engine)  # of environments in main memory
    actor = type(learner)(acting_job(learner.job))
    lag = learner.job.config.run.max_lag
    how = f"rollouts are collected beside updates, up to {lag} ahead"
    return Choice(AsyncEngine(learner, actor), f"{chosen.reason}; {how}")


def _on_host(job: Job) -> Choice:
    """`fused` or `eager`, with environments in main memory; `eager` for others on a GPU."""
    from operant.ppo.engines.eager import EagerEngine

    wanted = job.config.run.engine
    if job.env.device.type != "cpu":
        from operant.ppo.engines.eager_device import DeviceEagerEngine

        why = f"{job.env.backend!r} environments on {job.env.device} are not compiled by operant"
        return Choice(DeviceEagerEngine(job), "as asked" if wanted == "eager" else why)
    if wanted == "eager":
        return Choice(EagerEngine(job), "as asked")
    if wanted == "graph":
        why = f"the graph engine cannot do this job: {_why_not_graph(job)}"
        return Choice(EagerEngine(job), why)
    reason = _why_not_fused(job)
    if reason is not None:
        return Choice(EagerEngine(job), f"the fused engine cannot do this job: {reason}")
    from operant.ppo.engines.fused_cpu import FusedEngine

    why = "as asked" if wanted == "fused" else "the fastest for this job"
    if compiled_batch(job.env) is None:
        why += "; its environments step outside of it, in their batch"
    return Choice(FusedEngine(job), why)


def _on_gpu(job: Job) -> Choice:
    """`fused`, `graph` or `eager`, with environments on the GPU."""
    from operant.ppo.engines import gpu_builders
    from operant.ppo.engines.captured_graph import CannotCaptureError
    from operant.toolchain.nvrtc import CompileError

    wanted = job.config.run.engine
    if wanted == "eager":
        return Choice(gpu_builders.eager_engine(job), "as asked")
    fastest = "as asked" if wanted != "auto" else "the fastest for this job"
    if wanted in ("auto", "fused"):
        from operant.ppo.engines.fused_scope import why_fused_is_slow_on_gpu, why_not_fused_on_gpu

        reason = why_not_fused_on_gpu(job)
        if reason is None and wanted == "auto":
            reason = why_fused_is_slow_on_gpu(job)
        if reason is None and (job.device.type == "cuda" or wanted == "fused"):
            try:
                return Choice(_fitting(gpu_builders.fused_engine, job), fastest)
            except (CannotCaptureError, CompileError) as error:
                reason = str(error).partition("\n")[0]
        if wanted == "fused":
            fastest = f"the fused engine cannot do this job: {reason}"
        elif reason is not None:
            fastest = f"the fastest for this job; not fused, because {reason}"
    why = _why_not_graph(job)
    if why is None:
        try:
            return Choice(_fitting(gpu_builders.graph_engine, job), fastest)
        except CannotCaptureError as error:
            why = str(error)
    reason = f"the graph engine cannot do this job: {why}"
    if wanted == "fused":
        reason = f"{fastest}; nor can the graph engine: {why}"
    return Choice(gpu_builders.eager_engine(job), reason)


def _fitting(make: Callable[[Job], Engine], job: Job) -> Engine:
    device = torch.cuda.device(job.device) if job.device.type == "cuda" else nullcontext()
    try:
        with device:
            return make(job)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"training {job.env.num_envs:,} environments with {job.config.ppo.num_steps} steps "
            f"a rollout does not fit on {job.device}; try half as many"
        ) from error


def _why_not_fused(job: Job) -> str | None:
    if job.device.type != "cpu":
        return (
            f"with environments in main memory it trains on the CPU, and the policy is on "
            f"{job.device}; run.device=cpu lets it"
        )
    if job.env.live_rows() is not None:
        return "it trains on every row of every step, and some of this batch rest at times"
    if compiled_batch(job.env) is not None and job.env.backend not in ("cpu", "native"):
        return f"it needs compiled environments, and these run on backend {job.env.backend!r}"
    from operant.ppo.engines.fused_scope import why_not_fused

    return why_not_fused(job)


def _why_not_graph(job: Job) -> str | None:
    """Why the graph engine cannot do a job, as the end of a sentence; None if it may."""
    if job.device.type != "cuda":
        return f"it needs a GPU, and the policy is on {job.device}"
    if job.env.backend != "cuda":
        return f"it needs environments on the GPU, and these run on backend {job.env.backend!r}"
    return None


def choose_device(name: str, env: object = None) -> torch.device:
    """The device of that name; ``"auto"`` is where `env` is, if that is a batch on a GPU, else the
    first GPU, or the CPU where there is none.

    Raises:
        ValueError: no such device on this machine, or not that of the batch.
    """
    on_gpu = is_batch(env) and (env.backend == "cuda" or env.device.type != "cpu")
    given: torch.device | None = env.device if on_gpu else None  # type: ignore[attr-defined]
    if name == "auto":
        return given or torch.device(*("cuda", 0) if torch.cuda.is_available() else ("cpu",))
    device: torch.device | None = None
    with suppress(RuntimeError):
        device = torch.device(name)
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if count == 0:
            raise ValueError(f"the device {name!r} was asked for, but this machine has no GPU")
        device = torch.device("cuda", device.index or 0)
        if device.index >= count:
            raise ValueError(f"the device {name!r} was asked for, but there are only {count} GPUs")
    if given is not None and given != device:
        raise ValueError(f"run.device is {device}, but the batch of environments is on {given}")
    return device
