"""Environments whose functions raise on the reference, each for its own reason, in line ``#!``."""

from __future__ import annotations

from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, float32, int32, to_int, uint8


class Sound(operant.Env):
    """The others differ from it in one place."""

    class State(Arrays):
        n = int32[4]
        small = uint8[1]
        x = float32[1]

    observation_space = Box(-100.0, 100.0, (1,))
    action_space = Discrete(2)
    max_episode_steps = 20

    def reset(state, random):
        state.n[0] = random.integers(4)

    def step(state, action):
        state.n[1] += action
        return 1.0, False

    def observe(state, obs):
        obs[0] = state.n[1]

    def render(state, canvas):
        pass


class Outside(Sound):
    def step(state, action):
        state.n[1] += action
        state.n[state.n[1] // 2] += 0  #!
        return 1.0, False


class Always(Sound):
    """In the eighth step, whatever the policy does."""

    def step(state, action):
        state.n[1] += 1
        state.n[state.n[1] // 2] += 0  #!
        return 1.0, False


class Negative(Sound):
    def step(state, action):
        state.n[1] += action
        state.n[3 - state.n[1]] += 0  #!
        return 1.0, False


class ByZero(Sound):
    def step(state, action):
        state.n[1] += action
        state.n[2] = 7 // (15 - state.n[1])  #!
        return 1.0, False


class NoChoice(Sound):
    """Only an agent that insists on action 1 gets there."""

    def step(state, action, random):
        state.n[1] += action
        state.n[2] = random.integers(19 - state.n[1])  #!
        return 1.0, False


class TooLarge(Sound):
    def step(state, action):
        state.n[1] += action
        state.small[0] = 20 * state.n[1]  #!
        return 1.0, False


class ShiftedBack(Sound):
    def step(state, action):
        state.n[1] += action
        state.n[2] = 1 << (17 - state.n[1])  #!
        return 1.0, False


class NotANumber(Sound):
    def step(state, action):
        state.n[1] += action
        if state.n[1] > 16:
            state.n[2] = to_int(state.x[0] / state.x[0])  #!
        return 1.0, False


def share(parts):
    return 100 % parts  #!


class HelperRaises(Sound):
    def step(state, action):
        state.n[1] += action
        state.n[2] = share(16 - state.n[1])
        return 1.0, False


class Endless(Sound):
    def step(state, action):
        while state.n[1] < 10:  #!
            state.n[2] += 1
        return 1.0, False


class CannotDraw(Sound):
    def render(state, canvas):
        raise KeyError("no colour")  #!
