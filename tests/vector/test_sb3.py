"""Stable-Baselines3 trains on our environments, through the adapter of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import operant

from ..modules import load

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "sb3_vecenv.py"


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def example() -> Any:
    return load(EXAMPLE)


def test_the_example_is_sixty_lines_at_most() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60


def test_ppo_learns_cartpole(example: Any) -> None:
    assert example.train(32_768) >= 100  # random: 22


@pytest.mark.parametrize(("limit", "cut"), [(5, True), (100, False)])
def test_endings_are_told_as_sb3_expects(example: Any, limit: int, cut: bool) -> None:
    """`limit` 5: nobody has fallen yet. 100: pushed to one side only, everybody falls before."""
    plain = operant.make("CartPole-v1", 4, autoreset_mode="Disabled", max_episode_steps=limit)
    plain.reset(seed=[10, 11, 12, 13])
    env = example.OperantVecEnv("CartPole-v1", 4, max_episode_steps=limit)
    env.seed(10)
    env.reset()
    right = np.ones(4, np.int64)
    length, done = 0, np.zeros(4, np.bool_)
    while not done.any():
        length += 1
        final_obs, _, terminated, truncated, _ = plain.step(right)
        obs, reward, done, infos = env.step(right)
        np.testing.assert_array_equal(done, terminated | truncated)
        assert reward.tolist() == [1.0] * 4
        assert [bool(info) for info in infos] == done.tolist()
    for i in np.flatnonzero(done):
        assert infos[i]["TimeLimit.truncated"] is cut
        assert infos[i]["episode"]["l"] == infos[i]["episode"]["r"] == length
        np.testing.assert_array_equal(infos[i]["terminal_observation"], final_obs[i])
        assert not np.array_equal(obs[i], final_obs[i])
    env.close()


def test_the_seed_decides_and_a_reset_without_one_goes_on(example: Any) -> None:
    one, other = (example.OperantVecEnv("CartPole-v1", 3) for _ in range(2))
    one.seed(5)
    other.seed(5)
    first = one.reset()
    np.testing.assert_array_equal(first, other.reset())
    assert not np.array_equal(first, one.reset())
    assert one.get_attr("max_episode_steps") == [500] * 3
    assert one.env_is_wrapped(object, [0]) == [False]
