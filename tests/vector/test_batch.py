"""The batch protocol: compiled batches through it do what they do through Gymnasium's API."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

import operant
from operant.spaces.rows import ObsLayout
from operant.vector.batch import StepMemory, compiled_batch, is_batch

BACKENDS = ["reference", "cpu"]


class Walk(operant.Env):
    """Ends when it leaves the unit, or by its time limit; may not step left at the wall."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-2.0, 2.0, (2,))
    action_space = Discrete(2)
    max_episode_steps = 6
    reward_threshold = 5.0

    class Params(NamedTuple):
        stride: float = 0.3

    def reset(random):
        return Walk.State(random[0])

    def step(state, action, params):
        x = state.x + params.stride * (2.0 * action - 1.0)
        return Walk.State(x), x, x > 1.2

    def observe(state):
        return state.x, -state.x

    def action_mask(state):
        return state.x > 0.0, True


def made(backend: str, mode: str = "SameStep", num_envs: int = 5, **options: Any) -> Any:
    batch = operant.make(
        Walk, num_envs, backend=backend, autoreset_mode=mode, copy=False, **options
    )
    batch.reset(seed=3)
    return batch


def memory(batch: Any) -> StepMemory:
    """Every other row of something larger: results go where they are told to."""
    n = batch.num_envs
    obs = ObsLayout.of(batch.single_observation_space).memory(2 * n)[::2]
    flags = np.zeros((2, 2 * n), np.bool_)[:, ::2]
    return StepMemory(obs, np.zeros(2 * n, np.float32)[::2], *flags)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_steps_into_given_memory_are_those_of_gymnasium(backend: str, mode: str) -> None:
    ours, gym = made(backend, mode), made(backend, mode)
    out, ended, cut = memory(ours), 0, 0
    ours.write_obs(out.obs)
    np.testing.assert_array_equal(out.obs, gym.get_state()["obs"])
    for k in range(40):
        np.testing.assert_array_equal(ours.action_masks(), gym.action_masks())
        actions = (np.arange(k, k + 5) % 3 > 0) * 1
        ends = ours.write_step(actions, out)
        *results, info = gym.step(actions)
        for name, mine, theirs in zip(out._fields, out, results, strict=True):
            np.testing.assert_array_equal(mine, theirs, name)
        assert (ends is None) == (not info)
        if ends is None:
            continue
        index, done = ends.env_index, np.flatnonzero(info["_episode"])
        np.testing.assert_array_equal(index, done)
        np.testing.assert_array_equal(ends.returns, info["episode"]["r"][done])
        np.testing.assert_array_equal(ends.lengths, info["episode"]["l"][done])
        np.testing.assert_array_equal(ends.truncated, (results[3] & ~results[2])[done])
        assert (ends.final_obs is None) == (mode == "NextStep")
        if ends.final_obs is not None:
            np.testing.assert_array_equal(ends.final_obs[index], info["final_obs"][done])
            assert (ends.final_obs[index] != out.obs[index]).any()
        ended, cut = ended + len(index), cut + int(ends.truncated.sum())
    assert 0 < cut < ended


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_compiled_batch_says_of_itself(backend: str) -> None:
    batch = made(backend, stride=0.25, max_episode_steps=4)
    assert is_batch(batch)
    assert compiled_batch(batch) is batch
    assert (batch.mask_size, batch.device.type, batch.why_not_saved) == (2, "cpu", None)
    found = batch.describe()
    assert (found.name, found.backend, found.workers) == ("Walk", backend, 1)
    assert (found.params, found.reward_threshold) == ({"stride": 0.25}, 5.0)
    assert (found.max_episode_steps, found.own_limit, found.evaluation_limit) == (4, 6, 6)
    playing = batch.for_evaluation(2)
    assert (playing.max_episode_steps, playing.stride, playing.backend) == (6, 0.25, backend)
    assert batch.for_evaluation(2, 9).max_episode_steps == 9


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_goes_on_from_its_state(backend: str) -> None:
    first, second = made(backend), made(backend)
    outs = memory(first), memory(second)
    for k in range(3):
        first.write_step(np.full(5, k % 2), outs[0])
    second.set_state(first.get_state())
    for k in range(20):
        for batch, out in zip((first, second), outs, strict=True):
            batch.write_step(np.arange(k, k + 5) % 2, out)
        np.testing.assert_array_equal(outs[0].obs, outs[1].obs)


def test_on_a_gpu_ends_come_to_the_host(interpreter: None) -> None:
    import torch

    gpu, host = made("cuda"), made("reference")
    assert is_batch(gpu)
    assert gpu.for_evaluation(1).backend != "cuda"
    out = StepMemory(*(torch.from_numpy(np.ascontiguousarray(x)) for x in memory(host)))
    theirs, ended = memory(host), 0
    gpu.write_obs(out.obs)
    host.write_obs(theirs.obs)
    np.testing.assert_array_equal(out.obs, theirs.obs)
    for k in range(8):
        actions = (np.arange(k, k + 5) % 3 > 0) * 1
        found, wanted = gpu.write_step(actions, out), host.write_step(actions, theirs)
        np.testing.assert_allclose(out.obs, theirs.obs, rtol=1e-6)
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            ended += len(found.env_index)
            assert isinstance(found.returns, np.ndarray)
            for mine, their in zip(found[:4], wanted[:4], strict=True):
                np.testing.assert_allclose(mine, their, rtol=1e-6)
    assert ended


def test_nothing_is_written_before_a_reset_or_for_bad_actions() -> None:
    batch = operant.make(Walk, 5, backend="reference", autoreset_mode="SameStep")
    out = memory(batch)
    with pytest.raises(ValueError, match=r"no observations yet: call reset\(\) first"):
        batch.write_obs(out.obs)
    batch.reset(seed=0)
    out.obs[:] = 7.0
    with pytest.raises(ValueError, match="action 2 of environment 0 is not allowed"):
        batch.write_step(np.full(5, 2), out)
    assert (out.obs == 7.0).all()


def test_what_is_no_batch() -> None:
    batch = operant.make(Walk, 2, backend="reference")
    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    for other in (VectorWrapper(batch), theirs, type(batch), Walk, "CartPole-v1", None):
        assert not is_batch(other)
        assert compiled_batch(other) is None
    assert batch.autoreset_mode is AutoresetMode.NEXT_STEP
