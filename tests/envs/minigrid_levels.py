"""MiniGrid's own environments in a given state, and a player that knows the level.

States are those of `operant.envs.grid.cells`: cells ``[y, x]`` and the agent's five numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, WorldObj
from minigrid.envs import KeyCorridorEnv, MultiRoomEnv

from operant.envs.grid import cells as c

_DOORS = {c.OPEN_DOOR: (True, False), c.CLOSED_DOOR: (False, False), c.LOCKED_DOOR: (False, True)}


def multi_room(least: int = 4, most: int = 4, size: int = 5) -> Any:
    return MultiRoomEnv(minNumRooms=least, maxNumRooms=most, maxRoomSize=size)


def key_corridor(size: int = 3, rows: int = 2, thing: str = "ball") -> Any:
    return KeyCorridorEnv(num_rows=rows, room_size=size, obj_type=thing)


def to_object(cell: int) -> WorldObj | None:
    """A cell as MiniGrid's object."""
    kind, color = cell & c.KIND, c.COLORS[cell // c.COLOR]
    if kind == c.EMPTY:
        return None
    if kind in _DOORS:
        is_open, is_locked = _DOORS[kind]
        return Door(color, is_open=is_open, is_locked=is_locked)
    return WorldObj.decode(kind, cell // c.COLOR, 0)


def to_cell(thing: WorldObj | None) -> int:
    """MiniGrid's object as a cell."""
    if thing is None:
        return c.EMPTY
    kind, color, state = thing.encode()
    if kind == c.OPEN_DOOR:
        kind = (c.OPEN_DOOR, c.CLOSED_DOOR, c.LOCKED_DOOR)[state]
    return int(kind) + c.COLOR * int(color)


def load(oracle: Any, cells: np.ndarray, agent: np.ndarray) -> None:
    """Put MiniGrid's environment into one of our states."""
    oracle.grid = Grid(oracle.width, oracle.height)
    targets = []
    for y in range(oracle.height):
        for x in range(oracle.width):
            thing = to_object(int(cells[y, x]))
            oracle.grid.set(x, y, thing)
            if thing is not None and thing.type == getattr(oracle, "obj_type", ""):
                targets.append(thing)
    oracle.obj = targets[0] if targets else None
    oracle.agent_pos = (int(agent[c.X]), int(agent[c.Y]))
    oracle.agent_dir = int(agent[c.DIRECTION])
    oracle.carrying = to_object(int(agent[c.CARRIED])) if agent[c.CARRIED] else None
    oracle.step_count = int(agent[c.STEPS])


def state_of(oracle: Any, size: int, outside: int) -> tuple[np.ndarray, np.ndarray]:
    """The state of MiniGrid's environment as ours; beyond its grid there is `outside`."""
    cells = np.full((size, size), outside, np.uint8)
    for y in range(oracle.height):
        for x in range(oracle.width):
            cells[y, x] = to_cell(oracle.grid.get(x, y))
    held = to_cell(oracle.carrying) if oracle.carrying else 0
    x, y = oracle.agent_pos
    return cells, np.array([x, y, oracle.agent_dir, held, oracle.step_count], np.int32)


# A player ---------------------------------------------------------------------------------------
Pose = tuple[int, int, int]


def walks(cells: np.ndarray, start: Pose) -> Iterator[tuple[Pose, list[int]]]:
    """Every pose that can be reached without a key, and the actions that lead there, the shortest
    first; closed doors are opened on the way."""
    found: dict[Pose, list[int]] = {start: []}
    queue = deque([start])
    while queue:
        x, y, d = pose = queue.popleft()
        yield pose, found[pose]
        ahead = (x + c.AHEAD_X[d], y + c.AHEAD_Y[d])
        moves = [((x, y, (d + 3) % 4), [c.LEFT]), ((x, y, (d + 1) % 4), [c.RIGHT])]
        kind = cells[ahead[1], ahead[0]] & c.KIND
        if kind == c.CLOSED_DOOR:
            moves.append(((*ahead, d), [c.TOGGLE, c.FORWARD]))
        elif c.WALKED_ON[kind]:
            moves.append(((*ahead, d), [c.FORWARD]))
        for after, actions in moves:
            if after not in found:
                found[after] = found[pose] + actions
                queue.append(after)


def facing(cells: np.ndarray, start: Pose, kinds: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Reachable poses in front of one of `kinds`: the pose, the way, and (x, y) in front."""
    for (x, y, d), way in walks(cells, start):
        ahead = (x + c.AHEAD_X[d], y + c.AHEAD_Y[d])
        if cells[ahead[1], ahead[0]] & c.KIND in kinds:
            yield (x, y, d), way, ahead


def solution(cells: np.ndarray, agent: np.ndarray, target: int) -> list[int] | None:
    """Actions that walk onto the goal, or pick up what has the kind `target`; None: no way."""
    cells, pose, held = cells.copy(), tuple(int(v) for v in agent[:3]), int(agent[c.CARRIED])
    if target == c.GOAL:
        way = next(facing(cells, pose, (c.GOAL,)), None)
        return None if way is None else [*way[1], c.FORWARD]
    plan: list[int] = []
    locked = ((cells & c.KIND) == c.LOCKED_DOOR).any()
    if locked and not held:
        key = next(facing(cells, pose, (c.KEY,)), None)
        if key is None:
            return None
        pose, way, (x, y) = key
        plan += [*way, c.PICKUP]
        held, cells[y, x] = int(cells[y, x]), c.EMPTY
    if locked:
        door = next(facing(cells, pose, (c.LOCKED_DOOR,)), None)
        if door is None:
            return None
        pose, way, (x, y) = door
        plan += [*way, c.TOGGLE]
        cells[y, x] = c.OPEN_DOOR
    if not held:
        last = next(facing(cells, pose, (target,)), None)
        return None if last is None else [*plan, *last[1], c.PICKUP]
    for where, way, (x, y) in facing(cells, pose, (c.EMPTY,)):
        dropped = cells.copy()
        dropped[y, x] = held
        last = next(facing(dropped, where, (target,)), None)
        if last is not None:
            return [*plan, *way, c.DROP, *last[1], c.PICKUP]
    return None
