"""What the agent sees: the 7 x 7 cells in front of it, but for those behind walls and doors.

The agent stands in the middle of the view's nearest row. It sees through a cell into its neighbours
in the same row and in the next row, as MiniGrid has it: row after row, from the left and then from
the right. A row of seven truth values is the bits of an int here, so a row takes a few operations.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from operant.envs.grid.cells import (
    AHEAD_X,
    AHEAD_Y,
    CARRIED,
    COLOR,
    DIRECTION,
    EMPTY,
    KIND,
    SEEN_AS,
    SEEN_STATE,
    SEEN_THROUGH,
    X,
    Y,
    cell_at,
)
from operant.lang import to_float

VIEW = 7
REACH = VIEW // 2
HIGHEST = 10
"""The largest number of an observation, MiniGrid's for the agent itself."""
ROW = (1 << VIEW) - 1
_CELL_BITS, _CELL = 8, 255


def observe_view(state: Any, obs: Any) -> None:
    """Write the view, ``[VIEW, VIEW, 3]``: column, row from the farthest to the agent's, and the
    cell's thing, colour and door state; all 0 where nothing is seen.

    The agent sees what it carries where it stands.
    """
    direction = state.agent[DIRECTION]
    ahead_x, ahead_y = AHEAD_X[direction], AHEAD_Y[direction]
    # The left end of the agent's row; to its right is (-ahead_y, ahead_x).
    left_x, left_y = state.agent[X] + REACH * ahead_y, state.agent[Y] - REACH * ahead_x
    seen = 1 << REACH
    for ahead in range(VIEW):
        clear, cells = 0, 0
        for k in range(VIEW):
            cell = cell_at(state, left_x - ahead_y * k, left_y + ahead_x * k)
            clear |= SEEN_THROUGH[cell & KIND] << k
            cells |= cell << (_CELL_BITS * k)
        seen, beyond = spread(seen, clear)
        if ahead == 0:
            held = state.agent[CARRIED] if state.agent[CARRIED] != 0 else EMPTY
            hidden = _CELL << (_CELL_BITS * REACH)
            cells = (cells & ~hidden) | (held << (_CELL_BITS * REACH))
        for k in range(VIEW):
            if (seen >> k) & 1 == 1:
                cell = (cells >> (_CELL_BITS * k)) & _CELL
                obs[k, VIEW - 1 - ahead, 0] = to_float(SEEN_AS[cell & KIND])
                obs[k, VIEW - 1 - ahead, 1] = to_float(cell // COLOR)
                obs[k, VIEW - 1 - ahead, 2] = to_float(SEEN_STATE[cell & KIND])
        if beyond == 0:
            return
        seen = beyond
        left_x += ahead_x
        left_y += ahead_y


def spread(seen: int, clear: int) -> tuple[int, int]:
    """Sight along a row of bits: all that is seen of this row, and what of the next one.

    A cell that is seen and clear shows its neighbour; from the left to the right, then back.
    """
    rightwards = seen
    for _ in range(VIEW - 1):
        rightwards |= ((rightwards & clear) << 1) & ROW
    both = rightwards
    for _ in range(VIEW - 1):
        both |= (both & clear) >> 1
    lit = both & clear
    return both, lit | (lit >> 1) | (((rightwards & clear) << 1) & ROW)
