"""Advantages and discounted returns on the GPU, interpreted here, against the forms for NumPy and
for tensors: equal to the bit where the arithmetic is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from operant.buffers.advantages import discounted_returns, gae, gae_torch

SIZES = (1, 2, 3, 7, 31, 32, 33, 64, 65, 129, 300)
FACTORS = (0.0, 0.5, 0.95, 0.99, 1.0)
FEW = settings(
    deadline=None,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

pytestmark = pytest.mark.usefixtures("interpreter")


def single(number: float) -> float:
    """`number` as float32. A GPU gets it so; the interpreter computes with what it is given."""
    return float(np.float32(number))


def rollout(steps: int, envs: int, seed: int = 0, ends: float = 0.3) -> tuple[np.ndarray, ...]:
    """Arguments of `gae` up to last_value; final values are NaN where they are not to be read."""
    random = np.random.default_rng(seed)
    reward, value = random.normal(size=(2, steps, envs)).astype(np.float32)
    terminated, truncated = random.random((2, steps, envs)) < ends
    final_value = np.where(
        truncated & ~terminated, random.normal(size=(steps, envs)), np.nan
    ).astype(np.float32)
    last_value = random.normal(size=envs).astype(np.float32)
    return reward, value, terminated, truncated, final_value, last_value


def on_gpu(arrays: tuple[np.ndarray, ...], gamma: float, lam: float) -> tuple[Any, Any]:
    """Results of `gae_triton`; every element is written."""
    from operant.buffers.triton_scans import gae_triton

    out = tuple(torch.full(arrays[0].shape, float("nan")) for _ in range(2))
    gae_triton(*[torch.from_numpy(x) for x in arrays], gamma, lam, out)  # type: ignore[arg-type]
    return out[0].numpy(), out[1].numpy()


@FEW
@given(
    steps=st.integers(1, 9),
    envs=st.sampled_from(SIZES),
    seed=st.integers(0, 10_000),
    ends=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    gamma=st.sampled_from(FACTORS),
    lam=st.sampled_from(FACTORS),
)
def test_advantages(
    steps: int, envs: int, seed: int, ends: float, gamma: float, lam: float
) -> None:
    arrays = rollout(steps, envs, seed, ends)
    gamma, lam = single(gamma), single(lam)
    advantage, target = on_gpu(arrays, gamma, lam)
    wanted = gae(*arrays, gamma, lam)  # type: ignore[arg-type]
    np.testing.assert_array_equal(advantage, wanted[0])
    np.testing.assert_array_equal(target, wanted[1])
    tensors = [torch.from_numpy(x) for x in arrays]
    others = gae_torch(*tensors, gamma, lam)  # type: ignore[arg-type]
    for one, other in zip((advantage, target), others, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=2e-5)


def test_advantages_by_hand() -> None:
    """As in test_advantages.py: gamma and lambda 0.5; one goes on, one terminates, one is cut."""
    nan = float("nan")
    arrays = (
        np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3]], np.float32),
        np.array([[4, 4, 4], [8, 8, 8], [12, 12, 12]], np.float32),
        np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.bool_),
        np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]], np.bool_),
        np.array([[nan, nan, nan], [nan, nan, 20], [nan, nan, nan]], np.float32),
        np.full(3, 16, np.float32),
    )
    advantage, target = on_gpu(arrays, 0.5, 0.5)
    assert advantage.tolist() == [[0.9375, -0.5, 2], [-0.25, -6, 4], [-1, -1, -1]]
    assert target.tolist() == [[4.9375, 3.5, 6], [7.75, 2, 12], [11, 11, 11]]


def test_terminated_counts_where_both_are_set() -> None:
    arrays = rollout(4, 33)
    both = np.ones((4, 33), np.bool_)
    advantage, _ = on_gpu((*arrays[:2], both, both, *arrays[4:]), 0.99, 0.95)
    np.testing.assert_array_equal(advantage, arrays[0] - arrays[1])


def test_neighbouring_memory_is_left_alone() -> None:
    """Lanes beyond the last environment and rows beyond the last step write nothing."""
    from operant.buffers.triton_scans import gae_triton

    arrays = [torch.from_numpy(x) for x in rollout(3, 33)]
    memory = torch.full((2, 5, 33), 7.0)
    gae_triton(*arrays, 0.99, 0.95, (memory[0, 1:4], memory[1, 1:4]))  # type: ignore[arg-type]
    assert (memory[:, [0, 4]] == 7.0).all()
    assert (memory[:, 1:4] != 7.0).all()


@FEW
@given(
    steps=st.integers(1, 9),
    envs=st.sampled_from(SIZES),
    seed=st.integers(0, 10_000),
    ends=st.sampled_from([0.0, 0.3, 1.0]),
    gamma=st.sampled_from(FACTORS),
)
def test_discounted_returns(steps: int, envs: int, seed: int, ends: float, gamma: float) -> None:
    from operant.buffers.triton_scans import discounted_triton

    reward, _, terminated, truncated, _, carry = rollout(steps, envs, seed, ends)
    mine, out = torch.from_numpy(carry.copy()), torch.full((steps, envs), float("nan"))
    flags = [torch.from_numpy(x) for x in (terminated, truncated)]
    discounted_triton(torch.from_numpy(reward), *flags, mine, single(gamma), out)  # type: ignore[call-arg]
    wanted = discounted_returns(reward, terminated | truncated, carry, gamma)
    np.testing.assert_array_equal(out.numpy(), wanted)
    np.testing.assert_array_equal(mine.numpy(), carry)


def test_a_carry_joins_two_halves() -> None:
    from operant.buffers.triton_scans import discounted_triton

    arrays = rollout(8, 65)
    reward, terminated, truncated = (torch.from_numpy(arrays[k]) for k in (0, 2, 3))
    whole, halves = torch.empty(8, 65), torch.empty(8, 65)
    carry = torch.zeros(65)
    discounted_triton(reward, terminated, truncated, carry, 0.9, whole)
    again = torch.zeros(65)
    for k in (slice(0, 4), slice(4, 8)):
        discounted_triton(reward[k], terminated[k], truncated[k], again, 0.9, halves[k])
    assert torch.equal(whole, halves)
    assert torch.equal(carry, again)
