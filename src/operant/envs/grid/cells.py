"""What lies in a cell of a grid game, and how it is numbered: the vocabulary of the family.

The rules are those of MiniGrid (Chevalier-Boisvert et al., 2023; Apache License 2.0), and so are
the numbers of things, colours, directions and actions.

A game's state has at least these arrays::

    cells = uint8[SIZE, SIZE]  # what lies where: cells[y, x]; y grows downwards
    agent = int32[5]           # X, Y, DIRECTION, CARRIED, STEPS
"""

from __future__ import annotations

from typing import Any

# --- A cell: its kind, and 16 times its colour ---------------------------------------------------
KIND = 15  # the bits of a cell that say what is in it
EMPTY, WALL, FLOOR, OPEN_DOOR, KEY, BALL, BOX, GOAL, LAVA = range(1, 10)
CLOSED_DOOR, LOCKED_DOOR = 11, 12
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
N_COLORS = len(COLORS)
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
COLOR = 16
GREY_WALL = WALL + COLOR * GREY
GREEN_GOAL = GOAL + COLOR * GREEN

# -, empty, wall, floor, open door, key, ball, box, goal, lava, -, closed door, locked door
SEEN_AS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 4, 4, 0, 0, 0)
SEEN_STATE = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0)
SEEN_THROUGH = (1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1)
WALKED_ON = (0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0)
CAN_BE_CARRIED = (0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
"""By kind: the number and the door's state that are observed; whether one sees what is behind,
walks there, picks it up."""

# --- The agent -----------------------------------------------------------------------------------
X, Y, DIRECTION, CARRIED, STEPS = range(5)  # state.agent; CARRIED is a cell, 0: nothing
AHEAD_X = (1, 0, -1, 0)
AHEAD_Y = (0, 1, 0, -1)
"""One step ahead, by direction: right, down, left, up."""

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)


def cell_at(state: Any, x: int, y: int) -> int:
    """What lies at a place; outside of the grid is wall."""
    size = len(state.cells)
    if 0 <= x < size and 0 <= y < size:
        return state.cells[y, x]  # type: ignore[no-any-return]
    return GREY_WALL
