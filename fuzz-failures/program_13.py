"""Written by tests/fuzz/number_writer.py, seed 6."""

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
    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(5)
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = 9.81
        ring: float = 100.0
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
        f0: float
        f1: float
        f2: float
        b0: bool

    def reset(random, params):
        return Program.State(tame(exp(random[5])), tame((random[7] - 0)), tame(abs(random[8])), (~(random[7] < random[1])))

    def step(state, action, random, params):
        return Program.State(tame(log(tan(tame(state.f2)))), tame(ceil((sign(state.f2) * to_int(state.f2)))), tame((clip((state.f1 + params.ring), -1.5, cos(state.f2)) - atan2(to_float(action), (random[3] / params.count)))), (logical_not((1e-40 > state.f1)) | ((state.f0 != action) ^ (~state.b0)))), tame(uniform(random[7], (state.f0 / -1e-30), 2.0)), (random[3] < 0.1) & (state.b0 & params.hard)

    def observe(state, params):
        return (tame(atan2(clip(state.f2, -0.0, 0.0), tan(state.f0))),)
