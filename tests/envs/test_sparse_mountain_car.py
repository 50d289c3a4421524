"""SparseMountainCar against Gymnasium's MountainCar: its dynamics, and a reward at the flag."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import operant
from operant.envs.classic.mountain_car import MountainCar
from operant.envs.classic.sparse_mountain_car import SparseMountainCar


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_whole_episodes_until_the_flag(backend: str) -> None:
    """Pushed the way that they roll, cars reach the flag; pushed at random they do not."""
    env = operant.make("SparseMountainCar-v0", 12, backend=backend)
    obs, _ = env.reset(seed=1)
    oracles = [gymnasium.make("MountainCar-v0").unwrapped for _ in range(12)]
    for oracle, start in zip(oracles, obs, strict=True):
        oracle.reset(seed=0)
        oracle.state = start.astype(np.float64)
    rng = np.random.default_rng(2)
    running, arrived = np.ones(12, bool), np.zeros(12, bool)
    for step in range(200):
        actions = rng.integers(0, 3, 12)
        actions[:6] = np.where(obs[:6, 1] < 0, 0, 2)
        obs, reward, terminated, truncated, _ = env.step(actions)
        for i in np.flatnonzero(running):
            theirs, _, over, _, _ = oracles[i].step(int(actions[i]))
            np.testing.assert_allclose(obs[i], theirs, atol=1e-5)
            assert terminated[i] == over
            assert reward[i] == float(over)
            assert truncated[i] == (step == 199)
            arrived[i] |= over
            running[i] = not (over or truncated[i])
    assert arrived.tolist() == [True] * 6 + [False] * 6
    assert not running.any()


def test_rules_are_mountaincars_own() -> None:
    """Written once: only the reward differs."""
    assert SparseMountainCar.State is MountainCar.State
    assert SparseMountainCar.Params is MountainCar.Params
    assert SparseMountainCar.reset is MountainCar.reset
    assert SparseMountainCar.max_episode_steps == MountainCar.max_episode_steps
    env = operant.make("SparseMountainCar-v0", 1, backend="reference", goal_position=-0.9)
    assert env.goal_position == -0.9
