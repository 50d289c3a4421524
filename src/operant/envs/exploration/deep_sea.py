"""DeepSea-v0: dive across a grid to a treasure that only one sequence of actions reaches.

After Osband et al., "Behaviour Suite for Reinforcement Learning" (2020), whose rules these are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.lang import Arrays, clip, int32
from operant.lang.env import Env
from operant.render.canvas import Canvas

ROW, COLUMN = range(2)  # state.place
_LARGEST = 512
_WORD = (1 << 32) - 1


def mixed(number: int) -> int:
    """A hash of 32 bits; in it every bit of `number` changes about half of the bits."""
    a = number & _WORD
    b = ((a ^ (a >> 16)) * 0x7FEB352D) & _WORD
    c = ((b ^ (b >> 15)) * 0x846CA68B) & _WORD
    return c ^ (c >> 16)


def right_action(row: int, column: int, params: Any) -> int:
    """The action that moves right in a cell: 0 or 1, drawn once for each mapping seed."""
    if not params.randomize_actions:
        return 1
    return mixed(mixed(params.mapping_seed) + row * 65_537 + column) & 1


class DeepSea(Env):
    """Dive from the left edge; a small cost for each move right, 1 in the far corner."""

    class Params(NamedTuple):
        """`size`: rows and columns; `move_cost` is for the whole way, so right costs a part of it;
        `randomize_actions`: which action moves right differs from cell to cell, as `mapping_seed`
        says, and does not change between episodes."""

        size: int = 20
        move_cost: float = 0.01
        randomize_actions: bool = True
        mapping_seed: int = 0

    class State(Arrays):
        """Where the diver is."""

        place = int32[2]

    env_id = "DeepSea-v0"
    action_space = Discrete(2)
    max_episode_steps = 20  # never cuts an episode short: the rules end it in that very step
    reward_threshold = 0.9
    render_size = (500, 500)
    render_fps = 10
    training = {  # plain PPO does not find the treasure: docs/exploration.md
        "env.num_envs": 64,
        "policy.normalize_obs": False,
        "policy.hidden": (256,),
        "ppo.num_steps": 40,
        "ppo.epochs": 4,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 3e-4,
        "ppo.learning_rate_schedule": "constant",
        "ppo.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.05,
        "ppo.normalize_reward": False,
        "run.total_steps": 600_000,
        "intrinsic.kind": "rnd",
        "intrinsic.coef": 1.0,
        "intrinsic.share": 1.0,
    }

    @staticmethod
    def time_limit(params: Params) -> int:
        """A row a step."""
        return params.size

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """One number a cell: 1 where the diver is; all 0 after the last row."""
        size = params.size
        if not 1 <= size <= _LARGEST:
            raise ValueError(f"size of DeepSea must be 1 to {_LARGEST}, got {size}")
        return Box(0.0, 1.0, (size, size), np.float32)

    @staticmethod
    def reset(state: Any) -> None:
        """At the top left."""
        state.place[:] = 0

    @staticmethod
    def step(state: Any, action: int, params: Params) -> tuple[float, bool]:
        """A row down, and a column to the right or to the left."""
        row, column = state.place[ROW], state.place[COLUMN]
        last = params.size - 1
        reward, move = 0.0, -1
        if action == right_action(row, column, params):
            move = 1
            reward = -params.move_cost / params.size
            if column == last:
                reward += 1.0
        state.place[ROW] = row + 1
        state.place[COLUMN] = clip(column + move, 0, last)
        return reward, row == last

    @staticmethod
    def observe(state: Any, obs: Any, params: Params) -> None:
        """One-hot."""
        if state.place[ROW] < params.size:
            obs[state.place[ROW], state.place[COLUMN]] = 1.0

    @staticmethod
    def render(state: Any, canvas: Canvas, params: Params) -> None:
        """The water, deeper and darker; the cells that can be reached, the diver, the treasure."""
        size = params.size
        canvas.fill("navy")
        canvas.view(0.0, size, -1.0, size)
        for row in range(size):
            depth = row / max(1, size - 1)
            water = (round(120 - 90 * depth), round(180 - 110 * depth), round(225 - 95 * depth))
            canvas.rectangle(0.0, size - 1 - row, row + 1, 1.0, water)
        canvas.rectangle(0.0, -1.0, size, 1.0, "#c8a060")
        canvas.rectangle(size - 0.85, -0.8, 0.7, 0.6, "gold")
        x, y = int(state.place[COLUMN]), size - 1 - int(state.place[ROW])
        canvas.circle(x + 0.5, y + 0.5, 0.35, "orange")
