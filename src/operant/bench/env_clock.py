"""How much of a rollout is the environment's: a clock around its steps, where there can be one.

- ``eager`` calls ``env.write_step``: that is timed.
- ``fused`` calls the compiled step by its address: the address of a function that times it is put
  there instead. It costs two looks at the clock for each tile of environments.
- On a GPU nothing can be timed from here: steps of a batch like it are timed alone.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from operant.bench.env import random_actions
from operant.vector import random_play
from operant.vector.batch import Batch, compiled_batch
from operant.vector.env import VecEnv
from operant.vector.step_clocks import Timed, timed_on_gpu, timed_on_host

if TYPE_CHECKING:
    from operant.ppo.ppo import PPO

_LINE = 8  # int64 of a cache line: what two threads write to is never in one
_SECONDS, _NANOSECONDS, _SUM, _CALLS, _ADDRESS, _CLOCK = range(6)  # of a line
_TILE = 16  # environments, at least, that the fused engine steps at a time


class EnvClock(Protocol):
    """Adds up the time that a rollout spends in the environments."""

    kind: str
    """``"measured"`` or ``"estimated"``."""

    def take(self) -> float:
        """Seconds since the last call, as much as they delayed the rollout."""

    def close(self) -> None:
        """Leave the environments as they were."""


def clock_for(ppo: PPO) -> EnvClock:
    """The clock that fits the trainer's engine."""
    env = ppo.env
    if env.backend == "cuda":
        return AloneClock(ppo)
    if ppo.engine.name == "fused" and isinstance(env, VecEnv):
        from operant.ppo.engines.fused_cpu import FusedEngine

        engine = ppo.engine
        assert isinstance(engine, FusedEngine)
        return KernelClock(env, lambda: engine.rollout_threads)
    return StepClock(env)


_STEPPING = ("write_step", "finish_rows", "action_masks")
"""Methods in which an engine waits for environments; some batches have no `finish_rows`."""


class StepClock:
    """Times the calls in which an engine waits for environments."""

    kind = "measured"

    def __init__(self, env: Any) -> None:
        self._env, self._sum = env, 0.0
        for name in _STEPPING:
            if hasattr(env, name):
                setattr(env, name, self._timed(getattr(env, name)))  # hides the class's

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self._sum += time.perf_counter() - began

        return timed

    def take(self) -> float:
        """See `EnvClock`."""
        taken, self._sum = self._sum, 0.0
        return taken

    def close(self) -> None:
        """See `EnvClock`."""
        for name in _STEPPING:
            vars(self._env).pop(name, None)


class KernelClock:
    """Times the compiled steps inside a fused rollout.

    Args:
        env: compiled environments.
        threads: how many threads share a rollout at the moment.
    """

    kind = "measured"

    def __init__(self, env: VecEnv, threads: Callable[[], int]) -> None:
        compiled = env.compiled
        assert compiled is not None
        self._compiled, self._threads, self._real = compiled, threads, compiled.step_address
        self._lines = np.zeros((-(-env.num_envs // _TILE) + 1, _LINE), np.int64)
        self._lines[:, _ADDRESS] = self._real
        self._lines[:, _CLOCK] = _clock_address()
        self._function = _timed_step(self._lines.ctypes.data)
        compiled.step_address = self._function.address

    def take(self) -> float:
        """See `EnvClock`."""
        tiles = int(np.count_nonzero(self._lines[:, _CALLS]))
        seconds = float(self._lines[:, _SUM].sum()) * 1e-9
        self._lines[:, [_SUM, _CALLS]] = 0
        # Threads work on whole tiles: the last of them have to wait for those that have one more.
        return seconds * -(-tiles // self._threads()) / tiles if tiles else 0.0

    def close(self) -> None:
        """See `EnvClock`."""
        self._compiled.step_address = self._real


class AloneClock:
    """Knows how long the steps of a rollout take a batch like the trainer's on its GPU, alone."""

    kind = "estimated"

    def __init__(self, ppo: PPO) -> None:
        from operant.ppo.batch import make_env
        from operant.vector.batch import env_class

        env = make_env(ppo.config, env_class(ppo.env), ppo.device)
        env.reset(seed=ppo.config.run.seed)
        timed = timed_steps(env, ppo.device.type)
        timed(16)
        self._seconds = timed(64) * ppo.config.ppo.num_steps
        env.close()

    def take(self) -> float:
        """See `EnvClock`."""
        return self._seconds

    def close(self) -> None:
        """See `EnvClock`."""


def timed_steps(env: Any, device: str) -> Timed:
    """Steps of a batch that was reset, with random actions; compiled when this returns.

    What operant does not compile is stepped as training steps it, with allowed actions.
    On a GPU (`device` is ``"cuda"``) they are captured in a graph and timed by its own clock.
    """
    ours = compiled_batch(env)
    if ours is None:
        return _timed_batch(env)
    actions = random_actions(ours.rules, env.num_envs)
    env.step(actions[0])
    on_gpu = env.backend == "cuda" and device == "cuda"
    return (timed_on_gpu if on_gpu else timed_on_host)(env, actions)


def _timed_batch(env: Batch) -> Timed:
    """Steps of a batch that operant does not compile: what they take, without choosing actions."""
    actions, memory = random_play.random_actions(env), random_play.step_memory(env)

    def timed(count: int) -> float:
        passed = 0.0
        for _ in range(count):
            chosen = next(actions)
            began = time.perf_counter()
            env.write_step(chosen, memory)
            passed += time.perf_counter() - began
        return passed / count

    return timed


def _clock_address() -> int:
    """Of the C library's ``clock_gettime``."""
    address = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    assert address is not None
    return address


def _timed_step(lines_address: int) -> Any:
    """A compiled function that steps a block and adds what it took to the line of its first tile.

    A tile is one thread's while it is stepped, so nobody else writes to that line.
    """
    from numba import cfunc
    from numba import int64 as i64
    from numba import uint64 as u64

    from operant.compiler.runtime import intrinsics

    at: Any = intrinsics.at
    call_address: Any = intrinsics.call_address
    clock_id = time.CLOCK_MONOTONIC

    @cfunc("int64(int64, int64, int64, int64, int64)", error_model="numpy")
    def timed_step(lo: Any, hi: Any, now_us: Any, rescan: Any, table_address: Any) -> Any:
        address = i64(lines_address) + lo // _TILE * _LINE * 8
        line = at(u64(address), i64)
        clock = u64(line[_CLOCK])
        call_address(clock, (i64(clock_id), address))
        began = line[_SECONDS] * 1_000_000_000 + line[_NANOSECONDS]
        ended = call_address(u64(line[_ADDRESS]), (lo, hi, now_us, rescan, table_address))
        call_address(clock, (i64(clock_id), address))
        line[_SUM] += line[_SECONDS] * 1_000_000_000 + line[_NANOSECONDS] - began
        line[_CALLS] += 1
        return ended

    return timed_step
