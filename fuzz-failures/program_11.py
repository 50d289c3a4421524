"""Written by tests/fuzz/number_writer.py, seed 5."""

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
    random_numbers = 16
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(5)
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = 9.81
        ring: float = 47.0
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
        f0: float
        f1: float
        f2: float
        i0: int
        b0: bool
        b1: bool

    def reset(random, params):
        return Program.State((to_float(to_int((floor(random[5] * 64.0) * 41.0) / 41.0))), ((floor(random[12] * 64.0) // params.ring)), ((floor(random[10] * 64.0) * 0.0)), (to_int(floor(random[10] * 64.0) * 41.0) << 30), ((floor(random[14] * 64.0) < 41.0) | (floor(random[3] * 64.0) < 1.0)), (to_int(floor(random[9] * 64.0) * 41.0) > 1))

    def step(state, action, random, params):
        return Program.State((to_float(to_int(((((((state.f1 - state.f1)) % 10.0) % params.ring)) * 2.0) / 2.0))), (((((((state.f0 - params.ring)) % 61.0) * 82.0) % 82.0) % params.ring)), (where((((((where((state.f1 % 82.0) == 0.0, state.f1, floor(random[9] * 64.0))) // 83.0)) % 100.0) % 100.0) == 0.0, ((((where((state.f1 % 82.0) == 0.0, state.f1, floor(random[9] * 64.0))) // 83.0)) % 100.0), (ceil((((state.f2 // 1000.0)) % 5.0) / 1000.0)))), ((clip(state.i0, -20, 30) % (state.i0 | state.i0)) // 1000), (~((state.b0 ^ state.b1) & params.hard)), (~logical_not((state.b1 | state.b0)))), (abs(((state.f0 * 1000.0) % 1000.0))), (random[4] < 0.1) & (state.f2 != floor(random[5] * 64.0))

    def observe(state, params):
        return ((clip(((-state.f0)), -7.0, 7.0)), (to_float((state.i0 % 65537) % 94)), (floor((((state.f2 * 0.0)) * 2.0) / 2.0)), (((((state.f2 - 41.0)) % 10.0) % params.ring)),)

    def action_mask(state, params):
        return (state.f0 == state.f0 + 0.0, (state.b1 ^ state.b1), (~state.b0), logical_not(state.b0), (0.0 >= state.f2))
