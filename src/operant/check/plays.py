"""Batches to play on, whatever the backend, and what is played there: for `env_check`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from operant.compiler.recording.trace import FLOAT
from operant.compiler.spec.array_rules import ArrayRules
from operant.compiler.spec.layouts import Layout
from operant.compiler.spec.rules import Rules
from operant.lang.env import Env
from operant.toolchain.gpus import interpreted
from operant.vector.env import VecEnv
from operant.vector.make import make

NUM_ENVS, NUM_ARRAY_ENVS = 64, 4
"""How many are played. A state of arrays is stepped one environment at a time by the reference."""
MAX_STEPS = 1000
FIRST_STEPS = 32
"""Steps that `try_in_python` plays: 70 ms for Snake on a busy core."""


def count_of(env: type[Env]) -> int:
    """How many environments are played where the slowest backend takes part."""
    return NUM_ARRAY_ENVS if isinstance(Rules.of(env), ArrayRules) else NUM_ENVS


def steps_of(env: type[Env]) -> int:
    """How many steps are played: more than an episode, if there is a limit."""
    return min(env.max_episode_steps or MAX_STEPS, MAX_STEPS) + 10


def batch_of(env: type[Env], num_envs: int, backend: str, workers: int = 1, **options: Any) -> Any:
    """A batch on a backend, with NumPy arrays."""
    if backend == "cuda":
        return _OnHost(make(env, num_envs, backend=backend, **options))
    return VecEnv(env, num_envs, backend=backend, workers=workers, **options)


def play(batch: Any, seed: int = 0) -> Iterator[tuple[int, np.ndarray, Any]]:
    """Whole episodes with random actions: step number, actions, and the five results."""
    batch.reset(seed=seed)
    for step in range(steps_of(batch.rules.env)):
        actions = random_actions(batch.rules.action, batch.num_envs, step)
        yield step, actions, batch.step(actions)


def random_actions(layout: Layout, num_envs: int, seed: int) -> np.ndarray:
    """Actions ``[num_envs, *shape]``, uniform in the space; standard normal where unbounded."""
    random = np.random.default_rng(seed)
    shape = (num_envs, *layout.shape)
    if layout.dtype != FLOAT:
        low, high = (np.array(bounds).reshape(layout.shape) for bounds in (layout.low, layout.high))
        return random.integers(low, high, shape)
    space: Any = layout.space
    finite = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(finite, space.low, 0.0), np.where(finite, space.high, 0.0)
    values = np.where(finite, random.uniform(low, high, shape), random.standard_normal(shape))
    return values.astype(np.float32)


REPEATED = np.array([0.0, 0.7, 0.95, 1.0])
"""The probability with which environment k of a batch, k modulo 4, repeats its action."""


def repeated_actions(layout: Layout, before: np.ndarray, seed: int) -> np.ndarray:
    """Actions like `random_actions`, but some environments repeat the one `before` for long."""
    fresh = random_actions(layout, len(before), seed)
    chances = REPEATED[np.arange(len(before)) % len(REPEATED)]
    repeats = np.random.default_rng(seed).random(len(before)) < chances
    return np.where(repeats.reshape(-1, *[1] * (fresh.ndim - 1)), before, fresh)


def try_in_python(env: type[Env], **options: Any) -> None:
    """Play the first steps of an environment over arrays in plain Python, which raises where
    compiled code goes on with another number: 300 in a ``uint8``. `options` are those of `make`.

    Raises:
        Exception: whatever one of its functions raised.
    """
    if not isinstance(Rules.of(env), ArrayRules):
        return
    batch = VecEnv(env, NUM_ARRAY_ENVS, backend="reference", seed=0, **options)
    batch.reset()
    actions = random_actions(batch.rules.action, NUM_ARRAY_ENVS, 0)
    for step in range(FIRST_STEPS):
        batch.step(actions)
        actions = repeated_actions(batch.rules.action, actions, step + 1)
    batch.close()


class Speed(NamedTuple):
    """What `throughput` found, and with how many environments."""

    sps: float
    num_envs: int


def throughput(env: type[Env], backend: str, seconds: float = 0.5) -> Speed:
    """Environment steps per second on this machine, one worker.

    With 4096 environments; a million on a GPU; 64 where a step of 4096 would take longer than
    `seconds`, as on ``reference`` with a state of arrays.
    """
    if backend == "cuda":
        return _throughput_on_gpu(env, seconds)
    if backend == "reference":
        few = _throughput_of(env, backend, 64, 0.0)
        if few.sps * seconds < 4096:
            return _throughput_of(env, backend, 64, seconds)
    return _throughput_of(env, backend, 4096, seconds)


def _throughput_of(env: type[Env], backend: str, num_envs: int, seconds: float) -> Speed:
    batch = VecEnv(env, num_envs, backend=backend, copy=False, seed=0)
    batch.reset()
    actions = [random_actions(batch.rules.action, num_envs, k) for k in range(8)]
    batch.step(actions[0])
    steps, began, elapsed = 0, time.perf_counter(), 0.0
    while steps == 0 or elapsed < seconds:
        batch.step(actions[steps % len(actions)])
        steps, elapsed = steps + 1, time.perf_counter() - began
    batch.close()
    return Speed(steps * num_envs / elapsed, num_envs)


def _throughput_on_gpu(env: type[Env], seconds: float) -> Speed:
    from operant.vector.step_clocks import timed_on_gpu

    count = 4096 if interpreted() else 1 << 20
    batch = make(env, count, backend="cuda", seed=0)
    batch.reset()
    actions = [random_actions(batch.rules.action, count, k) for k in range(8)]
    batch.step(actions[0])
    timed = timed_on_gpu(batch, actions)
    return Speed(count / timed(max(1, round(seconds / timed(8)))), count)


class _OnHost:
    """A batch on a GPU that takes and gives NumPy arrays, to be compared with others."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.rules, self.num_envs, self.close = batch.rules, batch.num_envs, batch.close
        self.get_state, self.set_state = batch.get_state, batch.set_state

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        return _array(self._batch.reset(seed=seed)[0]), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        *results, info = self._batch.step(actions)
        ended = _array(info["_episode"])
        found = {}
        if ended.any():
            episode = {key: _array(value) for key, value in info["episode"].items()}
            found = {"episode": episode, "_episode": ended}
            found |= {"final_obs": _array(info["final_obs"])} if "final_obs" in info else {}
        return (*map(_array, results), found)

    def action_masks(self) -> np.ndarray:
        return _array(self._batch.action_masks())


def _array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.cpu().numpy().copy()
    return found
