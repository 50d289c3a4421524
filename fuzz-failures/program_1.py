"""Written by tests/fuzz/number_writer.py, seed 0."""

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
    random_numbers = 9
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Box(-2.0, 2.0, (2,))
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = 41.0
        ring: float = 100.0
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
        f0: float
        f1: float
        i0: int

    def reset(random, params):
        return Program.State(tame(floor(random[5] / 100.0)), tame(maximum(-0.0, random[3])), (-to_int(random[3] * 41.0)))

    def step(state, action, random, params):
        x0 = tame(ceil((random[8] + (-1))))
        x1 = clip(randint(random[0], 1000), -20, 30)
        x2 = ((state.f1 - 3) >= sqrt(state.f0))
        x3 = where(logical_not(x2), (0.0 == state.f0), logical_not(x2))
        return Program.State(tame(atan((ceil(random[6]) - minimum(state.f0, 0.0)))), tame(minimum(abs((state.f0 // 55.0)), 0.0)), (randint(random[4], 82) & abs(abs(state.i0)))), tame((maximum(-0.0, state.f1) - minimum(x1, 0))), (random[1] < 0.1) & (~x3)

    def observe(state, params):
        return (tame(minimum(clip(state.f0, -1.5, state.f1), ceil(state.f1))), tame((abs(state.f0) / where((state.f1 < 41.0), state.i0, state.i0))), tame((where((state.f1 < 1e-40), state.f1, state.f0) // (state.f1 + -1e-30))), tame(clip(sqrt(state.f1), -0.0, 0.0)),)
