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


class UnknownColour(Good):
    """No colour has this name."""

    def render(state, canvas):
        canvas.circle(state.x, 0.0, 1.0, "redd")


class FloatColour(Good):
    """A colour as other libraries have it."""

    def render(state, canvas):
        canvas.circle(state.x, 0.0, 1.0, (1.0, 0.2, 0.2))


class NoRadius(Good):
    """A circle without its radius."""

    def render(state, canvas):
        canvas.circle(state.x, 0.0, "red")


class DrawsAnotherField(Good):
    """The state has no such field."""

    def render(state, canvas):
        canvas.circle(state.pos, 0.0, 1.0, "red")


class DrawsNothing(Good):
    """Returns its pixels, as environments of Gymnasium do."""

    def render(state, canvas):
        return np.zeros((40, 60, 3))


class DrawsLate(Good):
    """A picture that fails only some steps into the episode."""

    def render(state, canvas):
        canvas.circle(10.0, 10.0, 5.0, "red" if abs(float(state.x)) < 1.5 else "redd")


class Infinite(Good):
    """A reward that is infinite on every backend."""

    def step(state, action):
        x = clip(state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), 1.0 / (x - x), x * x > 64.0


class Long(Good):
    """Its time limit is longer than what is played."""

    max_episode_steps = 3000

    def step(state, action):
        x = clip(0.9 * state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return State(x), -x * x, x > 64.0


class ReturnsTheOldState(Good):
    """Computes a new state and returns the one it was given."""

    max_episode_steps = 5

    def step(state, action):
        x = clip(state.x + where(action == 1, 0.5, -0.5), -10.0, 10.0)
        return state, -x * x, x * x > 64.0


class AsksForThree(Good):
    """A comparison that is never true: there is no action 3."""

    action_space = Discrete(3)

    def step(state, action):
        x = clip(state.x + where(action == 3, 0.5, 0.5 - action), -10.0, 10.0)  #!
        return State(x), -x * x, x * x > 64.0


MANY = 5


class AsksBeyond(Good):
    """A comparison with a constant of the module that no component reaches."""

    action_space = MultiDiscrete([2, 3])

    def step(state, action):
        x = clip(state.x + 0.1 * action[0] - where(action[1] >= MANY, 0.5, 0.1), -10.0, 10.0)  #!
        return State(x), -x * x, x * x > 64.0


class OfSomeSpace(AsksForThree):
    """Inherits rules for more actions than it has: no mistake."""

    action_space = Discrete(2)


class AsksWhatIsAlwaysTrue(Good):
    """Careful, and no mistake."""

    action_space = Discrete(3, start=-1)

    def step(state, action):
        left = (action >= -1) & (action < 0) & (action < 2)
        x = clip(state.x + where(left, -0.5, 0.1 * action), -10.0, 10.0)
        return State(x), -x * x, x * x > 64.0
