"""The cases of the suite. Sizes are part of a name or stand here, so that a baseline stays one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from operant.bench.suite.case import Case, Latency, Once, Throughput, Work
from operant.bench.suite.process_cases import process_cases
from operant.bench.suite.training_cases import training_cases
from operant.vector.registry import env_ids

SUITES = ("quick", "full")
NUM_ENVS, GPU_ENVS, FOREIGN_ENVS = 4096, 65536, 64
_T, _N = 128, 1024
_FOREIGN = ("serial", "threads", "processes")
_QUICK_ENVS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "Prospector-v0")


def suite_cases(suite: str, device: str, only: Sequence[str] = ()) -> list[Case]:
    """The cases of a suite on a device.

    Args:
        suite: one of `SUITES`.
        device: ``"cpu"`` or ``"cuda:0"``: where environments and policies are.
        only: beginnings of names, or patterns with ``*``; all if empty.

    Raises:
        ValueError: no such suite, or a name that fits no case of it.
    """
    if suite not in SUITES:
        raise ValueError(f"the suite must be {' or '.join(SUITES)}, got {suite!r}")
    everything = [
        *env_cases(device),
        *space_cases(),
        *buffer_cases(),
        *training_cases(device),
        *process_cases(device),
    ]
    found = [case for case in everything if case.quick or suite == "full"]
    for name in only:
        if not any(_fits(case.name, name) for case in found):
            kinds = dict.fromkeys(case.name.partition("/")[0] for case in found)
            raise ValueError(
                f"no case of the {suite} suite is called {name!r}; there are {', '.join(kinds)}"
            )
    return [case for case in found if not only or any(_fits(case.name, name) for name in only)]


def _fits(name: str, asked: str) -> bool:
    whole_parts = name == asked or name.startswith(asked.rstrip("/") + "/")
    return whole_parts or fnmatchcase(name, asked)


# environments ---------------------------------------------------------------------------
def env_cases(device: str) -> list[Case]:
    """Stepping with random actions, and what an environment takes in memory."""
    gpu = device != "cpu"
    backend, count = (device, GPU_ENVS) if gpu else ("cpu", NUM_ENVS)
    place = "cuda" if gpu else "cpu"
    found = [
        Case(
            f"vecenv_step/{name}/{place}",
            "steps/s",
            partial(_steps, name, backend, count),
            quick=name in _QUICK_ENVS,
        )
        for name in env_ids()
    ]
    found += [
        Case(
            f"vecenv_step/{name}/reference",
            "steps/s",
            partial(_steps, name, "reference", 16),
            quick=name == "CartPole-v1",
        )
        for name in env_ids()
    ]
    theirs = partial(_steps, "gymnasium:CartPole-v1", num_envs=FOREIGN_ENVS)
    found += [
        Case(f"vecenv_step/gymnasium:CartPole-v1/{way}", "steps/s", partial(theirs, way), True)
        for way in _FOREIGN
    ]
    memory = partial(_env_bytes, "CartPole-v1", backend)
    return [*found, Case(f"env_memory/CartPole-v1/{place}", "B", lambda: Once(memory), True, 1)]


def _steps(name: str, backend: str, num_envs: int) -> Work:
    from operant.bench.env_clock import timed_steps
    from operant.vector.make import make
    from operant.vector.targets import find_env

    options: dict[str, Any] = {"copy": False, "workers": 1}
    if backend.startswith("cuda"):
        options = {"copy": False}
    elif backend in _FOREIGN:
        options = {}  # a thread or process a core
    env = make(find_env(name), num_envs, backend=backend, **options)
    env.reset(seed=0)
    timed = timed_steps(env, "cuda" if backend.startswith("cuda") else "cpu")
    return _Steps(timed, num_envs, env.close)


class _Steps(Throughput):
    """Steps a second of a batch that times itself."""

    def __init__(
        self, timed: Callable[[int], float], num_envs: int, close: Callable[[], Any]
    ) -> None:
        self._timed, self._num_envs, self.close = timed, num_envs, close
        timed(16)
        self._once = min(timed(16) for _ in range(3))

    def measure(self, seconds: float) -> float:
        """See `Work`."""
        return self._num_envs / self._timed(max(16, round(seconds / self._once)))


def _env_bytes(name: str, backend: str) -> float:
    """Bytes that one more environment takes, from two sizes."""
    from operant.vector.make import make

    def taken(num_envs: int) -> int:
        if backend.startswith("cuda"):
            import torch

            before = torch.cuda.memory_allocated(backend)
            env = make(name, num_envs, backend=backend, copy=False)
            env.reset(seed=0)
            found = torch.cuda.memory_allocated(backend) - before
        else:
            import tracemalloc

            tracemalloc.start()  # NumPy tells it of its arrays
            try:
                env = make(name, num_envs, backend=backend, copy=False)
                env.reset(seed=0)
                found = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
        env.close()
        return found

    taken(64)  # what is made once is made now
    small, large = 4096, 20480
    return (taken(large) - taken(small)) / (large - small)


# spaces and buffers ---------------------------------------------------------------------
def space_cases() -> list[Case]:
    """A Dict of six leaves, 1024 samples, as rows and back."""

    def opened(operation: str) -> Work:
        from operant.bench.spaces import contenders

        ours = next(
            one for one in contenders(1024) if (one.system, one.operation) == ("operant", operation)
        )
        return Throughput(ours.run, 1024)

    return [
        Case(f"space_{name}/Dict", "samples/s", partial(opened, name), quick=True)
        for name in ("flatten", "unflatten")
    ]


def buffer_cases() -> list[Case]:
    """Advantages, and the rollout's memory: 128 steps of 1024 environments."""
    return [
        Case("gae_compute/numba", "samples/s", partial(_gae, "numba"), True),
        Case("gae_compute/torch", "samples/s", partial(_gae, "torch")),
        Case("buffer_add/CartPole-v1", "samples/s", _added, True),
        Case("metrics_publish", "us", _published, True),
    ]


