"""Advantages: by hand, against a loop in Python, at the edges; and how the loop is compiled."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from operant.buffers import advantages
from operant.buffers.advantages import discounted_returns, gae, gae_torch


def f32(*rows: Sequence[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def flags(*rows: Sequence[int]) -> np.ndarray:
    return np.array(rows, np.bool_)


def naive(
    reward: np.ndarray,
    value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_value: np.ndarray,
    last_value: np.ndarray,
    gamma: float,
    lam: float,
) -> np.ndarray:
    """One environment at a time, one step at a time, in float64."""
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for i in range(envs):
        for t in reversed(range(steps)):
            following = last_value[i] if t == steps - 1 else value[t + 1, i]
            rest = 0.0 if t == steps - 1 else advantage[t + 1, i]
            if terminated[t, i]:
                following, rest = 0.0, 0.0
            elif truncated[t, i]:
                following, rest = float(final_value[t, i]), 0.0
            delta = float(reward[t, i]) + gamma * float(following) - float(value[t, i])
            advantage[t, i] = delta + gamma * lam * rest
    return advantage


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


def on_torch(arrays: Sequence[np.ndarray], *numbers: float) -> tuple[np.ndarray, np.ndarray]:
    found = gae_torch(*[torch.from_numpy(x) for x in arrays], *numbers)  # type: ignore[arg-type]
    return found[0].numpy(), found[1].numpy()


def on_numpy(arrays: Sequence[np.ndarray], *numbers: float) -> tuple[np.ndarray, np.ndarray]:
    return gae(*arrays, *numbers)  # type: ignore[arg-type]


BOTH = pytest.mark.parametrize("estimate", [on_numpy, on_torch])


@BOTH
def test_three_steps_by_hand(estimate: Any) -> None:
    """gamma 0.5, lambda 0.5, so a trace decays by 0.25; three environments, rewards 1, 2, 3.

    Environment 0, values 4, 8, 12, then 16; no end:
        delta2 = 3 + 0.5 * 16 - 12 = -1      A2 = -1
        delta1 = 2 + 0.5 * 12 -  8 =  0      A1 =  0 + 0.25 * -1    = -0.25
        delta0 = 1 + 0.5 *  8 -  4 =  1      A0 =  1 + 0.25 * -0.25 =  0.9375
    Environment 1, the same, but terminated at step 1:
        delta1 = 2 + 0 - 8 = -6              A1 = -6            (no bootstrap, no trace)
        delta0 =  1 (as above)               A0 =  1 + 0.25 * -6 = -0.5
    Environment 2, the same, but truncated at step 1, where the final observation is worth 20:
        delta1 = 2 + 0.5 * 20 - 8 = 4        A1 =  4            (bootstrap, no trace)
        delta0 =  1                          A0 =  1 + 0.25 * 4  =  2
    """
    nan = float("nan")
    arrays = (
        f32([1, 1, 1], [2, 2, 2], [3, 3, 3]),
        f32([4, 4, 4], [8, 8, 8], [12, 12, 12]),
        flags([0, 0, 0], [0, 1, 0], [0, 0, 0]),
        flags([0, 0, 0], [0, 0, 1], [0, 0, 0]),
        f32([nan, nan, nan], [nan, nan, 20], [nan, nan, nan]),
        np.full(3, 16, np.float32),
    )
    advantage, target = estimate(arrays, 0.5, 0.5)
    assert advantage.tolist() == [[0.9375, -0.5, 2], [-0.25, -6, 4], [-1, -1, -1]]
    assert target.tolist() == [[4.9375, 3.5, 6], [7.75, 2, 12], [11, 11, 11]]


@settings(deadline=None, max_examples=60)
@given(
    steps=st.integers(1, 9),
    envs=st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65]),
    seed=st.integers(0, 10_000),
    ends=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_both_forms_agree_with_a_plain_loop(
    steps: int, envs: int, seed: int, ends: float, gamma: float, lam: float
) -> None:
    arrays = rollout(steps, envs, seed, ends)
    wanted = naive(*arrays, gamma, lam)  # type: ignore[arg-type]
    for estimate in (on_numpy, on_torch):
        advantage, target = estimate(arrays, gamma, lam)
        assert advantage.dtype == target.dtype == np.float32
        np.testing.assert_allclose(advantage, wanted, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(target, wanted + arrays[1], rtol=1e-5, atol=2e-5)


@BOTH
def test_gamma_0_sees_one_reward(estimate: Any) -> None:
    arrays = rollout(6, 5)
    advantage, target = estimate(arrays, 0.0, 0.9)
    np.testing.assert_array_equal(advantage, arrays[0] - arrays[1])
    np.testing.assert_allclose(target, arrays[0], atol=1e-6)


@BOTH
def test_lambda_0_is_one_step_and_1_is_the_whole_return(estimate: Any) -> None:
    reward, value, *_, last_value = rollout(4, 3)
    never, nan = np.zeros((4, 3), np.bool_), np.full((4, 3), np.nan, np.float32)
    arrays = (reward, value, never, never, nan, last_value)
    following = np.concatenate([value[1:], last_value[None]])
    advantage, _ = estimate(arrays, 0.9, 0.0)
    np.testing.assert_allclose(advantage, reward + 0.9 * following - value, atol=1e-5)
    _, target = estimate(arrays, 1.0, 1.0)
    whole = reward[::-1].cumsum(0)[::-1] + last_value
    np.testing.assert_allclose(target, whole, atol=1e-5)


@BOTH
def test_a_constant_reward_for_ever_is_worth_what_the_series_says(estimate: Any) -> None:
    """Cut at a time limit: with the right values, and only then, every advantage is 0."""
    gamma = 0.9
    worth = 1 / (1 - gamma)
    ones = np.ones((5, 2), np.float32)
    value = ones * np.float32(worth)
    end = flags([0, 0], [0, 0], [0, 1], [0, 0], [1, 0])
    never = np.zeros_like(end)
    last = np.full(2, worth, np.float32)
    advantage, _ = estimate((ones, value, never, end, value, last), gamma, 0.95)
    np.testing.assert_allclose(advantage, 0, atol=1e-5)
    advantage, _ = estimate((ones, value, end, never, value, last), gamma, 0.95)
    assert advantage[2, 1] == pytest.approx(1 - worth, abs=1e-5), "as death it is a loss"


@BOTH
def test_where_both_flags_are_set_the_episode_was_terminated(estimate: Any) -> None:
    arrays = list(rollout(4, 6))
    arrays[2] = arrays[3] = np.ones((4, 6), np.bool_)
    for final in (np.nan, 1e30):
        arrays[4] = np.full((4, 6), final, np.float32)
        advantage, _ = estimate(arrays, 0.99, 0.95)
        np.testing.assert_array_equal(advantage, arrays[0] - arrays[1])


@BOTH
def test_a_bad_number_stays_in_its_episode(estimate: Any) -> None:
    reward = f32([1], [1], [np.nan], [1])
    value, end = np.zeros((4, 1), np.float32), flags([0], [1], [0], [0])
    never, final = np.zeros_like(end), np.full((4, 1), np.inf, np.float32)
    for terminated, truncated, known in ((end, never, final), (never, end, value)):
        arrays = (reward, value, terminated, truncated, known, np.zeros(1, np.float32))
        advantage, _ = estimate(arrays, 0.9, 0.9)
        assert np.isfinite(advantage[:, 0]).tolist() == [True, True, False, True]


@BOTH
def test_the_last_value_counts_unless_the_last_step_ended(estimate: Any) -> None:
    zeros = np.zeros((1, 3), np.float32)
    arrays = (zeros, zeros, flags([0, 1, 0]), flags([0, 0, 1]), zeros + 7, f32([10, 10, 10])[0])
    advantage, _ = estimate(arrays, 0.5, 0.95)
    assert advantage.tolist() == [[5, 0, 3.5]]


# The NumPy form -----------------------------------------------------------------------------
def test_any_layout_and_type_is_taken() -> None:
    arrays = rollout(7, 5)
    wanted = gae(*arrays, 0.99, 0.95)
    turned = [np.asfortranarray(x) for x in arrays]
    spaced = [np.repeat(x, 2, -1)[..., ::2] for x in arrays]
    assert not spaced[0].flags.c_contiguous
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in arrays]
    numbers = [*arrays[:2], *(x.astype(np.int64) for x in arrays[2:4]), *arrays[4:]]
    shifted = [
        np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape) for x in arrays
    ]
    assert not shifted[0].flags.aligned
    for changed in (turned, spaced, wide, numbers, shifted):
        for found, right in zip(gae(*changed, 0.99, 0.95), wanted, strict=True):
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, right)
    assert len(advantages._gae.signatures) == 1, "no second compilation, of more than a second"


def test_the_torch_form_keeps_float64() -> None:
    arrays = rollout(7, 5)
    wide = [torch.from_numpy(x).double() if x.dtype == np.float32 else torch.from_numpy(x)
            for x in arrays]  # fmt: skip
    advantage, target = gae_torch(*wide, 0.99, 0.95)  # type: ignore[arg-type]
    assert advantage.dtype == target.dtype == torch.float64
    np.testing.assert_allclose(advantage.numpy(), naive(*arrays, 0.99, 0.95), rtol=1e-12)


def test_inputs_are_not_changed() -> None:
    arrays = rollout(7, 5)
    copies = [x.copy() for x in arrays]
    for estimate in (on_numpy, on_torch):
        estimate(arrays, 0.99, 0.95)
        for array, before in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, before)


def test_out_is_written_to() -> None:
    arrays = rollout(7, 5)
    out = (np.full((7, 5), np.nan, np.float32), np.full((7, 5), np.nan, np.float32))
    found = gae(*arrays, 0.99, 0.95, out=out)
    assert found is out
    for written, wanted in zip(out, gae(*arrays, 0.99, 0.95), strict=True):
        np.testing.assert_array_equal(written, wanted)


def test_an_out_that_cannot_be_written_to_is_refused() -> None:
    arrays = rollout(7, 5)
    good, other = np.empty((2, 7, 5), np.float32)
    read_only = good.copy()
    read_only.setflags(write=False)
    for bad, text in (
        (np.empty((7, 4), np.float32), r"float32 of shape \(7, 5\), got float32 of shape \(7, 4\)"),
        (np.empty((6, 5), np.float32), "out must be float32"),
        (np.empty((7, 5)), "got float64"),
        (np.empty((5, 7), np.float32).T, "contiguous"),
        (read_only, "writeable"),
        (arrays[0], "overlap"),
        (arrays[4], "overlap"),
        (good, "overlap"),
    ):
        for out in ((good, bad), (bad, other if bad is not good else good)):
            with pytest.raises(ValueError, match=text):
                gae(*arrays, 0.99, 0.95, out=out)


@BOTH
@pytest.mark.parametrize(
    ("position", "shape", "text"),
    [
        (0, (7,), r"reward must have shape \[T, N\], got \(7,\)"),
        (1, (7, 4), r"value must have reward's shape \(7, 5\), got \(7, 4\)"),
        (2, (6, 5), "terminated must have reward's shape"),
        (3, (1, 5), "truncated must have reward's shape"),
        (4, (5,), "final_value must have reward's shape"),
        (5, (7, 5), r"last_value must have shape \(5,\), got \(7, 5\)"),
        (5, (1,), "last_value must have shape"),
    ],
)
def test_shapes_must_agree(estimate: Any, position: int, shape: tuple[int, ...], text: str) -> None:
    arrays = list(rollout(7, 5))
    arrays[position] = np.zeros(shape, arrays[position].dtype)
    with pytest.raises(ValueError, match=text):
        estimate(arrays, 0.99, 0.95)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for x86 instructions")
def test_the_loop_is_vectorised() -> None:
    """Compiled anew: a kernel from the cache does not show its instructions."""
    arrays = rollout(2, 4, ends=0)
    compiled = njit(nogil=True, fastmath=False)(advantages._gae.py_func)
    bytes_ = [x.view(np.uint8) if x.dtype == np.bool_ else x for x in arrays]
    out = (np.empty((2, 4), np.float32), np.empty((2, 4), np.float32))
    compiled(*bytes_, np.zeros(4, np.float32), np.float32(0.99), np.float32(0.95), *out)
    np.testing.assert_array_equal(out[0], gae(*arrays, 0.99, 0.95)[0])
    (assembly,) = compiled.inspect_asm().values()
    wide = re.findall(r"\bv?(?:mul|add|sub|fn?m(?:add|sub)\d+)ps\b.*%([xyz])mm", assembly)
    assert len(wide) >= 4, "multiply, add, subtract on several environments at once"


# Discounted returns -------------------------------------------------------------------------
@settings(deadline=None, max_examples=40)
@given(
    steps=st.integers(1, 8),
    envs=st.integers(1, 5),
    seed=st.integers(0, 1000),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_discounted_returns_agree_with_a_plain_loop(
    steps: int, envs: int, seed: int, gamma: float
) -> None:
    random = np.random.default_rng(seed)
    reward = random.normal(size=(steps, envs)).astype(np.float32)
    done = random.random((steps, envs)) < 0.3
    carry = random.normal(size=envs).astype(np.float32)
    running, wanted = carry.astype(np.float64), np.empty((steps, envs))
    for i in range(envs):
        for t in range(steps):
            running[i] = wanted[t, i] = gamma * running[i] + float(reward[t, i])
            running[i] *= not done[t, i]
    found = discounted_returns(reward, done, carry, gamma)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(carry, running, rtol=1e-5, atol=1e-5)


def test_discounted_returns_continue_where_they_stopped() -> None:
    reward, _, done, *_ = rollout(9, 4)
    whole = discounted_returns(reward, done, np.zeros(4, np.float32), 0.9)
    carry = np.zeros(4, np.float32)
    parts = [discounted_returns(reward[a:b], done[a:b], carry, 0.9) for a, b in ((0, 4), (4, 9))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_discounted_returns_refuse_other_shapes() -> None:
    reward, _, done, *_ = rollout(9, 4)
    with pytest.raises(ValueError, match="done must have reward's shape"):
        discounted_returns(reward, done[:8], np.zeros(4, np.float32), 0.9)
    with pytest.raises(ValueError, match=r"carry must have shape \(4,\), got \(1,\)"):
        discounted_returns(reward, done, np.zeros(1, np.float32), 0.9)
