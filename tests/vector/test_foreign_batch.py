"""Environments of Gymnasium's API as a batch, beside a plain loop over them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from operant.models import PPO
from operant.vector.batch import is_batch
from operant.vector.foreign_batch import ForeignBatch, ForeignEnvError, env_seed

MAKERS: dict[str, Callable[[], gymnasium.Env[Any, Any]]] = {
    "CartPole": partial(gymnasium.make, "CartPole-v1", max_episode_steps=30),
    "FrozenLake": partial(gymnasium.make, "FrozenLake-v1"),
    "Taxi": partial(gymnasium.make, "Taxi-v4", max_episode_steps=20),
    "Blackjack": partial(gymnasium.make, "Blackjack-v1"),
    "Pendulum": partial(gymnasium.make, "Pendulum-v1", max_episode_steps=20),
}
N, STEPS = 5, 70


class Broken(gymnasium.Env[Any, Any]):
    """Does in its third step what it is told to; else it sees zeros."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        obs, reward = np.zeros(2, np.float32), 1.0
        if self.count == 3:
            if self.how == "raise":
                raise KeyError("lost")
            if self.how == "four":
                return obs, reward, False, {}
            obs = {"shape": np.zeros(3, np.float32), "dtype": np.array(["a", "b"])}.get(
                self.how, obs
            )
            reward = float("nan") if self.how == "nan" else reward
        return obs, reward, False, False, {}


def flat(obs: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in obs] if isinstance(obs, tuple) else [np.asarray(obs)]


def actions_of(make: Callable[[], Any]) -> np.ndarray:
    space = make().action_space
    space.seed(1)
    return np.array([[space.sample() for _ in range(N)] for _ in range(STEPS)])


@pytest.mark.parametrize("name", MAKERS)
def test_whole_episodes_are_those_of_a_plain_loop(name: str) -> None:
    make = MAKERS[name]
    actions, batch = actions_of(make), ForeignBatch(make, N, backend="serial", seed=7)
    assert is_batch(batch)
    seen, _ = batch.reset()
    envs = [make() for _ in range(N)]
    for i, env in enumerate(envs):
        first = env.reset(seed=env_seed(7, i))[0]
        for a, b in zip(flat(first), _row(seen, i), strict=True):
            np.testing.assert_array_equal(a, b)
    ended = 0
    for t in range(STEPS):
        obs, reward, terminated, truncated, info = batch.step(actions[t])
        for i, env in enumerate(envs):
            last, worth, end, cut, _ = env.step(actions[t, i])
            assert (worth, end, cut) == (reward[i], terminated[i], truncated[i])
            if end or cut:
                ended += 1
                for a, b in zip(flat(last), _row(info["final_obs"], i), strict=True):
                    np.testing.assert_array_equal(a, b)
                last, _ = env.reset()
            for a, b in zip(flat(last), _row(obs, i), strict=True):
                np.testing.assert_array_equal(a, b)
    assert ended > 5


def _row(obs: Any, i: int) -> list[np.ndarray]:
    return [part[i] for part in obs] if isinstance(obs, tuple) else [obs[i]]


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_batch_goes_on_as_if_nothing_had_been(name: str) -> None:
    make = MAKERS[name]
    actions, batch = actions_of(make), ForeignBatch(make, N, backend="serial", seed=7)
    batch.reset()
    for row in actions[:33]:
        batch.step(row)
    again = ForeignBatch(make, N, backend="serial")
    again.set_state(batch.get_state())
    for row in actions[33:]:
        one, other = batch.step(row), again.step(row)
        np.testing.assert_equal(one[:4], other[:4])
        np.testing.assert_equal(one[4].get("episode"), other[4].get("episode"))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raise", r"environment 0 \(Broken\) raised in step\(\): KeyError: 'lost'"),
        ("four", r"must return \(obs, reward, terminated, truncated, info\)"),
        ("shape", r"gave an observation of shape \(3,\); its space has shape \(2,\)"),
        ("dtype", r"gave an observation of dtype <U1; its space has float32"),
        ("nan", r"gave a reward that is NaN \(seed \d+, action -1\)"),
    ],
)
def test_a_broken_environment_is_named(how: str, sentence: str) -> None:
    batch = ForeignBatch(partial(Broken, "not"), 2, backend="serial", seed=1)
    batch._executor._block.envs[0].how = how  # type: ignore[attr-defined]
    batch.reset()
    for _ in range(2):
        batch.step(np.array([-1, 1]))
    with pytest.raises(ForeignEnvError, match=sentence) as raised:
        batch.step(np.array([-1, 1]))
    assert raised.value.env_index == 0
    assert raised.value.seed == env_seed(1, 0)
    assert ("lost" in raised.value.traceback) == (how == "raise")


def test_the_measurement_before_a_batch_names_the_line() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        env = Broken("not")
        env.reset = lambda **_: {}["start"]  # type: ignore[method-assign]
        return env

    line = make.__code__.co_firstlineno + 2
    with pytest.raises(ForeignEnvError, match="environment 0 raised in reset") as raised:
        ForeignBatch(make, 2)
    assert str(raised.value).endswith(f": KeyError: 'start' ({Path(__file__).name}:{line})")


def test_masks_and_what_cannot_be_saved() -> None:
    taxi = ForeignBatch(MAKERS["Taxi"], 3, backend="serial")
    taxi.reset(seed=0)
    inside = [env.unwrapped for env in taxi._executor._block.envs]  # type: ignore[attr-defined]
    wanted = [env.action_mask(env.s) for env in inside]
    np.testing.assert_array_equal(taxi.action_masks(), np.array(wanted, np.bool_))
    broken = ForeignBatch(partial(Broken, "not"), 2, backend="serial")
    assert broken.why_not_saved == "Broken has no get_state() and set_state()"


class Choices(gymnasium.Env[Any, Any]):
    """Has a mask for each of two choices, as a tuple of two; `bad` allows nothing for the last."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, bad: bool = False) -> None:
        self.bad, self.t = bad, 0

    def _told(self) -> dict[str, Any]:
        last = [0, 0] if self.bad and self.t == 2 else [1, 0]
        return {"action_mask": (np.eye(3, dtype=np.int8)[self.t % 3], np.array(last, np.int8))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), self._told()

    def step(self, action: Any) -> Any:
        assert list(action) == [self.t % 3, 0]
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 5, False, self._told()


def test_a_mask_for_each_of_several_choices() -> None:
    for engine in ("eager", "fused"):
        ppo = PPO(Choices, num_envs=2, num_steps=8, backend="serial", device="cpu", engine=engine)
        assert ppo.learn(64).mean_return == 5.0
    batch = ForeignBatch(lambda: Choices(bad=True), 1, backend="serial")
    batch.reset(seed=0)
    batch.step(np.array([[0, 0]]))
    with pytest.raises(ForeignEnvError, match="allows no action for one of its choices in info"):
        batch.step(np.array([[1, 0]]))


def test_training_on_it() -> None:
    batch = ForeignBatch(MAKERS["CartPole"], 4, backend="serial")
    ppo = PPO(batch, num_steps=16, minibatches=2, epochs=1, hidden=[8], device="cpu")
    ppo.learn(4 * 16 * 2)
    assert (ppo.steps, ppo.engine.name) == (128, "fused")
