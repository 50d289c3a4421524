from typing import NamedTuple

from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import minimum, uniform, where


class Lander(operant.Env):
    class State(NamedTuple):
        height: float
        speed: float

    observation_space = Box(float("-inf"), float("inf"), (2,))
    action_space = Discrete(2)
    max_episode_steps = 400

    def reset(random):
        return Lander.State(uniform(random[0], 20.0, 40.0), uniform(random[1], -4.0, 0.0))

    def step(state, action, random):
        gust = uniform(random[0], -0.5, 0.5)
        speed = state.speed + 0.1 * (where(action == 1, 4.0, 0.0) - 1.6 + gust)
        height = state.height + 0.1 * speed
        landing = 10.0 + 2.0 * minimum(speed + 1.0, 0.0)  # the harder, the worse
        reward = where(height > 0.0, -0.02, landing)
        return Lander.State(height, speed), reward, height <= 0.0

    def observe(state):
        return state
