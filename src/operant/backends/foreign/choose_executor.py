"""Which executor runs a batch."""

from __future__ import annotations

from dataclasses import dataclass

from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.executor import Executor, Serial
from operant.backends.foreign.probe import Probe, choose, probe
from operant.backends.foreign.processes import Processes, why_not_sent
from operant.backends.foreign.threads import Threads
from operant.toolchain.machine import usable_cores

BACKENDS = ("auto", "serial", "threads", "processes")


@dataclass(frozen=True)
class Options:
    """How a batch is run; see `operant.vector.foreign_batch.ForeignBatch`."""

    workers: int | None = None
    on_worker_death: str = "raise"
    step_timeout_s: float = 60.0
    context: str = "spawn"
    mask_in_obs: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("on_worker_death", self.on_worker_death, ("raise", "restart")),
            ("context", self.context, ("spawn", "forkserver")),
        ):
            if value not in known:
                words = " or ".join(map(repr, known))
                raise ValueError(f"{name} must be {words}, got {value!r}")
        if not self.step_timeout_s > 0:
            raise ValueError(f"step_timeout_s must be more than 0, got {self.step_timeout_s}")


@dataclass(frozen=True)
class Chosen:
    """An executor, and how it came to be."""

    probe: Probe
    backend: str
    reason: str
    executor: Executor


def start(make_env: MakeEnv, num_envs: int, backend: str, options: Options) -> Chosen:
    """Make the environments of a batch, wherever they are to run.

    Raises:
        ValueError, TypeError: an unknown backend; what `make_env` makes is no environment.
        ForeignEnvError: an environment failed.
    """
    if backend not in BACKENDS:
        names = ", ".join(map(repr, BACKENDS))
        raise ValueError(f"backend must be one of {names}, got {backend!r}")
    cores = usable_cores()
    workers = min(options.workers or cores, num_envs)
    if backend == "processes":  # one of them looks at an environment: it may hang, or end it
        processes = _processes(make_env, None, num_envs, workers, options)
        return Chosen(processes.probe, backend, f"{backend}: asked for", processes)
    found, step_s = probe(make_env, backend == "auto", options.mask_in_obs)
    reason = f"{backend}: asked for"
    if backend == "auto":
        backend, reason = choose(step_s, num_envs, workers, cores)
        if backend == "processes" and (why := why_not_sent(make_env)):
            backend, reason = "serial", f"serial: {why}"
    made = _executor(make_env, found, num_envs, backend, workers, options)
    return Chosen(found, backend, reason, made)


def _executor(
    make_env: MakeEnv, found: Probe, num_envs: int, backend: str, workers: int, options: Options
) -> Executor:
    if backend == "processes":
        return _processes(make_env, found, num_envs, workers, options)
    if backend == "threads":
        return Threads(make_env, found.layouts, num_envs, workers, options.step_timeout_s)
    return Serial(make_env, found.layouts, num_envs)


def _processes(
    make_env: MakeEnv, found: Probe | None, num_envs: int, workers: int, options: Options
) -> Processes:
    return Processes(
        make_env,
        found,
        num_envs,
        workers,
        restart=options.on_worker_death == "restart",
        timeout_s=options.step_timeout_s,
        context=options.context,
        mask_in_obs=options.mask_in_obs,
    )
