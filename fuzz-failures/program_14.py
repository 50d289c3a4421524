"""Written by tests/fuzz/array_writer.py, seed 14."""

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

WEIGHTS = (-1.573, 0.810, 0.608, 1.761)
GRID = ((-0.916, -0.977, 0.936), (0.634, -0.788, 0.737))
STEPS = (3, -1, 4, 1, -5, 9, -2)
KINDS = np.array([[1, 2, 3], [250, -7, 0]], np.int16)
SAFE = [True, False, False, True, True]
DEEP = np.arange(12, dtype=np.float64).reshape(2, 3, 2) / 7
BONUS = -0.413
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
        if ((state.b[((~COUNT)) % 7] if STRICT else state.b[((~COUNT)) % 7]) & bool(state.f[Way.DOWN])):
            i0 = (KINDS[0, 1] % 10)
            i0 = (((random.integers(-4, COUNT) % (((Way.LEFT << 3) // ((KINDS[1, 1] // 7) | 1)) | 1))) % 2000001 - 1000000)
            reward = ((STEPS[0] // 7) / (GRID[((16777217 & (-8))) % 2][Way.DOWN] / WEIGHTS[1]))
        else:
            f1 = random.normal()
            for k0 in range(1, 3):
                state.u[1, Way.DOWN] %= (((action >> (KINDS[1, 1] & 63))) % 255 + 1)
        state.n[Way.DOWN] = (random.integers(-4, COUNT) | (params.count << 2))
        w3 = 0
        while w3 < 4 and (where(state.b[((params.count % (action | 1))) % 7], state.b[4], state.b[((params.count % (action | 1))) % 7]) != logical_not(params.hard)):
            w3 += 1
            reward -= sqrt(exp(params.gravity))
            for k0 in range(2):
                row0 = state.g[random.integers(3)]
                row0[random.integers(4)] = atan(inner(DEEP[0], KINDS[k0, 1]))
                reward *= (STEPS[Way.DOWN] << 2)
                state.f[k0], state.f[Way.DOWN] = state.f[Way.DOWN], state.f[k0]
        if (to_float(STEPS[random.integers(7)]) > (params.slip * KINDS[1, 1])):
            reward /= (7 // 7)
        state.h[0] = (mixed(COUNT, Way.LEFT) | random.integers(9))
        state.h[0] = (abs(action) | abs(STEPS[((-7)) % 7]))
        state.g[Way.DOWN][random.integers(4)] = random.uniform((WEIGHTS[random.integers(4)] + state.g[random.integers(3), ((COUNT // -2)) % 4]))
        reward = random.uniform(reward)
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
        obs[6] = tame((len(STEPS) / (3.3)))
        obs[7] = (1 << (where(state.b[((100 >> (KINDS[1, 1] & 63))) % 7], params.count, params.count) & 31))
