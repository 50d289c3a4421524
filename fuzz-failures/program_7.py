"""Written by tests/fuzz/number_writer.py, seed 3."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.lang import (
    abs, atan, atan2, ceil, clip, cos, exp, floor, log, logical_not, maximum, minimum, normal, pi,
    randint, sign, sin, sqrt, tan, tanh, to_float, to_int, uniform, where,
)


def tame(x):
    return where(abs(x) < 1e6, x, 0.5)


class Program(operant.Env):
    random_numbers = 4
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = MultiDiscrete([3, 4])
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = 0.1
        ring: float = 55.0
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
        f0: float
        i0: int
        i1: int
        b0: bool
        b1: bool

    def reset(random, params):
        return Program.State((abs(floor(random[0] * 64.0))), (to_int(floor(random[3] * 64.0) * 41.0) // 3), (to_int(floor(random[0] * 64.0) * 41.0) << 14), (~(floor(random[0] * 64.0) < floor(random[3] * 64.0))), (floor(random[0] * 64.0) <= 2.0))

    def step(state, action, random, params):
        x0 = (-(state.i1 << 15))
        x1 = (where(state.b0, state.b1, state.b0) & params.hard)
        return Program.State(((((abs(((-state.f0)))) // params.ring)) % 41.0), ((where(state.b1, state.i1, 3) * clip(x0, -20, 30)) - (-(x0 << 11))), ((abs(x0) >> 14) % ((state.i1 & state.i0) >> 23)), logical_not(((state.f0 > state.f0) & where(state.b0, state.b1, state.b0))), (logical_not((~x1)) | ((state.b0 & x1) & params.hard))), (((((state.f0 - state.f0)) % 100.0) % params.ring)), (random[3] < 0.1) & (floor(random[2] * 64.0) > state.f0)

    def observe(state, params):
        return ((where((state.i0 <= params.count), ((state.f0 + 0.0)), ((ceil(state.f0 / 7.0)) % 2.0))), (((sign(state.f0)) * 94.0) % 94.0), (((to_float(state.i0 % 10)) * 55.0) % 55.0), (((sign(state.f0)) // 97.0)),)
