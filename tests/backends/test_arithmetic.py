"""What a division, a remainder, an int or a conversion is: the same on every backend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, float32, floor, int32, maximum, minimum, to_float, to_int, where
from operant.toolchain.gpus import gpu_count
from operant.toolchain.host_kernels import host_compiler

RINGS = (41, 47, 55, 61, 82, 83, 94, 97, 3, 10)
BIG = 2**31 - 1


class Rings(operant.Env):
    """One place on each of several rings, one step further each time."""

    class State(NamedTuple):
        a: float
        b: float
        c: float
        d: float
        laps: float

    class Params(NamedTuple):
        size: float = 41.0

    observation_space = Box(-np.inf, np.inf, (5,))
    action_space = Discrete(2)
    max_episode_steps = 1000

    def reset(random: Any) -> Any:
        return Rings.State(0.0, 0.0, 0.0, 0.0, 0.0)

    def step(state: Any, action: Any, params: Any) -> Any:
        laps = state.laps + 1.0
        a = (state.a + 1.0) % 41.0
        b = floor(laps / 47.0)
        c = to_float(to_int(laps / 83.0))
        d = (state.d + 1.0) % params.size
        reward = where((a == 0.0) & (d == 0.0), 1.0, 0.0)
        return Rings.State(a, b, c, d, laps), reward, laps < 0.0

    def observe(state: Any) -> Any:
        quotient = (state.laps * 97.0) // 97.0
        return state.a, state.b, state.c, state.d, quotient


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_exact_multiples(backend: str) -> None:
    """A reciprocal instead of a division gives 41.0 for 41.0 % 41.0."""
    env = operant.make(Rings, 2, backend=backend)
    env.reset(seed=0)
    for lap in range(1, 420):
        obs, reward, *_ = env.step(np.zeros(2, np.int64))
        wanted = (lap % 41, lap // 47, lap // 83, lap % 41, lap)
        np.testing.assert_array_equal(obs[0], np.array(wanted, np.float32))
        assert reward[0] == (lap % 41 == 0)


class Division(operant.Env):
    """The action divided by many numbers, as a parameter of the class."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-np.inf, np.inf, (3 * len(RINGS),))
    action_space = Box(-1e6, 1e6, (1,))
    max_episode_steps = 100_000

    def reset(random: Any) -> Any:
        return Division.State(0.0)

    def step(state: Any, action: Any) -> Any:
        return Division.State(action[0]), 0.0, action[0] > 2e6

    def observe(state: Any) -> Any:
        found = []
        for ring in RINGS:
            n = float(ring)
            found += [state.x % n, state.x // n, state.x / n]
        return tuple(found)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_divisions_are_rounded_once(backend: str) -> None:
    values = np.concatenate([np.arange(-3000, 3000), np.arange(-3000, 3000) * 97.0])
    env = operant.make(Division, len(values), backend=backend)
    env.reset(seed=0)
    obs, *_ = env.step(values.astype(np.float32)[:, None])
    for k, ring in enumerate(RINGS):
        np.testing.assert_array_equal(obs[:, 3 * k], np.mod(values, ring))
        np.testing.assert_array_equal(obs[:, 3 * k + 1], values // ring)
        quotient = values.astype(np.float32) / np.float32(ring)
        np.testing.assert_array_equal(obs[:, 3 * k + 2], quotient)


class Edges(operant.Env):
    """Numbers that do not fit, zeros with signs, and NaN."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-np.inf, np.inf, (8,))
    action_space = Box(-np.inf, np.inf, (1,))
    max_episode_steps = 100

    def reset(random: Any) -> Any:
        return Edges.State(0.0)

    def step(state: Any, action: Any) -> Any:
        huge = action[0] * 1e30
        return (
            Edges.State(where(action[0] == 7.0, huge - huge + huge * 1e30 * 0.0, huge)),
            0.0,
            False,
        )

    def observe(state: Any) -> Any:
        x = state.x
        return (
            to_float(to_int(x)),
            1.0 / minimum(x * 0.0, 0.0),
            1.0 / maximum(0.0, x * 0.0),
            1.0 / minimum(-0.0, x * 0.0),
            1.0 / maximum(x * 0.0, -0.0),
            minimum(x, 1.0),
            maximum(1.0, x),
            to_float(to_int(x) // (to_int(x) - to_int(x) - 1)),
        )


def edges(backend: str) -> np.ndarray:
    values = np.array([1.0, -1.0, 0.0, 7.0, 1e-30, -3e-22, 2e-21, 2.0**-70], np.float32)
    env = operant.make(Edges, len(values), backend=backend)
    env.reset(seed=0)
    obs = env.step(values[:, None])[0]
    return np.asarray(obs.cpu() if hasattr(obs, "cpu") else obs)


def test_numbers_that_do_not_fit_and_zeros() -> None:
    reference = edges("reference")
    assert reference[0, 0] == reference[1, 0] == reference[3, 0] == -(2.0**31)
    assert np.isnan(reference[3, 5])
    assert np.isnan(reference[3, 6])
    np.testing.assert_array_equal(edges("cpu").view(np.int32), reference.view(np.int32))


@pytest.mark.usefixtures("interpreter")
def test_numbers_that_do_not_fit_on_triton() -> None:
    with np.errstate(all="ignore"):  # the interpreter computes with NumPy
        found, wanted = edges("cuda"), edges("reference")
    same = (found.view(np.int32) == wanted.view(np.int32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all()


class Ints(operant.Env):
    """Ints of 64 bits that wrap around, and floats of them."""

    class State(Arrays):
        big = int32[1]
        y = float32[12]

    observation_space = Box(-np.inf, np.inf, (12,))
    action_space = Discrete(2)
    max_episode_steps = 100

    def reset(state: Any, random: Any) -> None:
        state.big[0] = BIG

    def step(state: Any, action: Any, random: Any) -> Any:
        a = state.big[0] * 65536 * 3 + action
        least = (state.big[0] + 1) * 4294967296 + action - action
        n = a * 7
        state.y[0] = ((a * a) >> 17) % 1000003
        state.y[1] = (n * n * 4) % 1000
        state.y[2] = to_float(least // (action - 1 - action)) + 0.0
        state.y[3] = abs(least) % 1000
        state.y[4] = -least - 1 - (least + 1)
        state.y[5] = 9007199791611905 + action - action
        state.y[6] = (9007199791611905 + action - action) * 1.0
        state.y[7] = to_float(state.big[0] * 4194304 * 1024 + 536870913)
        total = 17
        for k in range(40):
            total = total * 31 + k
        state.y[8] = total % 1000003
        state.y[9] = least % (action - 1 - action)
        state.y[10] = to_float(9007199791611905 + action - action < 9007200000000000.0)
        state.y[11] = ((a << 40) ^ (n >> 3)) % 1000003
        return 0.0, False

    def observe(state: Any, obs: Any) -> None:
        for k in range(12):
            obs[k] = state.y[k]


def signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def ints(backend: str) -> np.ndarray:
    env = operant.make(Ints, 1, backend=backend)
    env.reset(seed=0)
    obs = env.step(np.zeros(1, np.int64))[0]
    return np.asarray(obs.cpu() if hasattr(obs, "cpu") else obs)[0]


def expected_ints() -> np.ndarray:
    a = BIG * 65536 * 3
    n, least, total = signed(a * 7), -(2**63), 17
    for k in range(40):
        total = signed(total * 31 + k)
    once = np.int64(9007199791611905).astype(np.float32)
    wide = np.int64(signed(BIG * 4194304 * 1024 + 536870913)).astype(np.float32)
    return np.array(
        [
            (signed(a * a) >> 17) % 1000003,
            signed(n * n * 4) % 1000,
            least,
            signed(-least) % 1000,
            signed(-least - 1 - (least + 1)),
            once,
            once,
            wide,
            total % 1000003,
            0,
            once < np.float32(9007200000000000.0),
            (signed(a << 40) ^ (n >> 3)) % 1000003,
        ],
        np.float32,
    )


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_ints_wrap_around(backend: str) -> None:
    np.testing.assert_array_equal(ints(backend), expected_ints())


@pytest.mark.skipif(host_compiler() is None and gpu_count() == 0, reason="needs a C++ compiler")
def test_ints_wrap_around_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu_count() == 0:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    np.testing.assert_array_equal(ints("cuda"), expected_ints())
