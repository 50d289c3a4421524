"""What an action does: turns, steps, doors, keys, things that are carried. See `cells`."""

from __future__ import annotations

from typing import Any

from operant.envs.grid.cells import (
    AHEAD_X,
    AHEAD_Y,
    BOX,
    CAN_BE_CARRIED,
    CARRIED,
    CLOSED_DOOR,
    COLOR,
    DIRECTION,
    DROP,
    EMPTY,
    FORWARD,
    GOAL,
    KEY,
    KIND,
    LAVA,
    LEFT,
    LOCKED_DOOR,
    OPEN_DOOR,
    PICKUP,
    RIGHT,
    STEPS,
    TOGGLE,
    WALKED_ON,
    X,
    Y,
    cell_at,
)
from operant.lang import to_float

NOTHING, AT_GOAL, IN_LAVA, PICKED_UP = range(4)
"""What came of an action, as far as a reward may ask."""


def act(state: Any, action: int) -> int:
    """Do what an action says, if it is possible here; what came of it."""
    state.agent[STEPS] += 1
    direction = state.agent[DIRECTION]
    if action == LEFT:
        state.agent[DIRECTION] = (direction + 3) & 3
        return NOTHING
    if action == RIGHT:
        state.agent[DIRECTION] = (direction + 1) & 3
        return NOTHING
    x, y = state.agent[X] + AHEAD_X[direction], state.agent[Y] + AHEAD_Y[direction]
    cell = cell_at(state, x, y)
    kind = cell & KIND
    if action == FORWARD:
        if WALKED_ON[kind] == 0:
            return NOTHING
        state.agent[X], state.agent[Y] = x, y
        return AT_GOAL if kind == GOAL else IN_LAVA if kind == LAVA else NOTHING
    carried = state.agent[CARRIED]
    if action == PICKUP and carried == 0 and CAN_BE_CARRIED[kind] == 1:
        state.agent[CARRIED] = cell
        state.cells[y, x] = EMPTY
        return PICKED_UP
    if action == DROP and carried != 0 and kind == EMPTY:
        state.cells[y, x] = carried
        state.agent[CARRIED] = 0
    elif action == TOGGLE:
        toggle(state, x, y, cell)
    return NOTHING


def toggle(state: Any, x: int, y: int, cell: int) -> None:
    """Open or close a door, unlock it with the key of its colour, break a box, which is empty."""
    kind = cell & KIND
    if kind == LOCKED_DOOR:
        if state.agent[CARRIED] == cell - LOCKED_DOOR + KEY:
            state.cells[y, x] = cell - LOCKED_DOOR + OPEN_DOOR
    elif kind == CLOSED_DOOR:
        state.cells[y, x] = cell - CLOSED_DOOR + OPEN_DOOR
    elif kind == OPEN_DOOR:
        state.cells[y, x] = cell - OPEN_DOOR + CLOSED_DOOR
    elif kind == BOX:
        state.cells[y, x] = EMPTY


def prize(state: Any, limit: int) -> float:
    """What success is worth: 1, less up to 0.9 for the part of the time that it took."""
    part: float = to_float(state.agent[STEPS]) / to_float(limit)
    return 1.0 - 0.9 * part


def colored(kind: int, color: int) -> int:
    """The cell of a thing in a colour."""
    return kind + COLOR * color
