"""The picture of a grid game: the whole level, with what the agent sees in lighter cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.envs.grid.cells import (
    AHEAD_X,
    AHEAD_Y,
    BALL,
    BOX,
    CARRIED,
    CLOSED_DOOR,
    COLOR,
    COLORS,
    DIRECTION,
    EMPTY,
    FLOOR,
    GOAL,
    KEY,
    KIND,
    LAVA,
    LOCKED_DOOR,
    OPEN_DOOR,
    WALL,
    X,
    Y,
)
from operant.envs.grid.view import REACH, VIEW, observe_view
from operant.render.canvas import Canvas

_DARK, _LIT, _LINE = "#1d2430", "#3a4558", "#2b3444"
_WALL, _LIT_WALL = "#6b7482", "#8a94a4"
_NAMES = {"grey": "silver", "yellow": "yellow"}


def draw(state: Any, canvas: Canvas, width: int, height: int) -> None:
    """Draw the first `width` columns and `height` rows of a level in the middle of the canvas."""
    cell = min(canvas.width / width, canvas.height / height)
    wide, high = canvas.width / cell, canvas.height / cell  # in cells
    left, top = (wide - width) / 2, (high - height) / 2
    canvas.fill("ink")
    canvas.view(-left, wide - left, -top, high - top)
    seen = _seen(state)
    for row in range(height):
        for column in range(width):
            lit = (column, row) in seen
            _draw_cell(canvas, int(state.cells[row, column]), column, height - 1 - row, lit)
    _draw_agent(state, canvas, height)


def _seen(state: Any) -> set[tuple[int, int]]:
    """The cells that the agent sees, as (x, y)."""
    obs = np.zeros((VIEW, VIEW, 3), np.float32)
    observe_view(state, obs)
    direction = int(state.agent[DIRECTION])
    ahead_x, ahead_y = AHEAD_X[direction], AHEAD_Y[direction]
    x, y = int(state.agent[X]), int(state.agent[Y])
    found = set()
    for k, j in zip(*obs[:, :, 0].nonzero(), strict=True):
        ahead, right = VIEW - 1 - int(j), int(k) - REACH
        found.add((x + ahead_x * ahead - ahead_y * right, y + ahead_y * ahead + ahead_x * right))
    return found


def _draw_cell(canvas: Canvas, cell: int, x: float, y: float, lit: bool) -> None:
    """One cell, whose lower left corner is (x, y)."""
    kind, color = cell & KIND, _color(cell)
    if kind == WALL:
        canvas.rectangle(x, y, 1.0, 1.0, _LIT_WALL if lit else _WALL)
        return
    canvas.rectangle(x, y, 1.0, 1.0, _LINE)
    canvas.rectangle(x + 0.02, y + 0.02, 0.96, 0.96, _LIT if lit else _DARK)
    if kind in (GOAL, FLOOR, LAVA):
        canvas.rectangle(x + 0.02, y + 0.02, 0.96, 0.96, "orange" if kind == LAVA else color)
    elif kind in (OPEN_DOOR, CLOSED_DOOR, LOCKED_DOOR):
        _draw_door(canvas, kind, color, x, y)
    elif kind != EMPTY:
        _draw_thing(canvas, cell, x, y, 1.0)


def _draw_door(canvas: Canvas, kind: int, color: str, x: float, y: float) -> None:
    """Open: its edge alone; closed with a handle, locked with a keyhole."""
    if kind == OPEN_DOOR:
        canvas.rectangle(x + 0.86, y + 0.04, 0.1, 0.92, color)
        return
    canvas.rectangle(x + 0.04, y + 0.04, 0.92, 0.92, color)
    canvas.rectangle(x + 0.12, y + 0.12, 0.76, 0.76, "ink")
    if kind == CLOSED_DOOR:
        canvas.rectangle(x + 0.18, y + 0.18, 0.64, 0.64, color)
        canvas.circle(x + 0.7, y + 0.5, 0.07, "ink")
    else:
        canvas.circle(x + 0.5, y + 0.58, 0.13, color)
        canvas.rectangle(x + 0.45, y + 0.25, 0.1, 0.3, color)


def _draw_thing(canvas: Canvas, cell: int, x: float, y: float, size: float) -> None:
    """A key, a ball or a box in a square."""
    kind, color = cell & KIND, _color(cell)
    if kind == KEY:
        canvas.rectangle(x + 0.46 * size, y + 0.14 * size, 0.1 * size, 0.5 * size, color)
        for tooth in (0.16, 0.32):
            canvas.rectangle(x + 0.54 * size, y + tooth * size, 0.18 * size, 0.08 * size, color)
        canvas.circle(x + 0.51 * size, y + 0.7 * size, 0.18 * size, color)
        canvas.circle(x + 0.51 * size, y + 0.7 * size, 0.08 * size, "ink")
    elif kind == BALL:
        canvas.circle(x + 0.5 * size, y + 0.5 * size, 0.31 * size, color)
    elif kind == BOX:
        canvas.rectangle(x + 0.15 * size, y + 0.15 * size, 0.7 * size, 0.7 * size, color)
        canvas.rectangle(x + 0.22 * size, y + 0.22 * size, 0.56 * size, 0.24 * size, "ink")
        canvas.rectangle(x + 0.22 * size, y + 0.54 * size, 0.56 * size, 0.24 * size, "ink")


def _draw_agent(state: Any, canvas: Canvas, height: int) -> None:
    """A triangle that points where the agent looks, with what it carries on it."""
    direction = int(state.agent[DIRECTION])
    ahead_x, ahead_y = AHEAD_X[direction], -AHEAD_Y[direction]  # y is up in the picture
    x, y = int(state.agent[X]) + 0.5, height - 0.5 - int(state.agent[Y])
    corners = ((0.38, 0.0), (-0.34, 0.32), (-0.34, -0.32))
    outline = [
        (x + ahead_x * along - ahead_y * side, y + ahead_y * along + ahead_x * side)
        for along, side in corners
    ]
    canvas.polygon(outline, "crimson")
    if state.agent[CARRIED] != 0:
        _draw_thing(canvas, int(state.agent[CARRIED]), x - 0.25, y - 0.25, 0.5)


def _color(cell: int) -> str:
    """The name of a cell's colour for the canvas."""
    name = COLORS[min(cell // COLOR, len(COLORS) - 1)]
    return _NAMES.get(name, name)
