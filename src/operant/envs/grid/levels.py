"""What builds a level: walls, and things and the agent on random empty cells."""

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

TRIES = 1000
"""Cells that are drawn until one is empty, as in MiniGrid. In the smallest room one of nine is, and
for the agent one of 18 with a direction: all tries fail with a chance below 1e-24."""


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


def place(
    state: Any, random: Any, thing: int, left: int, top: int, width: int, height: int
) -> None:
    """Put a thing on a random cell of a rectangle that is empty, and not the agent's."""
    for _ in range(TRIES):
        x = left + random.integers(width)
        y = top + random.integers(height)
        at_agent = x == state.agent[X] and y == state.agent[Y]
        if state.cells[y, x] == EMPTY and not at_agent:
            state.cells[y, x] = thing
            return


def place_agent(
    state: Any, random: Any, left: int, top: int, width: int, height: int, facing: bool
) -> None:
    """Put the agent on a random empty cell of a rectangle, looking anywhere; with `facing` so that
    nothing but a wall or an empty cell is in front of it."""
    for _ in range(TRIES):
        x = left + random.integers(width)
        y = top + random.integers(height)
        direction = random.integers(4)
        front = cell_at(state, x + AHEAD_X[direction], y + AHEAD_Y[direction]) & KIND
        nothing = front == EMPTY
        clear = not facing or nothing or front == WALL
        if state.cells[y, x] == EMPTY and clear:
            state.agent[X], state.agent[Y] = x, y
            state.agent[DIRECTION] = direction
            return
