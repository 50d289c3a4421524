"""An environment that is refused when its class statement runs."""

from typing import NamedTuple

from gymnasium.spaces import Box, Discrete

import operant


class Branches(operant.Env):
    class State(NamedTuple):
        x: float

    observation_space = Box(-10.0, 10.0, (1,))
    action_space = Discrete(2)

    def reset(random):
        return Branches.State(random[0])

    def step(state, action):
        if state.x > 0.5:
            return Branches.State(state.x - 0.1), 1.0, False
        return Branches.State(state.x + 0.1), 0.0, False

    def observe(state):
        return (state.x,)
