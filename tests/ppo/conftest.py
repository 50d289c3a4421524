"""Small tasks for the fused engine: every kind of observation with every kind of action.

Each ends by itself now and then, and otherwise by a short time limit, so that a short rollout has
episodes of both kinds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

import operant
from operant.lang import abs, clip, floor, to_int, where


class Point(NamedTuple):
    x: float
    y: float


def moved(state: Any, push: Any, random: Any) -> tuple[Any, Any, Any]:
    """Push a point about; it falls off beyond 0.7."""
    x = 0.9 * state.x + 0.4 * push + 0.2 * (random[0] - 0.5)
    y = 0.5 * state.y + x * push + 0.1 * random[1]
    return Point(x, y), 1.0 - x * x + 0.3 * y, abs(x) > 0.7


class Task:
    """What all have in common."""

    State = Point
    max_episode_steps = 7

    def reset(random: Any) -> Any:
        return Point(random[0] - 0.5, random[1])


class Turns(Task, operant.Env):
    """Box, Discrete."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(3)

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, where(action == 0, -0.7, where(action == 1, 0.1, 0.6)), random)

    def observe(state: Any) -> Any:
        return state.x, state.y


class Doors(Task, operant.Env):
    """Discrete, Discrete; neither is numbered from 0."""

    observation_space = Discrete(5, start=-2)
    action_space = Discrete(4, start=2)

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, 0.4 * (action - 3.5), random)

    def observe(state: Any) -> Any:
        return to_int(clip(floor(2.5 * state.x + 0.5), -2.0, 2.0))


class Knobs(Task, operant.Env):
    """MultiDiscrete, MultiDiscrete; neither is numbered from 0."""

    observation_space = MultiDiscrete([3, 4], start=[1, -1])
    action_space = MultiDiscrete([2, 3], start=[1, -1])

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, 0.5 * (action[0] - 1.5) + 0.3 * action[1], random)

    def observe(state: Any) -> Any:
        return (
            to_int(clip(floor(2.0 * state.x + 2.0), 1.0, 3.0)),
            to_int(clip(floor(3.0 * state.y), -1.0, 2.0)),
        )


class Switches(Task, operant.Env):
    """Box of two dimensions, MultiBinary."""

    observation_space = Box(-np.inf, np.inf, (2, 3))
    action_space = MultiBinary(3)

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, 0.6 * action[0] - 0.5 * action[1] + 0.1 * action[2], random)

    def observe(state: Any) -> Any:
        x, y = state.x, state.y
        return x, y, x * y, 1.0, x - y, 2.0 * x


class Push(Task, operant.Env):
    """Box of no dimensions, Box of one component."""

    observation_space = Box(-np.inf, np.inf, ())
    action_space = Box(-1.0, 1.0, (1,))

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, action[0], random)

    def observe(state: Any) -> Any:
        return state.x


class Arm(Task, operant.Env):
    """Box, Box of three components, one of which has no bounds."""

    observation_space = Box(-np.inf, np.inf, (5,))
    action_space = Box(
        np.array([-1.0, -0.5, -np.inf], np.float32), np.array([1.0, 0.25, np.inf], np.float32)
    )

    def step(state: Any, action: Any, random: Any) -> Any:
        return moved(state, 0.5 * action[0] + action[1] - 0.1 * action[2], random)

    def observe(state: Any) -> Any:
        x, y = state.x, state.y
        return x, y, x * x, x + y, -1.0


TASKS = {task.__name__: task for task in (Turns, Doors, Knobs, Switches, Push, Arm)}


@pytest.fixture(scope="session")
def tasks() -> dict[str, type[operant.Env]]:
    """The tasks by name."""
    return TASKS
