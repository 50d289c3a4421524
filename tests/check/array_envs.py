"""Environments over arrays whose actions and observations are to be looked at."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, float32


class Move(IntEnum):
    LEFT, RIGHT, JUMP = range(3)


class Good(operant.Env):
    class State(Arrays):
        x = float32[1]

    observation_space = Box(-10.0, 10.0, (2, 3))
    action_space = Discrete(2)
    max_episode_steps = 20

    def reset(state, random):
        state.x[0] = random.uniform(-1.0, 1.0)

    def step(state, action):
        state.x[0] += 0.1 if action == Move.RIGHT else -0.1
        return -state.x[0], state.x[0] > 2.0

    def observe(state, obs):
        for k in range(3):
            obs[0, k] = state.x[0]
            obs[1, k] += state.x[0]


class Jumps(Good):
    action_space = Discrete(2)

    def step(state, action):
        if action == Move.JUMP:  #!
            state.x[0] = 0.0
        state.x[0] += 0.1 if action == 1 else -0.1
        return -state.x[0], state.x[0] > 2.0


class LacksOne(Good):
    def observe(state, obs):  #!
        for k in range(3):
            obs[0, k] = state.x[0]
        for k in range(1, 3):
            obs[1, k] = 1.0


class WritesSomewhere(Good):
    def observe(state, obs):
        obs[0 if state.x[0] > 0.0 else 1, 0 if state.x[0] < 0.5 else 2] = 1.0


def fill(row):
    for k in range(2):
        row[k] = 1.0


class WritesRows(Good):
    def observe(state, obs):
        fill(obs[0])


class Shows(Good):
    """What is written depends on a parameter that is a constant of the code."""

    class Params(NamedTuple):
        detailed: bool = False

    def observe(state, obs, params):
        obs[0, 0] = state.x[0]
        if params.detailed:
            obs[1][:] = 1.0
