"""Generated levels: each can be solved, and they are distributed as MiniGrid's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import operant
from operant.envs.grid import cells as c
from operant.envs.grid import multi_room as rooms
from operant.render.colors import COLORS

pytest.importorskip("minigrid")

from .minigrid_levels import key_corridor, multi_room, solution, state_of


def levels(env_id: str, count: int, backend: str = "cpu", seed: int = 5, **params: Any) -> Any:
    env = operant.make(env_id, count, backend=backend, seed=seed, **params)
    env.reset()
    state = env.get_state()
    env.close()
    return state


def kinds_of(cells: np.ndarray) -> np.ndarray:
    return cells & c.KIND


# Each of them -----------------------------------------------------------------------------------
def check_rooms(state: Any, i: int, least: int, most: int, largest: int) -> None:
    cells, agent = state["state.cells"][i], state["state.agent"][i]
    laid = state["state.rooms"][i]
    count = int((laid[:, rooms.ROOM_WIDTH] > 0).sum())
    assert least <= count <= most
    assert (laid[count:] == 0).all()
    assert (laid[:count, 2:4] >= 4).all()
    assert (laid[:count, 2:4] <= largest).all()
    inside = np.zeros((25, 25), int)
    for left, top, width, height, door_x, door_y in laid[:count].astype(int):
        assert left + width <= 25
        assert top + height < 25
        inside[top + 1 : top + height - 1, left + 1 : left + width - 1] += 1
        edge = cells[top : top + height, left : left + width].copy()
        edge[1:-1, 1:-1] = c.GREY_WALL
        assert np.isin(kinds_of(edge), (c.WALL, c.CLOSED_DOOR)).all()
        if (left, top) != (laid[0, 0], laid[0, 1]):
            assert kinds_of(cells)[door_y, door_x] == c.CLOSED_DOOR
    assert inside.max() == 1, "rooms do not meet"
    doors = [int(cells[y, x]) for x, y in laid[1:count, 4:6]]
    assert all(one != other for one, other in pairwise(doors))
    assert (kinds_of(cells) == c.CLOSED_DOOR).sum() == count - 1
    [[goal_y, goal_x]] = np.argwhere(cells == c.GREEN_GOAL)
    assert inside[goal_y, goal_x] == inside[agent[c.Y], agent[c.X]] == 1
    assert (agent[c.X], agent[c.Y]) != (goal_x, goal_y)
    assert (agent[2:] == (agent[2], 0, 0)).all()
    assert solution(cells, agent, c.GOAL) is not None


@pytest.mark.parametrize(
    ("least", "most", "largest", "count", "backend"),
    [(4, 4, 5, 60, "cpu"), (1, 9, 10, 12, "reference"), (2, 2, 4, 20, "reference")],
)
def test_every_row_of_rooms_leads_to_its_goal(
    least: int, most: int, largest: int, count: int, backend: str
) -> None:
    params = {"min_rooms": least, "max_rooms": most, "max_room_size": largest}
    state = levels("MultiRoom-v0", count, backend, **params)
    for i in range(count):
        check_rooms(state, i, least, most, largest)


@pytest.mark.parametrize(
    ("size", "rows", "count", "backend"),
    [(3, 2, 60, "cpu"), (3, 1, 20, "reference"), (6, 3, 8, "reference"), (3, 5, 8, "reference")],
)
def test_every_corridor_can_be_solved(size: int, rows: int, count: int, backend: str) -> None:
    state = levels("KeyCorridor-v0", count, backend, room_size=size, rows=rows)
    span = size - 1
    for i in range(count):
        cells, agent = state["state.cells"][i], state["state.agent"][i]
        kinds = kinds_of(cells)
        assert [(kinds == kind).sum() for kind in (c.LOCKED_DOOR, c.KEY, c.BALL)] == [1, 1, 1]
        [[_, door_x]], [[_, key_x]], [[_, ball_x]] = (
            np.argwhere(kinds == kind) for kind in (c.LOCKED_DOOR, c.KEY, c.BALL)
        )
        assert door_x == 2 * span
        assert key_x < span
        assert ball_x > 2 * span
        lock, key = (cells[kinds == kind][0] // c.COLOR for kind in (c.LOCKED_DOOR, c.KEY))
        assert lock == key
        assert (kinds[rows * span :] == c.WALL).all()
        assert (kinds[:, 3 * span :] == c.WALL).all()
        assert solution(cells, agent, c.BALL) is not None
        assert solution(np.where(kinds == c.KEY, c.EMPTY, cells), agent, c.BALL) is None


# All of them ------------------------------------------------------------------------------------
def figures(cells: np.ndarray, agent: np.ndarray, target: int) -> list[float]:
    """What levels are compared by."""
    kinds = kinds_of(cells)
    [[y, x]] = np.argwhere(kinds == target)
    doors = cells[np.isin(kinds, (c.CLOSED_DOOR, c.LOCKED_DOOR))]
    front = kinds[
        agent[c.Y] + c.AHEAD_Y[agent[c.DIRECTION]], agent[c.X] + c.AHEAD_X[agent[c.DIRECTION]]
    ]
    distance = abs(agent[c.X] - x) + abs(agent[c.Y] - y)
    return [
        len(doors),
        *(float((doors // c.COLOR == color).sum()) for color in range(c.N_COLORS)),
        (kinds == c.WALL).sum(),
        x,
        y,
        agent[c.X],
        agent[c.Y],
        *(float(agent[c.DIRECTION] == d) for d in range(4)),
        distance,
        distance**2,
        float(front == c.WALL),
        float(front == c.EMPTY),
    ]


@pytest.mark.parametrize(
    ("env_id", "oracle", "target", "size"),
    [("MultiRoom-v0", multi_room, c.GOAL, 25), ("KeyCorridor-v0", key_corridor, c.BALL, 16)],
)
def test_levels_are_distributed_as_minigrids(
    env_id: str, oracle: Any, target: int, size: int
) -> None:
    """Means of 3000 levels of ours and 500 of MiniGrid's, within 4.5 standard errors."""
    state = levels(env_id, 3000)
    pairs = zip(state["state.cells"], state["state.agent"], strict=True)
    ours = np.array([figures(cells, agent, target) for cells, agent in pairs], float)
    theirs = oracle()
    found = []
    theirs.reset(seed=11)
    outside = c.GREY_WALL if target == c.BALL else c.EMPTY
    for _ in range(500):
        theirs.agent_pos, theirs.agent_dir = (-1, -1), -1
        theirs._gen_grid(theirs.width, theirs.height)
        theirs.step_count = 0
        found.append(figures(*state_of(theirs, size, outside), target))
    wanted = np.array(found, float)
    error = np.sqrt(ours.var(axis=0) / len(ours) + wanted.var(axis=0) / len(wanted))
    same = (error == 0) & (ours[0] == wanted[0])
    distances = np.abs(ours.mean(axis=0) - wanted.mean(axis=0)) / np.where(error > 0, error, 1.0)
    assert (same | (distances < 4.5)).all(), distances.round(1).tolist()


