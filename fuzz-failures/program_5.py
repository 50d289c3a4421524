"""Written by tests/fuzz/number_writer.py, seed 2."""

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
    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Discrete(3, start=-1)
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = 41.0
        ring: float = 94.0
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
        f0: float

    def reset(random, params):
        return Program.State(tame(minimum(random[1], 0.0)))

    def step(state, action, random, params):
        x0 = tame(tanh(tame(state.f0)))
        return Program.State(tame((((state.f0 * (-1)) / (random[14] // 1.0)) * to_int((x0 + params.count))))), tame((-(random[14] // 5.0))), (random[10] < 0.1) & where((x0 < params.ring), (x0 < x0), (x0 < params.ring))

    def observe(state, params):
        return (tame(sin(sqrt(state.f0))), tame(minimum((state.f0 + 0), (state.f0 + 0))), tame((log(state.f0) - minimum(state.f0, 0.0))),)
