"""What builds a level: walls, and things and the agent on random empty cells.

Where MiniGrid draws cells until one is empty, these count the empty ones and draw once. The chances
are the same, and nothing goes on for ever.
"""

from __future__ import annotations

from typing import Any

from operant.envs.grid.cells import (
    AHEAD_X,
    AHEAD_Y,
    DIRECTION,
    EMPTY,
    KIND,
    WALL,
    X,
    Y,
    cell_at,
)


def fill_room(state: Any, left: int, top: int, width: int, height: int, cell: int) -> None:
    """Put `cell` on the inside of a room: its rectangle without the walls."""
    for y in range(top + 1, top + height - 1):
        for x in range(left + 1, left + width - 1):
            state.cells[y, x] = cell


def frame_room(state: Any, left: int, top: int, width: int, height: int, cell: int) -> None:
    """Put `cell` along the edges of a rectangle."""
    for x in range(left, left + width):
        state.cells[top, x] = cell
        state.cells[top + height - 1, x] = cell
    for y in range(top, top + height):
        state.cells[y, left] = cell
        state.cells[y, left + width - 1] = cell


def is_free(state: Any, x: int, y: int) -> bool:
    """Whether a thing can lie there: on an empty cell, and not where the agent is."""
    at_agent = x == state.agent[X] and y == state.agent[Y]
    return state.cells[y, x] == EMPTY and not at_agent


def place(
    state: Any, random: Any, thing: int, left: int, top: int, width: int, height: int
) -> None:
    """Put a thing on a random free cell of a rectangle, which has one."""
    free = 0
    for y in range(top, top + height):
        for x in range(left, left + width):
            if is_free(state, x, y):
                free += 1
    before = random.integers(free)
    for y in range(top, top + height):
        for x in range(left, left + width):
            if is_free(state, x, y):
                if before == 0:
                    state.cells[y, x] = thing
                    return
                before -= 1


def can_start(state: Any, x: int, y: int, direction: int, facing: bool) -> bool:
    """Whether the agent may begin on a cell: it is empty, and with `facing` nothing but a wall or
    an empty cell is in front of it."""
    if state.cells[y, x] != EMPTY:
        return False
    front = cell_at(state, x + AHEAD_X[direction], y + AHEAD_Y[direction]) & KIND
    return not facing or front == EMPTY or front == WALL


def place_agent(
    state: Any, random: Any, left: int, top: int, width: int, height: int, facing: bool
) -> None:
    """Put the agent on a random empty cell of a rectangle, looking anywhere; see `can_start`."""
    starts = 0
    for y in range(top, top + height):
        for x in range(left, left + width):
            for direction in range(4):
                if can_start(state, x, y, direction, facing):
                    starts += 1
    before = random.integers(starts)
    for y in range(top, top + height):
        for x in range(left, left + width):
            for direction in range(4):
                if can_start(state, x, y, direction, facing):
                    if before == 0:
                        state.agent[X], state.agent[Y] = x, y
                        state.agent[DIRECTION] = direction
                        return
                    before -= 1