# The picture ------------------------------------------------------------------------------------
def test_the_picture_shows_agent_and_goal_where_they_are() -> None:
    env = operant.make("MultiRoom-v0", 6, backend="reference", seed=4, render_mode="rgb_array")
    env.reset()
    state = env.get_state()
    for i in range(6):
        frame = env.render_one(i)
        side = frame.shape[0] // rooms.SIZE
        x, y = state["state.agent"][i, :2]
        [[goal_y, goal_x]] = np.argwhere(state["state.cells"][i] == c.GREEN_GOAL)
        for column, row, color in ((x, y, "crimson"), (goal_x, goal_y, "green")):
            middle = frame[int((row + 0.5) * side), int((column + 0.5) * side)]
            assert tuple(middle) == COLORS[color]


# Parameters -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("env_id", "params", "text"),
    [
        ("MultiRoom-v0", {"min_rooms": 5}, "min_rooms no more than max_rooms"),
        ("MultiRoom-v0", {"max_rooms": 10}, "1 to 9 rooms"),
        ("MultiRoom-v0", {"max_room_size": 3}, "from 4 to 10"),
        ("KeyCorridor-v0", {"room_size": 2}, "rooms of 3 cells or more"),
        ("KeyCorridor-v0", {"room_size": 7}, "at most 16 cells"),
        ("KeyCorridor-v0", {"rows": 8}, "at most 16 cells"),
        ("KeyCorridor-v0", {"obj_type": "key"}, "'ball' or 'box'"),
        ("DeepSea-v0", {"size": 0}, "size of DeepSea must be 1 to 512, got 0"),
    ],
)
def test_levels_that_cannot_be_are_refused(env_id: str, params: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        operant.make(env_id, 1, backend="reference", **params)


def test_the_time_limit_follows_the_parameters() -> None:
    """The limits that MiniGrid registers; a limit of one's own still wins."""
    for least, size, limit in ((2, 4, 40), (4, 5, 80), (6, 10, 120)):
        params = {"min_rooms": least, "max_rooms": least, "max_room_size": size}
        env = operant.make("MultiRoom-v0", 1, backend="reference", **params)
        assert env.max_episode_steps == env.describe().own_limit == limit
    for size, limit in ((3, 270), (4, 480), (6, 1080)):
        env = operant.make("KeyCorridor-v0", 1, backend="reference", room_size=size)
        assert env.max_episode_steps == limit
    env = operant.make("KeyCorridor-v0", 1, backend="reference", max_episode_steps=9)
    assert (env.max_episode_steps, env.describe().own_limit) == (9, 270)
    again = env.for_evaluation(2)
    assert again.max_episode_steps == 270
