"""The policy's random numbers: the documented words, whatever the batch; and shuffles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.compiler.philox import POLICY_BLOCK, philox, uniforms
from operant.training.noise import fill_uniforms, shuffled


def drawn(seed: int, first_step: int, steps: int, envs: int, size: int) -> np.ndarray:
    out = np.full((steps, envs, size), np.nan, np.float32)
    fill_uniforms(out, seed, first_step)
    return out


def documented(seed: int, step: int, env: int, size: int) -> np.ndarray:
    """By the letter of the module's description, with the NumPy generator."""
    numbers: list[float] = []
    for block in range((size + 3) // 4):
        counter = (step % 2**32, step >> 32, seed >> 32, POLICY_BLOCK + block)
        words = philox(counter, (seed % 2**32, env))
        numbers += [(int(word) >> 8) * 2.0**-24 for word in words]
    return np.array(numbers[:size], np.float32)


@pytest.mark.parametrize("size", range(1, 10))
def test_the_documented_words(size: int) -> None:
    found = drawn(seed=7, first_step=100, steps=3, envs=5, size=size)
    for t in range(3):
        for i in range(5):
            assert np.array_equal(found[t, i], documented(7, 100 + t, i, size))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**32, 2**63, 2**64 - 1])),
    step=st.one_of(st.integers(0, 2**62), st.sampled_from([2**31, 2**32 - 1, 2**32, 2**40])),
    env=st.integers(0, 20),
    size=st.integers(1, 9),
)
def test_wide_seeds_and_late_steps(seed: int, step: int, env: int, size: int) -> None:
    """A run of more than 2**32 steps goes on with new numbers: the step counts in 64 bits."""
    found = drawn(seed, step, 2, env + 1, size)
    assert np.array_equal(found[0, env], documented(seed, step, env, size))
    assert np.array_equal(found[1, env], documented(seed, step + 1, env, size))


def test_splitting_a_rollout_changes_nothing() -> None:
    whole = drawn(3, 50, 10, 4, 3)
    parts = [drawn(3, 50, 4, 4, 3), drawn(3, 54, 1, 4, 3), drawn(3, 55, 5, 4, 3)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_other_environments_and_numbers_beside_it_change_nothing() -> None:
    whole = drawn(3, 50, 10, 9, 6)
    assert np.array_equal(drawn(3, 50, 10, 4, 6), whole[:, :4])
    assert np.array_equal(drawn(3, 50, 10, 9, 2), whole[:, :, :2])


def test_any_memory_is_filled() -> None:
    out = np.zeros((10, 8, 5), np.float32)
    fill_uniforms(out[1:9:2, ::2, 1:4], 3, 50)
    assert np.array_equal(out[1:9:2, ::2, 1:4], drawn(3, 50, 4, 4, 3))
    assert not out[::2].any()
    assert not out[:, 1::2].any()


def test_everything_that_differs_makes_a_difference() -> None:
    numbers = drawn(0, 0, 30, 20, 5).flatten()
    assert len(np.unique(numbers)) > 0.99 * numbers.size
    for other in (drawn(1, 0, 30, 20, 5), drawn(2**32, 0, 30, 20, 5), drawn(0, 2**32, 30, 20, 5)):
        assert (other.flatten() == numbers).mean() < 0.01


def test_an_environments_own_numbers_are_others() -> None:
    """Environments draw from the same generator; their blocks end where the policy's begin."""
    zero = np.zeros(6, np.int64)
    theirs = np.stack(uniforms(zero, np.arange(6), zero, zero, 4), -1)
    assert not np.isin(drawn(0, 0, 1, 6, 4)[0], theirs).any()


def test_numbers_are_uniform() -> None:
    numbers = np.sort(drawn(11, 0, 50, 1000, 2).flatten().astype(np.float64))
    assert numbers[0] >= 0
    assert numbers[-1] < 1
    levels = np.arange(len(numbers)) / len(numbers)
    distance = np.abs(numbers - levels).max() * math.sqrt(len(numbers))
    assert distance < 1.95, "Kolmogorov's D, probability 0.001"
    assert np.array_equal(numbers * 2**24, np.floor(numbers * 2**24)), "exact in float32"


def test_neighbours_are_independent() -> None:
    numbers = drawn(11, 0, 40, 400, 4).astype(np.float64) - 0.5
    for axis in range(3):
        one, other = np.moveaxis(numbers, axis, 0)[:-1], np.moveaxis(numbers, axis, 0)[1:]
        correlation = 12 * (one * other).mean()
        assert abs(correlation) < 4 / math.sqrt(one.size)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_beyond_64_bits_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be between 0 and"):
        drawn(seed, 0, 1, 1, 1)


# Shuffles -----------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_a_shuffle_is_a_permutation(count: int) -> None:
    order = shuffled(count, 0, 0, 0)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(count))


def test_a_shuffle_depends_on_each_argument_and_on_nothing_else() -> None:
    cases = [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 1),
        (2**32, 0, 0),
        (2**64 - 1, 0, 0),
    ]
    cases += [(0, 0, 2**16 - 1), (0, 2**40, 0), (0, 2**16, 0)]
    orders = {case: shuffled(100, *case).tolist() for case in cases}
    assert len({tuple(order) for order in orders.values()}) == len(cases)
    np.random.seed(1)
    assert all(shuffled(100, *case).tolist() == order for case, order in orders.items())


def test_every_place_is_as_likely_as_another() -> None:
    first = [shuffled(5, 3, iteration, 0)[0] for iteration in range(2000)]
    counts = np.bincount(first, minlength=5)
    assert ((counts - 400) ** 2 / 400).sum() < 18.5, "chi square, probability 0.001"
