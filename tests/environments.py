"""Environments that tests of several packages play.

A test imports one relative to itself, ``from ..environments import Walk``, which pytest's
``--import-mode=importlib`` knows how to do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.lang import randint, to_float, where


class Walk(operant.Env):
    """Small integers and quarters: exact in float32, so every backend must agree to the bit."""

    class State(NamedTuple):
        place: int
        energy: float
        lucky: bool

    observation_space = Box(-100.0, 100.0, (3,), np.float32)
    action_space = Discrete(3, start=-1)
    max_episode_steps = 12
    random_numbers = 2

    def reset(random):
        return Walk.State(
            randint(random[0], 5) - 2, 0.25 * to_float(randint(random[1], 8)), random[1] < 0.5
        )

    def step(state, action, random):
        place = state.place + action + where(random[0] < 0.25, 1, 0)
        energy = state.energy + where(state.lucky, 0.5, -0.25)
        after = Walk.State(place, energy, random[1] < 0.5)
        return after, 0.25 * to_float(place) + energy, (place > 3) | (place < -3)

    def observe(state):
        return (to_float(state.place), state.energy, where(state.lucky, 1.0, 0.0))


class Endless(operant.Env):
    """Neither a terminal state nor a time limit; a reward of 1 a step."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-1.0, 1.0, (1,))
    action_space = Discrete(2)

    def reset(random):
        return Endless.State(random[0])

    def step(state, action):
        return state, 1.0, False

    def observe(state):
        return (state.x,)


class Leaky(operant.Env):
    """What it shows is not a number after three steps, or what it pays, as `gift` says."""

    class State(NamedTuple):
        x: float
        steps: int

    class Params(NamedTuple):
        gift: int = 0

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = MultiDiscrete([2])
    max_episode_steps = 100

    def reset(random):
        return Leaky.State(random[0], 0)

    def step(state, action, params):
        bad = where(state.steps == 2, float("nan"), 0.0)
        seen = state.x + where(params.gift == 0, bad, 0.0)
        return Leaky.State(seen, state.steps + 1), where(params.gift == 1, bad, 1.0), False

    def observe(state):
        return state.x, 1.0
