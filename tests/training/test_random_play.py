"""Random steps, whose observations are the first that statistics are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import operant
from operant import PPO
from operant.lang import to_float
from operant.models import distribution_for
from operant.training.random_play import random_observations
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.frame_stack import FrameStack
from tests.vector.knights import Knights


class Steps(gymnasium.Env[Any, Any]):
    """Shows how many steps of an episode were taken; the fourth is the last."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 9, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.now = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now += 1
        return np.array([self.now], np.float32), 0.0, self.now == 4, False, {}


def seen(batch: Any, steps: int) -> torch.Tensor:
    dist = distribution_for(batch.single_action_space)
    return torch.cat([rows.clone() for rows in random_observations(batch, dist, steps, 1)])


def test_they_follow_actions_and_are_the_final_ones_at_an_end() -> None:
    found = seen(ForeignBatch(Steps, 3, backend="serial"), 60)
    assert found.long().flatten().bincount().tolist() == [0, 15, 15, 15, 15]
    stacks = seen(FrameStack(ForeignBatch(Steps, 3, backend="serial"), 2), 60)
    assert stacks.shape == (60, 2, 1)
    assert (stacks[:, 1] == stacks[:, 0] + 1).all()


class Compiled(operant.Env):
    """The same."""

    class State(NamedTuple):
        now: int

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(random):
        return Compiled.State(0)

    def step(state, action):
        return Compiled.State(state.now + 1), 0.0, state.now == 3

    def observe(state):
        return (to_float(state.now),)


def test_a_step_that_resets_a_compiled_environment_is_none() -> None:
    batch = operant.make(Compiled, num_envs=3, backend="reference", max_episode_steps=9)
    assert batch.for_evaluation(3).autoreset_mode == AutoresetMode.NEXT_STEP
    assert seen(batch, 60).long().flatten().bincount().tolist() == [0, 12, 12, 12, 12]


def test_rows_that_rest_are_left_out() -> None:
    found = seen(ForeignBatch(Knights, 3, backend="serial"), 600)
    assert 200 < len(found) < 600
    assert (found != 0).any(1).all()


def test_where_there_are_no_environments_for_them_it_says_so() -> None:
    ppo = PPO(SyncVectorEnv([Steps] * 2), num_steps=8, intrinsic="rnd")
    with pytest.raises(ValueError, match=r"cannot be made again .* intrinsic.random_steps=0"):
        ppo.learn(16, progress=False)
    options = {"intrinsic.random_steps": 0}
    PPO(SyncVectorEnv([Steps] * 2), num_steps=8, intrinsic="rnd", **options).learn(32)
