"""MultiRoom and KeyCorridor against MiniGrid's own classes: same state, same actions, whole
episodes; every observation, reward and flag.

Half of the levels are ours, put into MiniGrid; the others are MiniGrid's, put into ours. An episode
begins with random actions, goes on to success where there is a way, and otherwise goes on at random
until the time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import operant
from operant.envs.grid import cells as c

pytest.importorskip("minigrid")

from .minigrid_levels import key_corridor, load, multi_room, solution, state_of

ODDS = (0.14, 0.14, 0.34, 0.12, 0.06, 0.17, 0.03)
"""Of random actions: going on and doing something, more often than not."""


@dataclass(frozen=True)
class Case:
    env_id: str
    oracle: Callable[[], Any]
    target: int
    size: int
    outside: int
    params: dict[str, Any]
    num_envs: int = 4
    backend: str = "reference"

    def __str__(self) -> str:
        return "-".join(map(str, (self.env_id, self.backend, *self.params.values())))


def rooms(least: int, most: int, size: int, **options: Any) -> Case:
    params = {"min_rooms": least, "max_rooms": most, "max_room_size": size}
    oracle = lambda: multi_room(least, most, size)  # noqa: E731
    return Case("MultiRoom-v0", oracle, c.GOAL, 25, c.EMPTY, params, **options)


def corridor(size: int, rows: int, thing: str = "ball", **options: Any) -> Case:
    params = {"room_size": size, "rows": rows, "obj_type": thing}
    oracle = lambda: key_corridor(size, rows, thing)  # noqa: E731
    target = c.BALL if thing == "ball" else c.BOX
    return Case("KeyCorridor-v0", oracle, target, 16, c.GREY_WALL, params, **options)


CASES = [
    rooms(4, 4, 5, num_envs=24, backend="cpu"),
    rooms(4, 4, 5),
    rooms(2, 2, 4),
    rooms(1, 6, 10),
    corridor(3, 2, num_envs=24, backend="cpu"),
    corridor(3, 1),
    corridor(3, 3, "box", num_envs=3),
    corridor(4, 3, num_envs=2),
]


def a_batch_and_its_oracles(case: Case) -> tuple[operant.VecEnv, list[Any]]:
    env = operant.make(case.env_id, case.num_envs, backend=case.backend, seed=3, **case.params)
    env.reset()
    state = env.get_state()
    cells, agents = state["state.cells"], state["state.agent"]
    oracles = [case.oracle() for _ in range(case.num_envs)]
    for i, oracle in enumerate(oracles):
        oracle.reset(seed=i)
        if i % 2 == 0:
            load(oracle, cells[i], agents[i])
        else:
            cells[i], agents[i] = state_of(oracle, case.size, case.outside)
    env.set_state({"state.cells": cells, "state.agent": agents})
    return env, oracles


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_episodes(case: Case) -> None:
    env, oracles = a_batch_and_its_oracles(case)
    assert env.max_episode_steps == oracles[0].max_steps
    np.testing.assert_array_equal(env.get_state()["obs"], [o.gen_obs()["image"] for o in oracles])
    rng = np.random.default_rng(7)
    at_random = rng.integers(0, env.max_episode_steps // 3, case.num_envs)
    at_random[0] = 0  # one at least succeeds
    plans: list[list[int]] = [[] for _ in oracles]
    running = np.ones(case.num_envs, bool)
    done, seen = 0, set()
    for step in range(env.max_episode_steps):
        actions = rng.choice(7, case.num_envs, p=ODDS)
        state = env.get_state() if step in at_random else {}
        for i in np.flatnonzero(running):
            if step == at_random[i] and i % 4 < 3:
                cells, agent = state["state.cells"][i], state["state.agent"][i]
                plans[i] = solution(cells, agent, case.target) or []
            if plans[i]:
                actions[i] = plans[i].pop(0)
        obs, reward, terminated, truncated, _ = env.step(actions)
        for i in np.flatnonzero(running):
            image, wanted, over, late, _ = oracles[i].step(int(actions[i]))
            place = f"environment {i}, step {step}, action {actions[i]}"
            np.testing.assert_array_equal(obs[i], image["image"], err_msg=place)
            assert abs(reward[i] - wanted) < 1e-6, place
            assert (terminated[i], truncated[i]) == (over, late), place
            seen |= {int(value) for value in image["image"][3, 6] if value}
            done += int(over)
            running[i] = not (over or late)
        if not running.any():
            break
    assert not running.any()
    assert done >= max(1, case.num_envs // 4), "some reach the goal, some run out of time"
    if case.env_id == "KeyCorridor-v0":
        assert c.KEY in seen, "somebody carried a key"


def test_every_action_on_every_thing() -> None:
    """Each thing in each colour in front of the agent, with each thing in its hand."""
    fronts = [c.EMPTY, c.GREY_WALL, c.GREEN_GOAL, c.LAVA]
    kinds = (c.FLOOR, c.OPEN_DOOR, c.CLOSED_DOOR, c.LOCKED_DOOR, c.KEY, c.BALL, c.BOX)
    fronts += [kind + c.COLOR * color for kind in kinds for color in (c.RED, c.YELLOW)]
    hands = [0, c.KEY, c.KEY + c.COLOR * c.YELLOW, c.BALL, c.BOX]
    rows = [(f, h, a) for f in fronts for h in hands for a in range(7)]
    env = operant.make("MultiRoom-v0", len(rows), backend="cpu", seed=0)
    env.reset()
    cells = np.full((len(rows), 25, 25), c.EMPTY, np.uint8)
    agents = np.zeros((len(rows), 5), np.int32)
    for i, (front, hand, _) in enumerate(rows):
        cells[i, :5, :5] = c.GREY_WALL
        cells[i, 1:4, 1:4] = c.EMPTY
        cells[i, 1, 2] = front
        agents[i] = 2, 2, 3, hand, 5
    env.set_state({"state.cells": cells, "state.agent": agents})
    obs, reward, terminated, *_ = env.step(np.array([action for *_, action in rows]))
    after = env.get_state()
    oracle = multi_room()
    oracle.reset(seed=0)
    for i, (front, hand, action) in enumerate(rows):
        load(oracle, cells[i], agents[i])
        image, wanted, over, _, _ = oracle.step(action)
        place = f"front {front}, hand {hand}, action {action}"
        np.testing.assert_array_equal(obs[i], image["image"], err_msg=place)
        assert (abs(reward[i] - wanted) < 1e-6, terminated[i]) == (True, over), place
        if not over:  # then the state is that of the next level
            theirs = state_of(oracle, 25, c.EMPTY)
            np.testing.assert_array_equal(after["state.cells"][i], theirs[0], err_msg=place)
            np.testing.assert_array_equal(after["state.agent"][i], theirs[1], err_msg=place)


def test_sight_in_rooms_full_of_things() -> None:
    """Random cells, so that sight runs around corners in every way."""
    rng = np.random.default_rng(1)
    count = 300
    things = [c.EMPTY] * 6 + [c.GREY_WALL] * 3 + [c.OPEN_DOOR, c.CLOSED_DOOR, c.LOCKED_DOOR, c.BALL]
    cells = rng.choice(things, (count, 25, 25)).astype(np.uint8)
    agents = np.zeros((count, 5), np.int32)
    agents[:, :2] = rng.integers(0, 25, (count, 2))
    agents[:, 2] = rng.integers(0, 4, count)
    env = operant.make("MultiRoom-v0", count, backend="cpu", seed=0)
    env.reset()
    obs = env.set_state({"state.cells": cells, "state.agent": agents})
    oracle = multi_room()
    oracle.reset(seed=0)
    for i in range(count):
        load(oracle, cells[i], agents[i])
        np.testing.assert_array_equal(obs[i], oracle.gen_obs()["image"], err_msg=str(agents[i]))
