"""The rollout buffer: one memory, two views, and final observations that find their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from operant.buffers.advantages import gae
from operant.buffers.rollout import RolloutBuffer

T, N = 3, 2


@pytest.fixture
def buffer() -> RolloutBuffer:
    return RolloutBuffer(T, N, (2,), (3,), action_dtype=torch.float32)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


def test_layout(buffer: RolloutBuffer) -> None:
    shapes = {name: tuple(array.shape) for name, array in buffer.arrays.items()}
    assert shapes == {
        "obs": (4, 2, 2),
        "action": (3, 2, 3),
        **dict.fromkeys(("log_prob", "value", "reward", "final_value"), (3, 2)),
        "action_mask": (3, 2, 0),
        **dict.fromkeys(("terminated", "truncated", "advantage", "target"), (3, 2)),
        "last_value": (2,),
    }
    assert len(buffer) == 6
    kinds = {name: array.dtype for name, array in buffer.arrays.items()}
    assert kinds.pop("terminated") == kinds.pop("truncated") == np.bool_
    assert kinds.pop("action_mask") == np.bool_
    assert set(kinds.values()) == {np.dtype(np.float32)}


def test_dtypes() -> None:
    buffer = RolloutBuffer(T, N, (), obs_dtype=torch.uint8)
    assert buffer.obs.dtype == torch.uint8
    assert buffer.obs.shape == (4, 2)
    assert buffer.action.dtype == torch.int64
    assert buffer.action.shape == (3, 2)
    buffer.store_final_obs(0, np.array([1]), np.array([200], np.uint8))
    assert buffer.final_obs.dtype == np.uint8


def test_arrays_and_tensors_are_the_same_memory(buffer: RolloutBuffer) -> None:
    for name, array in buffer.arrays.items():
        tensor: Tensor = getattr(buffer, name)
        assert tensor.device.type == "cpu"
        array[...] = 1
        assert (tensor == 1).all(), name
        tensor.zero_()
        assert not array.any(), name


def test_steps_are_stored_where_they_belong(buffer: RolloutBuffer) -> None:
    obs = numbers(T + 1, N, 2)
    reward, terminated = numbers(T, N), np.eye(T, N, dtype=np.bool_)
    buffer.start(obs[0])
    for t in range(T):
        buffer.store_step(t, obs[t + 1], reward[t], terminated[t], ~terminated[t])
    assert np.array_equal(buffer.arrays["obs"], obs)
    assert np.array_equal(buffer.arrays["reward"], reward)
    assert np.array_equal(buffer.arrays["terminated"], terminated)
    assert np.array_equal(buffer.arrays["truncated"], ~terminated)
    obs[:], reward[:] = -1, -1
    assert buffer.obs.min() > 0, "copied"
    assert buffer.reward.min() > 0


def test_flat_views(buffer: RolloutBuffer) -> None:
    buffer.arrays["obs"][:] = numbers(T + 1, N, 2)
    buffer.arrays["action"][:] = numbers(T, N, 3)
    buffer.arrays["value"][:] = numbers(T, N)
    obs, action, value = buffer.flat("obs", "action", "value")
    assert [tuple(x.shape) for x in (obs, action, value)] == [(6, 2), (6, 3), (6,)]
    for t in range(T):
        for i in range(N):
            assert torch.equal(obs[t * N + i], buffer.obs[t, i])
            assert torch.equal(action[t * N + i], buffer.action[t, i])
            assert value[t * N + i] == buffer.value[t, i]
    assert obs.data_ptr() == buffer.obs.data_ptr(), "a view"
    assert value.data_ptr() == buffer.value.data_ptr()


def test_final_values_come_from_one_call(buffer: RolloutBuffer) -> None:
    calls: list[Tensor] = []

    def value(obs: Tensor) -> Tensor:
        calls.append(obs.clone())
        return (10 * obs[:, 0]).requires_grad_()

    buffer.arrays["final_value"][:] = -1
    buffer.start(np.zeros((N, 2), np.float32))
    buffer.fill_final_values(value)
    assert not calls, "nothing was truncated"
    buffer.store_final_obs(0, np.array([1]), np.array([[5, 0]], np.float32))
    buffer.store_final_obs(2, np.array([0, 1]), np.array([[6, 0], [7, 0]], np.float32))
    buffer.fill_final_values(value)
    assert len(calls) == 1
    assert calls[0].tolist() == [[5, 0], [6, 0], [7, 0]]
    assert buffer.final_value.tolist() == [[-1, 50], [-1, -1], [60, 70]]


def test_more_final_observations_than_environments() -> None:
    """Room is made at first for one of each environment; every step may end all of them."""
    steps, envs = 40, 3
    buffer = RolloutBuffer(steps, envs, (2,))
    buffer.start(np.zeros((envs, 2), np.float32))
    wanted = numbers(steps, envs, 2)
    for t in range(steps):
        kept = np.arange(envs)[: 1 + t % envs]
        buffer.store_final_obs(t, kept, wanted[t, kept])
    places = [t * envs + i for t in range(steps) for i in range(1 + t % envs)]
    assert buffer.final_place.tolist() == places
    assert np.array_equal(buffer.final_obs, wanted.reshape(-1, 2)[places])
    buffer.fill_final_values(lambda obs: obs.sum(-1))
    filled = buffer.final_value.flatten()[places].numpy()
    assert np.array_equal(filled, wanted.sum(-1).flatten()[places])


def test_final_observations_are_copied(buffer: RolloutBuffer) -> None:
    """An environment hands out the same memory again at its next step."""
    final = np.ones((1, 2), np.float32)
    buffer.store_final_obs(0, np.array([0]), final)
    final[:] = 9
    assert buffer.final_obs.tolist() == [[1, 1]]


def test_small_indices_do_not_overflow() -> None:
    buffer = RolloutBuffer(300, 2, ())
    buffer.store_final_obs(299, np.array([1], np.int8), np.zeros(1, np.float32))
    assert buffer.final_place.tolist() == [599]


def test_a_new_rollout_forgets_the_final_observations(buffer: RolloutBuffer) -> None:
    buffer.store_final_obs(1, np.array([0]), np.ones((1, 2), np.float32))
    assert len(buffer.final_obs) == 1
    buffer.start(np.zeros((N, 2), np.float32))
    assert buffer.final_obs.shape == (0, 2)
    assert buffer.final_place.shape == (0,)


def test_advantages_are_those_of_its_arrays(buffer: RolloutBuffer) -> None:
    a, random = buffer.arrays, np.random.default_rng(0)
    for name in ("reward", "value", "final_value", "last_value"):
        a[name][...] = random.normal(size=a[name].shape)
    a["terminated"][0, 1] = a["truncated"][1, 0] = True
    buffer.compute_advantages(0.9, 0.8)
    names = ("reward", "value", "terminated", "truncated", "final_value", "last_value")
    advantage, target = gae(*[a[name] for name in names], 0.9, 0.8)  # type: ignore[arg-type]
    assert np.array_equal(buffer.advantage.numpy(), advantage)
    assert np.array_equal(buffer.target.numpy(), target)
    assert advantage.any()


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 4)])
def test_sizes_must_be_positive(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"at least 1, got {sizes[0]} and {sizes[1]}"):
        RolloutBuffer(*sizes, (2,))


def test_wrong_shapes_are_refused(buffer: RolloutBuffer) -> None:
    with pytest.raises(ValueError, match=r"final_obs must have shape \(2, 2\), got \(1, 2\)"):
        buffer.store_final_obs(0, np.array([0, 1]), np.zeros((1, 2), np.float32))
    assert len(buffer.final_obs) == 0
    with pytest.raises(ValueError, match="broadcast"):
        buffer.start(np.zeros((N, 3), np.float32))
    with pytest.raises(IndexError):
        buffer.store_step(T, *[np.zeros(N)] * 4)
    buffer.store_final_obs(0, np.array([1]), np.zeros((1, 2), np.float32))
    with pytest.raises(ValueError, match=r"for each of 1 observations, got shape \(1, 1\)"):
        buffer.fill_final_values(lambda obs: obs[:, :1])
