"""Stacks of frames beside Gymnasium's own wrapper, as observations and as a rollout to train on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FrameStackObservation

import operant
from operant.models import PPO
from operant.training.config import EnvConfig
from operant.training.evaluate import evaluate
from operant.training.foreign import how_it_runs
from operant.vector.batch import StepMemory, is_batch
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.frame_stack import FrameStack

N, STEPS = 5, 11


class Film(gymnasium.Env[Any, Any]):
    """Random pictures. Ends by itself now and then, in its first steps too, else after 6."""

    observation_space = spaces.Box(0, 255, (3, 2), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def _seen(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (3, 2), np.uint8)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        ended = bool(self.np_random.random() < 0.2)
        return self._seen(), float(action), ended, self._steps == 6, {}


def ours(k: int, make: Any = Film) -> FrameStack:
    return FrameStack(ForeignBatch(make, N, backend="serial"), k)


def theirs(k: int, make: Any = Film) -> ForeignBatch:
    return ForeignBatch(
        lambda: FrameStackObservation(make(), k, padding_type="reset"), N, backend="serial"
    )


def trainer(batch: Any, engine: str = "eager", **options: Any) -> PPO:
    settings = {"num_steps": STEPS, "seed": 3, "minibatches": 3, "hidden": (8,), "device": "cpu"}
    settings |= {"learning_rate_schedule": "constant", "normalize_obs": True}
    return PPO(batch, engine=engine, **{**settings, **options})


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def step_memory(shape: tuple[int, ...]) -> StepMemory:
    flags = np.zeros((2, N), np.bool_)
    return StepMemory(np.zeros((N, *shape), np.uint8), np.zeros(N, np.float32), *flags)


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_observations_are_gymnasiums(k: int) -> None:
    stack, oracle = ours(k), theirs(k)
    assert is_batch(stack)
    assert stack.single_observation_space == oracle.single_observation_space
    for batch in (stack, oracle):
        batch.reset(seed=4)
    a, b = step_memory((k, 3, 2)), step_memory((k, 3, 2))
    stack.write_obs(a.obs)
    oracle.write_obs(b.obs)
    ended = 0
    for _ in range(40):
        np.testing.assert_array_equal(a.obs, b.obs)
        actions = np.zeros(N, np.int64)
        mine, wanted = stack.write_step(actions, a), oracle.write_step(actions, b)
        assert (mine is None) == (wanted is None)
        if mine is not None and wanted is not None:
            index = wanted.env_index
            np.testing.assert_array_equal(mine.final_obs[index], wanted.final_obs[index])
            ended += len(index)
    assert ended > 20


@pytest.mark.parametrize("k", [1, 3, 8])
def test_rollouts_put_together_what_gymnasium_stores(k: int) -> None:
    """Several, one after the other: the first stacks of one have frames of those before it."""
    ppo, oracle = trainer(ours(k)), theirs(k)
    oracle.reset(seed=3)
    buffer, b = ppo.engine.buffer, step_memory((k, 3, 2))
    for iteration in range(4):
        ppo.engine.collect(iteration, iteration * STEPS)
        everything = buffer.flat("obs")[0].index_select(0, torch.arange(len(buffer)))
        finals, seen = buffer.final_stacks().numpy(), []
        oracle.write_obs(b.obs)
        for t in range(STEPS):
            np.testing.assert_array_equal(buffer.obs[t].numpy(), b.obs)
            np.testing.assert_array_equal(everything[t * N : (t + 1) * N].numpy(), b.obs)
            ends = oracle.write_step(buffer.arrays["action"][t], b)
            if ends is not None and ends.final_obs is not None:
                seen += list(ends.final_obs[ends.env_index[ends.truncated]])
        np.testing.assert_array_equal(buffer.obs[-1].numpy(), b.obs)
        assert len(seen) > 0
        np.testing.assert_array_equal(finals, seen)


def test_training_is_that_of_whole_observations_to_the_bit() -> None:
    ours_, theirs_ = trainer(ours(4)), trainer(theirs(4))
    for ppo in (ours_, theirs_):
        ppo.learn(4 * N * STEPS)
    assert torch.equal(weights(ours_), weights(theirs_))
    assert ours_.episodes == theirs_.episodes > 20


def test_a_frame_is_stored_once() -> None:
    shape, k = (84, 84), 4
    history = FrameStack(ForeignBatch(partial(_Screen, shape), 8, backend="serial"), k)
    once = trainer(history, num_steps=16, normalize_obs=False).engine.buffer
    frame = 84 * 84
    assert once._frames.nbytes == (k - 1 + 16 + 1) * 8 * frame
    assert tuple(once.obs[0].shape) == (8, k, *shape)


class _Screen(Film):
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def _seen(self) -> np.ndarray:
        return np.zeros(self.observation_space.shape, np.uint8)


def test_a_saved_trainer_goes_on_to_the_bit(tmp_path: Path) -> None:
    def batch() -> FrameStack:
        make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=15)
        return ours(3, make)

    size = N * STEPS
    whole, half = trainer(batch()).learn(4 * size), trainer(batch()).learn(2 * size)
    half.save(tmp_path / "saved")
    other = batch()
    again = PPO.load(tmp_path / "saved", env=other).learn(4 * size)
    assert torch.equal(weights(again), weights(whole))
    state = half.env.get_state()
    del state["stack/frames"]
    with pytest.raises(ValueError, match="'stack/frames' must be float32 of shape"):
        other.set_state(state)


def test_evaluation_begins_with_a_stack_of_its_own() -> None:
    batch = ours(4, partial(gymnasium.make, "CartPole-v1", max_episode_steps=15))
    found = evaluate(trainer(batch).agent, batch, trainer(batch).config.env, episodes=3)
    assert (found.lengths <= 15).all()
    compiled = FrameStack(
        operant.make("CartPole-v1", N, autoreset_mode=AutoresetMode.NEXT_STEP, max_episode_steps=3),
        2,
    )
    compiled.reset(seed=0)
    out = StepMemory(
        np.zeros((N, 2, 4), np.float32), np.zeros(N, np.float32), *np.zeros((2, N), np.bool_)
    )
    for step in range(6):
        compiled.write_step(np.zeros(N, np.int64), out)
        same = (out.obs[:, 0] == out.obs[:, 1]).all()
        assert same == (step == 3)  # the step after the last, which begins the next episode


def test_other_engines_say_why_not() -> None:
    ppo = trainer(ours(2), engine="fused")
    assert ppo.engine.name == "eager"
    assert "stacks whose frames are stored once" in ppo.engine_reason


def test_what_cannot_be_stacked_is_said() -> None:
    batch = ForeignBatch(partial(gymnasium.make, "FrozenLake-v1"), 2, backend="serial")
    with pytest.raises(TypeError, match=r"must be of one Box, got Discrete\(16\)"):
        FrameStack(batch, 2)
    for k in (0, True, 2.0):
        with pytest.raises(ValueError, match="1 frame or more, got"):
            FrameStack(ForeignBatch(Film, 1, backend="serial"), k)  # type: ignore[arg-type]


def test_what_runs_it_is_told() -> None:
    stack, batch = ours(2), ForeignBatch(Film, N)
    config = EnvConfig(frame_stack=2)
    assert how_it_runs(stack, config) == "serial: asked for"
    assert how_it_runs(batch, config) == batch.backend_reason
    assert how_it_runs(operant.make("CartPole-v1", 2), config) is None
    pole = ForeignBatch(partial(gymnasium.make, "CartPole-v1"), N)
    assert "its own vector version is often faster" in str(how_it_runs(pole, EnvConfig()))
    assert "vector" not in str(how_it_runs(pole, EnvConfig(backend="serial")))
    for each in (stack, batch, pole):
        each.close()
