"""DeepSea against a small implementation of its own, from the rules of bsuite's `deep_sea`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import operant

BACKENDS = ("reference", "cpu")


class Sea:
    """One diver. `right` holds the action that moves right in each cell."""

    def __init__(self, right: np.ndarray, cost: float = 0.01) -> None:
        self.right, self.cost, self.size = right, cost, len(right)
        self.row = self.column = 0

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        reward = 0.0
        if action == self.right[self.row, self.column]:
            if self.column == self.size - 1:
                reward += 1.0
            self.column = min(self.column + 1, self.size - 1)
            reward -= self.cost / self.size
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        obs = np.zeros((self.size, self.size))
        if self.row < self.size:
            obs[self.row, self.column] = 1.0
        return obs, reward, self.row == self.size


def mapping(size: int, **params: Any) -> np.ndarray:
    """The action that moves right in each cell, found by taking action 0 in all of them."""
    env = operant.make("DeepSea-v0", size * size, backend="reference", size=size, **params)
    env.reset(seed=0)
    places = np.argwhere(np.ones((size, size))).astype(np.int32)
    env.set_state({"state.place": places})
    env.step(np.zeros(size * size, np.int64))
    columns = env.get_state()["state.place"][:, 1]
    # At the right edge a move right stays, which looks like none; at the left edge one left does.
    wall = places[:, 1] == size - 1
    stayed_right = wall & (columns == places[:, 1])
    return np.where((columns > places[:, 1]) | stayed_right, 0, 1).reshape(size, size)


@pytest.mark.parametrize("backend", BACKENDS)
def test_whole_episodes(backend: str) -> None:
    """Random divers, and one that knows the way."""
    size = 20
    right = mapping(size)
    env = operant.make("DeepSea-v0", 33, backend=backend, autoreset_mode="SameStep")
    obs, _ = env.reset(seed=3)
    assert obs.shape == (33, 20, 20)
    assert (obs[:, 0, 0] == 1).all()
    assert obs.sum() == 33
    rng = np.random.default_rng(0)
    for _ in range(3):
        seas = [Sea(right) for _ in range(33)]
        returns = np.zeros(33)
        for row in range(size):
            actions = rng.integers(0, 2, 33)
            actions[0] = right[row, row]
            _, reward, terminated, _, info = env.step(actions)
            seen = info["final_obs"] if terminated.any() else env.get_state()["obs"]
            for i, sea in enumerate(seas):
                wanted = sea.step(int(actions[i]))
                np.testing.assert_array_equal(seen[i], wanted[0])
                assert abs(reward[i] - wanted[1]) < 1e-7
                assert terminated[i] == wanted[2]
            returns += reward
        assert abs(returns[0] - 0.99) < 1e-6
        assert (returns[1:] <= 0).all()


def test_the_mapping_is_drawn_once_for_each_seed() -> None:
    """About half of the cells; the same in every batch; another one for another seed."""
    one, other = mapping(32), mapping(32, mapping_seed=1)
    assert 0.4 < one.mean() < 0.6
    assert 0.4 < other.mean() < 0.6
    assert 0.4 < (one == other).mean() < 0.6
    np.testing.assert_array_equal(one, mapping(32))
    for along in (one, one.T):  # no pattern along rows or columns
        assert abs(np.corrcoef(along[:-1].ravel(), along[1:].ravel())[0, 1]) < 0.15


def test_without_a_mapping_action_1_moves_right() -> None:
    np.testing.assert_array_equal(mapping(7, randomize_actions=False), np.ones((7, 7)))
    env = operant.make("DeepSea-v0", 1, backend="reference", size=7, randomize_actions=False)
    env.reset()
    rewards = [float(env.step(np.ones(1, np.int64))[1][0]) for _ in range(7)]
    np.testing.assert_allclose(rewards, [-0.01 / 7] * 6 + [1 - 0.01 / 7], atol=1e-6)


def test_the_size_is_that_of_the_observation_and_of_the_episode() -> None:
    for size in (1, 5, 50):
        env = operant.make("DeepSea-v0", 2, backend="reference", size=size)
        assert env.single_observation_space.shape == (size, size)
        assert env.max_episode_steps == size
        env.reset()
        ends = [bool(env.step(np.zeros(2, np.int64))[2].all()) for _ in range(size)]
        assert ends == [False] * (size - 1) + [True]
