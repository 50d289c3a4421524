"""MultiRoom-v0: rooms in a row, a closed door between each two, the goal in the last.

The rules, the levels and the time limits are those of MiniGrid's MultiRoom (Chevalier-Boisvert et
al., 2023; Apache License 2.0), whose N2-S4, N4-S5 and N6 are choices of the parameters here.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.envs.grid.cells import (
    ACTIONS,
    CLOSED_DOOR,
    EMPTY,
    GREEN_GOAL,
    GREY_WALL,
    N_COLORS,
)
from operant.envs.grid.levels import frame_room, place, place_agent
from operant.envs.grid.moves import AT_GOAL, IN_LAVA, act, colored, prize
from operant.envs.grid.scene import draw
from operant.envs.grid.view import HIGHEST, VIEW, observe_view
from operant.lang import Arrays, int32, to_int, uint8
from operant.lang.env import Env
from operant.render.canvas import Canvas

SIZE = 25
SMALLEST_ROOM, LARGEST_ROOM = 4, 10
MOST_ROOMS = 9
ROOM_LEFT, ROOM_TOP, ROOM_WIDTH, ROOM_HEIGHT, DOOR_X, DOOR_Y = range(6)  # state.rooms[k]
EAST, SOUTH, WEST, NORTH = range(4)
TRIES = 8
"""For a room behind another one; then the whole level is begun again."""
ATTEMPTS = 1000
"""At a level. MiniGrid's generator puts six rooms of up to 10 cells down in one attempt of 5, nine
in one of 29 (3000 and 6000 attempts); here a level that fails 1000 times has fewer rooms."""
STEPS_A_ROOM = 20


# --- Where the rooms are -------------------------------------------------------------------------
def random_door(state: Any, random: Any, room: int, wall: int) -> tuple[int, int]:
    """A cell in a wall of a room, but for its corners."""
    left, top = state.rooms[room, ROOM_LEFT], state.rooms[room, ROOM_TOP]
    width, height = state.rooms[room, ROOM_WIDTH], state.rooms[room, ROOM_HEIGHT]
    upright = wall % 2 == 0  # east or west
    along = random.integers(1, (height if upright else width) - 1)
    if upright:
        return left + (width - 1 if wall == EAST else 0), top + along
    return left + along, top + (height - 1 if wall == SOUTH else 0)


def add_room(
    state: Any, random: Any, room: int, wall: int, door_x: int, door_y: int, largest: int
) -> bool:
    """Add room number `room` with its entry, in this wall, at the door; the first one begins there.

    False: it would leave the grid, or meet another one than that before it.
    """
    width = random.integers(SMALLEST_ROOM, largest + 1)
    height = random.integers(SMALLEST_ROOM, largest + 1)
    left, top = door_x, door_y
    if room > 0:
        upright = wall % 2 == 0  # east or west
        before = random.integers(1, (height if upright else width) - 1)  # the door's place in it
        if upright:
            left, top = door_x - (width - 1 if wall == EAST else 0), door_y - before
        else:
            left, top = door_x - before, door_y - (height - 1 if wall == SOUTH else 0)
    if left < 0 or top < 0 or left + width > SIZE or top + height >= SIZE:
        return False
    for other in range(room - 1):
        right = state.rooms[other, ROOM_LEFT] + state.rooms[other, ROOM_WIDTH]
        bottom = state.rooms[other, ROOM_TOP] + state.rooms[other, ROOM_HEIGHT]
        beside = left + width < state.rooms[other, ROOM_LEFT] or right <= left
        if not (beside or top + height < state.rooms[other, ROOM_TOP] or bottom <= top):
            return False
    state.rooms[room, ROOM_LEFT], state.rooms[room, ROOM_TOP] = left, top
    state.rooms[room, ROOM_WIDTH], state.rooms[room, ROOM_HEIGHT] = width, height
    state.rooms[room, DOOR_X], state.rooms[room, DOOR_Y] = door_x, door_y
    return True


def lay_rooms(state: Any, random: Any, wanted: int, largest: int) -> int:
    """Begin a room anywhere and add others, each behind the one before; how many there are."""
    entry = WEST
    for room in range(wanted):
        added = False
        for _ in range(TRIES):
            wall, x, y = WEST, 0, 0
            if room == 0:
                x, y = random.integers(SIZE - 2), random.integers(SIZE - 2)
            else:
                other = random.integers(3)
                leave = other + to_int(other >= entry)  # any wall but that of the entry
                x, y = random_door(state, random, room - 1, leave)
                wall = (leave + 2) % 4
            if add_room(state, random, room, wall, x, y, largest):
                entry = wall
                added = True
                break
        if not added:
            return room
    return wanted


def build(state: Any, random: Any, count: int) -> None:
    """Walls, doors of which no two in a row have one colour, the agent, the goal."""
    last_color = N_COLORS
    for room in range(count):
        left, top = state.rooms[room, ROOM_LEFT], state.rooms[room, ROOM_TOP]
        width, height = state.rooms[room, ROOM_WIDTH], state.rooms[room, ROOM_HEIGHT]
        frame_room(state, left, top, width, height, GREY_WALL)
        if room > 0:
            choices = N_COLORS - to_int(room > 1)
            color = random.integers(choices)
            color += to_int(color >= last_color)
            last_color = color
            door = colored(CLOSED_DOOR, color)
            state.cells[state.rooms[room, DOOR_Y], state.rooms[room, DOOR_X]] = door
    first = state.rooms[0]
    last = state.rooms[count - 1]
    place_agent(state, random, first[0], first[1], first[2], first[3], False)
    place(state, random, GREEN_GOAL, last[0], last[1], last[2], last[3])


class MultiRoom(Env):
    """Go through the rooms to the green square; 1 there, less up to 0.9 for the time it took."""

    class Params(NamedTuple):
        """How many rooms a level has, and their largest width and height, walls included.

        MiniGrid's N2-S4 is 2, 2, 4; N4-S5 4, 4, 5; N6 6, 6, 10.
        """

        min_rooms: int = 4
        max_rooms: int = 4
        max_room_size: int = 5

    class State(Arrays):
        """The names of the elements are in `cells` and above."""

        cells = uint8[SIZE, SIZE]
        agent = int32[5]
        rooms = uint8[MOST_ROOMS, 6]

    env_id = "MultiRoom-v0"
    action_space = Discrete(len(ACTIONS))
    max_episode_steps = 80
    reward_threshold = 0.6
    render_size = (600, 600)
    render_fps = 10
    training = {  # plain PPO needs luck to get there: docs/exploration.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 128,
        "ppo.epochs": 4,
        "ppo.minibatches": 8,
        "ppo.learning_rate": 1e-3,
        "ppo.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.01,
        "run.total_steps": 4_000_000,
        "intrinsic.kind": "count",
        "intrinsic.coef": 0.005,
        "intrinsic.coef_schedule": "linear",
        "intrinsic.count_form": "first",
    }

    @staticmethod
    def time_limit(params: Params) -> int:
        """20 steps a room."""
        return STEPS_A_ROOM * params.max_rooms

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """The view, ``[column, row, (thing, colour, door)]``: whole numbers, as floats."""
        least, most, size = params
        if not 1 <= least <= most <= MOST_ROOMS or not SMALLEST_ROOM <= size <= LARGEST_ROOM:
            raise ValueError(
                f"MultiRoom has 1 to {MOST_ROOMS} rooms, min_rooms no more than max_rooms, and "
                f"max_room_size from {SMALLEST_ROOM} to {LARGEST_ROOM}; got {params}"
            )
        return Box(0.0, HIGHEST, (VIEW, VIEW, 3), np.float32)

    @staticmethod
    def reset(state: Any, random: Any, params: Params) -> None:
        """A new level."""
        wanted = random.integers(params.min_rooms, params.max_rooms + 1)
        count = 0
        for _ in range(ATTEMPTS):
            count = lay_rooms(state, random, wanted, params.max_room_size)
            if count == wanted:
                break
        for room in range(count, MOST_ROOMS):
            for k in range(6):
                state.rooms[room, k] = 0  # of an attempt that failed
        state.cells[:] = EMPTY
        build(state, random, count)

    @staticmethod
    def step(state: Any, action: int, params: Params) -> tuple[float, bool]:
        """Over at the goal."""
        came = act(state, action)
        if came == AT_GOAL:
            return prize(state, STEPS_A_ROOM * params.max_rooms), True
        return 0.0, came == IN_LAVA  # of which no level has any

    @staticmethod
    def observe(state: Any, obs: Any) -> None:
        """What the agent sees."""
        observe_view(state, obs)

    @staticmethod
    def render(state: Any, canvas: Canvas) -> None:
        """The whole level; what the agent sees is lighter."""
        draw(state, canvas, SIZE, SIZE)
