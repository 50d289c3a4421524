"""Written by tests/fuzz/array_writer.py, seed 2."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import operant
from operant import lang
from operant.lang import (
    Arrays, abs, atan, atan2, boolean, ceil, clip, cos, exp, float32, floor, int32, log,
    logical_not, maximum, minimum, sign, sin, sqrt, tan, tanh, to_float, to_int, uint8, where,
)

WEIGHTS = (1.824, 1.791, -1.774, -1.661)
GRID = ((1.342, 0.944, 0.679), (-0.767, 0.424, 0.427))
STEPS = (3, -1, 4, 1, -5, 9, -2)
KINDS = np.array([[1, 2, 3], [250, -7, 0]], np.int16)
SAFE = [True, False, False, True, True]
DEEP = np.arange(12, dtype=np.float64).reshape(2, 3, 2) / 7
BONUS = 0.325
COUNT = 5
STRICT = True


class Way(IntEnum):
    UP = 0
    LEFT = 1
    DOWN = 2


def whole(x):
    if x > -1000000.0 and x < 1000000.0:
        return to_int(x)
    return 7


def tame(x):
    return x if abs(x) < 1e4 else 0.5


def total(row):
    found = 0.0
    for k in range(len(row)):
        found += row[k]
    return found


def inner(block, k):
    row = block[k % 3]
    return row[0] - row[1]


def mixed(x, y):
    if x > y:
        return x * 3 - y
    return x - y * 2


def halves(state, i, x):
    a, b = 0.1, 0.7
    state.f[i] = tame(x * a + b * b * a)
    return b, i > 2


def spend(state, random, x):
    state.h[1] = (state.h[1] + 1) % 7
    return random.uniform(x, 2.0) if random.chance(0.5) else x * BONUS


class Program(operant.Env):
    observation_space = Box(-np.inf, np.inf, (8,), np.float32)
    action_space = Discrete(4)
    max_episode_steps = 20

    class Params(NamedTuple):
        gravity: float = 9.81
        slip: float = 0.3
        count: int = 3
        hard: bool = True
        mode: str = "day"

    class State(Arrays):
        f = float32[6]
        g = float32[3, 4]
        n = int32[5]
        u = uint8[4, 3]
        h = int32[2]
        b = boolean[7]

    def reset(state, random, params):
        for i in range(6):
            state.f[i] = random.uniform(-2.0, 2.0)
        for i in range(3):
            for j in range(4):
                state.g[i, j] = random.normal() * params.gravity
                state.u[j, i] = random.integers(256)
        for i in range(5):
            state.n[i] = random.integers(-100, 100)
        state.h[0] = random.integers(-(2**15), 2**15) * 65536 + random.integers(65536)
        for i in range(7):
            state.b[i] = random.chance(0.5)

    def step(state, action, random, params):
        reward = 0.0
        state.u[random.integers(4), 2] = (((abs(1000003) if (params.hard == state.b[random.integers(7)]) else (params.count - KINDS[0, 1]))) % 256)
        reward -= (COUNT & Way.LEFT)
        state.f[Way.DOWN] -= sign(where(state.b[Way.DOWN], params.gravity, COUNT))
        reward, state.n[random.integers(5)] = exp((GRID[0][Way.DOWN] - (-1e-30))), (3 ^ params.count)
        state.h[0] = (((1 << ((~params.count) & 31))) % 4294967296 - 2147483648)
        state.g[((KINDS[1, 1] & 16777217)) % 3, 2] -= random.uniform()
        state.g[0, 1] = (where(SAFE[random.integers(5)], action, params.count) * (GRID[random.integers(2)][2] * params.gravity))
        reward = exp(BONUS)
        for i in range(6):
            if not abs(state.f[i]) < 1e4 and random.chance(0.5):
                state.f[i] = random.uniform(-3.0, 3.0)
        for i in range(3):
            for j in range(4):
                state.g[i, j] = tame(state.g[i, j])
        return reward, random.chance(0.05)

    def observe(state, obs, params):
        for i in range(6):
            obs[i] = state.f[i]
        obs[6] = (sqrt(abs(state.g[int(params.hard), (min(state.h[(STEPS[2]) % 2], COUNT, 3)) % 4])) if logical_not(True) else cos((-1e-30)))
        obs[7] = (int(state.b[Way.DOWN]) * abs((state.n[1] % 4)))