def _rollout() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    ended = random.random((_T, _N)) < 0.01
    return {
        "reward": random.random((_T, _N), np.float32),
        "value": random.random((_T, _N), np.float32),
        "terminated": ended,
        "truncated": ~ended & (random.random((_T, _N)) < 0.01),
        "final_value": random.random((_T, _N), np.float32),
        "last_value": random.random(_N, np.float32),
    }


def _gae(how: str) -> Work:
    import torch

    from operant.buffers.advantages import gae, gae_torch

    given: dict[str, Any] = _rollout()
    if how == "numba":
        out = (np.empty((_T, _N), np.float32), np.empty((_T, _N), np.float32))
        return Throughput(lambda: gae(**given, gamma=0.99, gae_lambda=0.95, out=out), _T * _N)
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in given.items()}
    return Throughput(lambda: gae_torch(**tensors, gamma=0.99, gae_lambda=0.95), _T * _N)


def _added() -> Work:
    from operant.buffers import RolloutBuffer

    buffer, given = RolloutBuffer(_T, _N, (4,)), _rollout()
    obs = np.zeros((_N, 4), np.float32)
    steps = [given[name] for name in ("reward", "terminated", "truncated")]

    def add() -> None:
        buffer.start(obs)
        for t in range(_T):
            buffer.store_step(t, obs, *(array[t] for array in steps))

    return Throughput(add, _T * _N)


def _published() -> Work:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from operant.ppo.ppo import METRICS
    from operant.runs.metrics_file import MetricsWriter

    folder = TemporaryDirectory()
    writer = MetricsWriter(Path(folder.name) / "metrics.mmap", METRICS, run_id="bench")
    values = [float(k) for k in range(len(METRICS))]

    class Published(Latency):
        def close(self) -> None:
            writer.close()
            folder.cleanup()

    return Published(lambda: writer.append(values))
