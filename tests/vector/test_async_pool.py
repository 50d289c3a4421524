"""A pool whose environments do not wait for each other."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import operant
from operant.vector.foreign_batch import ForeignEnvError, env_seed

CARTPOLE = partial(gymnasium.make, "CartPole-v1", max_episode_steps=30)


class Picky(gymnasium.Env[Any, Any]):
    """Raises if its action is 1, and sees NaN if it is 2."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        if action == 1:
            raise KeyError("lost")
        seen = np.full(1, np.nan if action == 2 else 1.0, np.float32)
        return seen, 1.0, False, False, {}


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_each_environment_plays_what_it_would_alone(backend: str) -> None:
    pool = operant.AsyncEnvPool(CARTPOLE, 6, 2, backend=backend, workers=2)
    pool.reset(seed=5)
    envs = [CARTPOLE() for _ in range(6)]
    wanted = [[(env.reset(seed=env_seed(5, i))[0], 0.0)] for i, env in enumerate(envs)]
    counts, ended = np.zeros(6, int), 0
    while counts.min() < 60:
        obs, reward, terminated, truncated, info = pool.recv()
        ids = info["env_id"]
        assert len(set(ids.tolist())) == 2
        for row, i in enumerate(ids):
            np.testing.assert_array_equal(obs[row], wanted[i][-1][0])
            assert reward[row] == wanted[i][-1][1]
            if terminated[row] or truncated[row]:
                ended += 1
                assert info["_final_obs"][row]
                np.testing.assert_array_equal(info["final_obs"][row], wanted[i][-1][2])
            else:
                assert len(wanted[i][-1]) == 2
        actions = (counts[ids] * 7 + ids) % 3 % 2
        counts[ids] += 1
        for i, action in zip(ids, actions, strict=True):
            after, gained, over, cut, _ = envs[i].step(action)
            wanted[i].append(
                (envs[i].reset()[0], gained, after) if over or cut else (after, gained)
            )
        pool.send(actions, ids)
    assert ended >= 6
    pool.reset(seed=5)
    np.testing.assert_array_equal(pool.recv()[0], [wanted[0][0][0], wanted[1][0][0]])
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.recv()


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_may_not_be_sent_and_what_is_raised(backend: str) -> None:
    pool = operant.AsyncEnvPool(Picky, 4, 2, backend=backend, workers=2)
    with pytest.raises(ValueError, match="only 0 are stepping"):
        pool.recv()
    pool.reset(seed=0)
    ids = pool.recv()[4]["env_id"]
    with pytest.raises(ValueError, match="must name environments once"):
        pool.send(np.zeros(2, int), [2, 3])
    with pytest.raises(ValueError, match=r"actions must have shape \(2,\)"):
        pool.send(np.zeros(3, int), ids)
    pool.recv()
    pool.send(np.array([0, 1]), ids)
    with pytest.raises(ForeignEnvError, match=r"environment 1 \(Picky\) raised in step\(\)"):
        pool.recv()
    pool.close()


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_others_go_on_beside_one_that_failed(backend: str) -> None:
    pool = operant.AsyncEnvPool(Picky, 3, 1, backend=backend, workers=1)
    for seed in range(2):  # a pool of which one failed can be reset
        pool.reset(seed=seed)
        for _ in range(3):
            ids = pool.recv()[4]["env_id"]
            pool.send(np.array([2 if ids[0] == 0 else 0]), ids)
        with pytest.raises(ForeignEnvError, match=r"environment 0 .* NaN at \[0\]"):
            pool.recv()
        for wanted in (1, 2, 1, 2):
            obs, *_, info = pool.recv()
            assert (obs.tolist(), info["env_id"].tolist()) == ([[1.0]], [wanted])
            pool.send(np.zeros(1, int), info["env_id"])
    pool.close()


def test_ids_of_packages_and_unknown_ones() -> None:
    pytest.importorskip("minigrid")
    with pytest.raises(ValueError, match=r"no environment 'FrozenLak-v1'; did you mean FrozenLake"):
        operant.AsyncEnvPool("FrozenLak-v1", 2, backend="serial")
    with pytest.raises(ValueError, match=r"at 'mission' .*FilterObservation"):
        operant.AsyncEnvPool("MiniGrid-Empty-5x5-v0", 2, backend="serial")
    operant.AsyncEnvPool("gymnasium:CartPole-v1", 2, backend="serial").close()
