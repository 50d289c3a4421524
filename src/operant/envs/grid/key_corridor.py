"""KeyCorridor-v0: a corridor between rooms, a ball behind a locked door, its key in another room.

The rules, the levels and the time limits are those of MiniGrid's KeyCorridor (Chevalier-Boisvert et
al., 2023; Apache License 2.0), whose S3R1 to S6R3 are choices of the parameters here.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.envs.grid.cells import (
    ACTIONS,
    BALL,
    BOX,
    CARRIED,
    CLOSED_DOOR,
    EMPTY,
    GREY_WALL,
    KEY,
    KIND,
    LOCKED_DOOR,
    N_COLORS,
    X,
)
from operant.envs.grid.levels import fill_room, place, place_agent
from operant.envs.grid.moves import PICKED_UP, act, colored, prize
from operant.envs.grid.scene import draw
from operant.envs.grid.view import HIGHEST, VIEW, observe_view
from operant.lang import Arrays, int32, uint8
from operant.lang.env import Env
from operant.render.canvas import Canvas

SIZE = 16
"""Cells of S6R3."""
COLUMNS = 3
LEFT_ROOMS, CORRIDOR, RIGHT_ROOMS = range(COLUMNS)
STEPS_A_CELL = 30
ATTEMPTS = 5000
"""Walls that are drawn for a door. A door that can join two rooms is one draw in 60 or more; that
one is not found in 5000 has a chance below 1e-36."""


# --- Which rooms have a way to each other: a bit for each wall between two ------------------------
def wall_east(column: int, row: int) -> int:
    """The number of the wall between a room and its neighbour on the right."""
    return 2 * row + column


def wall_south(column: int, row: int, rows: int) -> int:
    """The number of the wall between a room and the one below."""
    return 2 * rows + COLUMNS * row + column


def joined(ways: int, rows: int) -> bool:
    """Whether every room can be reached from the corridor through walls with a way."""
    reached = 1 << CORRIDOR
    for _ in range(COLUMNS * rows):
        for row in range(rows):
            for column in range(COLUMNS):
                here = 1 << (COLUMNS * row + column)
                if column < COLUMNS - 1 and (ways >> wall_east(column, row)) & 1 == 1:
                    both = here | (here << 1)
                    if reached & both != 0:
                        reached |= both
                if row < rows - 1 and (ways >> wall_south(column, row, rows)) & 1 == 1:
                    both = here | (here << COLUMNS)
                    if reached & both != 0:
                        reached |= both
    return reached == (1 << (COLUMNS * rows)) - 1


def add_doors(state: Any, random: Any, size: int, rows: int, locked: int, open_ways: int) -> None:
    """Doors in random walls until every room can be reached; none more into the locked room."""
    ways = open_ways
    for _ in range(ATTEMPTS):
        column, row = random.integers(COLUMNS), random.integers(rows)
        side = random.integers(4)  # east, south, west, north: the last two are of the neighbour
        if side == 2:
            column -= 1
        elif side == 3:
            row -= 1
        east = side % 2 == 0
        inside = column >= 0 and row >= 0
        if east:
            inside = inside and column < COLUMNS - 1
        else:
            inside = inside and row < rows - 1
        wall = wall_east(column, row) if east else wall_south(column, row, rows)
        near_locked = row == locked and (
            column == RIGHT_ROOMS or (east and column == RIGHT_ROOMS - 1)
        )
        below_locked = not east and column == RIGHT_ROOMS and row == locked - 1
        if inside and not near_locked and not below_locked and (ways >> wall) & 1 == 0:
            offset = 1 + random.integers(size - 2)
            color = random.integers(N_COLORS)
            x, y = column * (size - 1), row * (size - 1)
            if east:
                state.cells[y + offset, x + size - 1] = colored(CLOSED_DOOR, color)
            else:
                state.cells[y + size - 1, x + offset] = colored(CLOSED_DOOR, color)
            ways |= 1 << wall
            if joined(ways, rows):
                return


def build(state: Any, random: Any, size: int, rows: int, target: int) -> None:
    """Rooms, the corridor, the locked door, what is behind it, the key, the agent, the doors."""
    span = size - 1
    state.cells[:] = GREY_WALL
    state.agent[X] = -1  # nowhere yet
    for row in range(rows):
        for column in range(COLUMNS):
            fill_room(state, column * span, row * span, size, size, EMPTY)
    ways = 0
    for row in range(rows - 1):
        ways |= 1 << wall_south(CORRIDOR, row, rows)
        for k in range(1, span):
            state.cells[(row + 1) * span, span + k] = EMPTY
    locked = random.integers(rows)
    color = random.integers(N_COLORS)
    door_y = locked * span + 1 + random.integers(size - 2)
    state.cells[door_y, 2 * span] = colored(LOCKED_DOOR, color)
    ways |= 1 << wall_east(CORRIDOR, locked)
    thing = colored(target, random.integers(N_COLORS))
    place(state, random, thing, 2 * span, locked * span, size, size)
    place(state, random, colored(KEY, color), 0, random.integers(rows) * span, size, size)
    place_agent(state, random, span, rows // 2 * span, size, size, True)
    add_doors(state, random, size, rows, locked, ways)


def kind_of(params: Any) -> int:
    """What has to be picked up."""
    return BALL if params.obj_type == "ball" else BOX


class KeyCorridor(Env):
    """Find the key, unlock the door, pick up the ball; 1, less up to 0.9 for the time it took."""

    class Params(NamedTuple):
        """Cells along a room's side, walls included; rows of rooms; "ball" or "box".

        MiniGrid's S3R1, S3R2 and so on are these two numbers.
        """

        room_size: int = 3
        rows: int = 2
        obj_type: str = "ball"

    class State(Arrays):
        """The names of the elements are in `cells`."""

        cells = uint8[SIZE, SIZE]
        agent = int32[5]

    env_id = "KeyCorridor-v0"
    action_space = Discrete(len(ACTIONS))
    max_episode_steps = 270
    reward_threshold = 0.8
    render_size = (600, 400)
    render_fps = 10
    training = {
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 128,
        "ppo.epochs": 4,
        "ppo.minibatches": 8,
        "ppo.learning_rate": 1e-3,
        "ppo.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.01,
        "run.total_steps": 2_000_000,
        "intrinsic.kind": "count",
        "intrinsic.coef": 0.005,
        "intrinsic.coef_schedule": "linear",
        "intrinsic.count_form": "first",
    }

    @staticmethod
    def time_limit(params: Params) -> int:
        """30 steps for each cell of a room."""
        return STEPS_A_CELL * params.room_size * params.room_size

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """The view, ``[column, row, (thing, colour, door)]``: whole numbers, as floats."""
        size, rows, target = params
        fits = size >= 3 and rows >= 1 and (size - 1) * max(rows, COLUMNS) < SIZE
        if not fits or target not in ("ball", "box"):
            raise ValueError(
                f"KeyCorridor has rooms of 3 cells or more, a row or more of them, at most {SIZE} "
                f"cells along a side in all, and obj_type is 'ball' or 'box'; got {params}"
            )
        return Box(0.0, HIGHEST, (VIEW, VIEW, 3), np.float32)

    @staticmethod
    def reset(state: Any, random: Any, params: Params) -> None:
        """A new level."""
        build(state, random, params.room_size, params.rows, kind_of(params))

    @staticmethod
    def step(state: Any, action: int, params: Params) -> tuple[float, bool]:
        """Over when the ball, or the box, has been picked up."""
        if act(state, action) == PICKED_UP and state.agent[CARRIED] & KIND == kind_of(params):
            return prize(state, STEPS_A_CELL * params.room_size * params.room_size), True
        return 0.0, False

    @staticmethod
    def observe(state: Any, obs: Any) -> None:
        """What the agent sees."""
        observe_view(state, obs)

    @staticmethod
    def render(state: Any, canvas: Canvas, params: Params) -> None:
        """The whole level; what the agent sees is lighter."""
        span = params.room_size - 1
        draw(state, canvas, COLUMNS * span + 1, params.rows * span + 1)
