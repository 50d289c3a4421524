"""Environments that `operant check` must refuse, each for its own reason."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.lang import clip, sqrt, uniform, where


class State(NamedTuple):
    x: float


class Good(operant.Env):
    """A walk on a line: the broken ones differ from it in one place."""

    State = State
    observation_space = Box(-10.0, 10.0, (1,))
    action_space = Discrete(2)
    max_episode_steps = 50

    def reset(random):
        return State(uniform(random[0], -1.0, 1.0))

    def step(state, action):
        x = clip(state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), -x * x, x * x > 64.0

    def observe(state):
        return (state.x,)


class NotANumber(Good):
    """The reward is the root of a number that turns negative."""

    def step(state, action):
        x = clip(state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), sqrt(x + 3.0), x * x > 64.0


class OutOfBounds(Good):
    """The observation leaves the declared space."""

    observation_space = Box(-2.0, 2.0, (1,))


class IgnoresActions(Good):
    """Nothing the policy does matters."""

    def step(state):
        x = state.x * 0.99
        return State(x), -x * x, x * x > 64.0


class TwoFaced(Good):
    """Computes something else when it is compiled."""

    def step(state, action):
        scale = 0.5 if isinstance(state.x, np.ndarray) else 0.6
        x = clip(state.x + where(action == 1, scale, -scale), -10.0, 10.0)
        return State(x), -x * x, x * x > 64.0


class KeepsMemory(Good):
    """Remembers the last call: the same seed gives another episode."""

    calls = itertools.count(1)

    def step(state, action):
        calls = next(KeepsMemory.calls) if isinstance(state.x, np.ndarray) else 0
        x = clip(state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), -x * x + 1e-9 * calls, x * x > 64.0


class Masked(Good):
    """Beyond 2, only the way back is allowed."""

    def action_mask(state):
        return (state.x > -2.0, state.x < 2.0)


class NothingAllowed(Good):
    """On the right of 2 there is nothing left to do."""

    def action_mask(state):
        return (state.x < 2.0, state.x < 1.5)


class NothingAllowedAtTheEnd(Good):
    """The last state of an episode allows nothing."""

    def step(state, action):
        x = state.x + where(action == 1, 0.5, -0.5)
        return State(x), -x * x, x * x > 4.0

    def action_mask(state):
        return (state.x * state.x <= 4.0, state.x * state.x <= 4.0)


class NothingForTheSecond(Good):
    """Two components, and the second one is out of choices on the left of -1.5."""

    action_space = MultiDiscrete([2, 3])

    def step(state, action):
        x = clip(state.x + where(action[0] == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), -x * x - 0.1 * action[1], x * x > 64.0

    def action_mask(state):
        return (True, True, state.x > -1.5, state.x > -1.0, state.x > 0.0)


class TwoFacedMask(Good):
    """Allows something else when it is compiled."""

    def action_mask(state):
        return (True, state.x > (0.5 if isinstance(state.x, np.ndarray) else 0.6))
