"""The order of samples: a permutation, and one that looks like chance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from operant.compiler.philox import philox
from operant.ppo.kernels.cpu.shuffle import (
    ROUNDS,
    bits_for,
    shuffle_keys,
    shuffle_keys_of_many,
    shuffled_index,
)


@numba.njit
def _fill(out, count, keys):  # type: ignore[no-untyped-def]
    bits = bits_for(count)
    for k in range(out.size):
        out[k] = shuffled_index(k, count, bits, keys)


Places = NDArray[np.int64]


def orders(
    count: int, epochs: int, seed: int = 0, iteration: int = 0, first: int | None = None
) -> Iterator[Places]:
    """For each epoch where the places go, all of them or the `first` ones."""
    for keys in shuffle_keys(seed, iteration, epochs):
        out = np.empty(count if first is None else first, np.int64)
        _fill(out, count, keys)
        yield out


def order(count: int, seed: int = 0, iteration: int = 0, epoch: int = 0) -> Places:
    """That of one epoch."""
    return list(orders(count, epoch + 1, seed, iteration))[epoch]


def is_permutation(places: Places) -> bool:
    return bool((np.sort(places) == np.arange(places.size)).all())


@pytest.mark.parametrize("seed", range(10))
def test_small_counts(seed: int) -> None:
    for count in range(1, 71):
        assert is_permutation(order(count, seed)), count


@pytest.mark.parametrize("bits", range(7, 18))
def test_powers_of_two_and_their_neighbours(bits: int) -> None:
    for count in (2**bits - 1, 2**bits, 2**bits + 1):
        assert is_permutation(order(count, seed=bits))


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(1, 300_000),
    seed=st.integers(0, 2**64 - 1),
    iteration=st.integers(0, 2**63 - 1),
)
def test_any_count(count: int, seed: int, iteration: int) -> None:
    for places in orders(count, 2, seed, iteration):
        assert is_permutation(places)


@pytest.mark.parametrize(("count", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (2**31, 31)])
def test_bits(count: int, bits: int) -> None:
    assert bits_for(count) == bits


def test_a_huge_count_needs_no_memory() -> None:
    (places,) = orders(2**31, 1, seed=5, first=10_000)
    assert len(np.unique(places)) == 10_000
    assert 0 <= places.min() < 2**24
    assert 2**31 - 2**24 < places.max() < 2**31


# What it depends on -------------------------------------------------------------------------------
def test_everything_changes_the_order() -> None:
    known = [
        order(1000, *numbers).tolist()
        for numbers in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (0, 2**32, 0)]
    ]
    assert len({tuple(places) for places in known}) == len(known)
    # Two random orders of 1000 have one place in common, give or take.
    same = [(np.array(a) == b).sum() for k, a in enumerate(known) for b in known[:k]]
    assert max(same) <= 8


def test_keys_are_pure_and_odd() -> None:
    keys = shuffle_keys(3, 4, 5)
    assert keys.dtype == np.uint64
    assert keys.shape == (5, 2 * ROUNDS)
    assert keys.flags.c_contiguous
    assert (keys[:, 0::2] % 2 == 1).all()  # a multiplier that is even could not be undone
    assert len(np.unique(keys)) == keys.size
    np.random.default_rng(0).random()
    np.testing.assert_array_equal(keys, shuffle_keys(3, 4, 5))
    np.testing.assert_array_equal(keys[:2], shuffle_keys(3, 4, 2))
    largest = shuffle_keys(2**64 - 1, 2**63 - 1, 2**16 - 1)
    assert len(np.unique(largest[:, 1])) == 2**16 - 1


def test_keys_of_many_iterations_are_those_of_each() -> None:
    for first in (0, 7, 2**32 - 2, 2**63 - 5):
        many = shuffle_keys_of_many(9, first, 4, 3)
        assert many.shape == (4, 3, 2 * ROUNDS)
        assert many.flags.c_contiguous
        each = [shuffle_keys(9, first + k, 3) for k in range(4)]
        np.testing.assert_array_equal(many, each)
        assert len(np.unique(many)) == many.size
        for k, epoch, turn in itertools.product(range(4), range(3), range(ROUNDS)):
            number = first + k
            counter = (number & 0xFFFFFFFF, number >> 32, epoch, turn)
            words = [int(word) for word in philox(counter, (9, 0))]
            assert many[k, epoch, 2 * turn] == (words[0] << 32 | words[1] | 1)
            assert many[k, epoch, 2 * turn + 1] == words[2] << 32 | words[3]


# Chance -------------------------------------------------------------------------------------------
def excess(counts: Places, expected: float) -> float:
    """Chi-square of cells that should hold `expected` each, in deviations above its mean."""
    freedom = counts.size - 1
    chi = ((counts - expected) ** 2 / expected).sum()
    return float((chi - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("count", [16, 48, 64, 100])
def test_every_place_goes_everywhere(count: int) -> None:
    """Over many epochs, each pair of place and sample comes up equally often."""
    rounds = 40 * count
    seen = np.zeros((count, count), np.int64)
    for places in orders(count, rounds, seed=11):
        seen[np.arange(count), places] += 1
    assert excess(seen, rounds / count) < 6
    for place in (0, 1, count // 2, count - 1):
        assert excess(seen[place], rounds / count) < 6


@pytest.mark.parametrize("count", [2**12, 5000])
def test_neighbours_part(count: int) -> None:
    """The distance of two samples that come one after the other is anything."""
    cells = np.zeros(64, np.int64)
    for places in orders(count, 20, seed=7, iteration=3):
        steps = np.diff(places) % count
        cells += np.bincount(steps * 64 // count, minlength=64)
    assert excess(cells, cells.sum() / 64) < 6


@pytest.mark.parametrize(("envs", "steps"), [(64, 128), (50, 100), (7, 300)])
def test_minibatches_have_their_share_of_every_environment_and_step(envs: int, steps: int) -> None:
    count, minibatches = envs * steps, 4
    for what in (envs, steps):
        worst = 0.0
        for places in orders(count, 30, seed=1, iteration=2):
            group = places % envs if what == envs else places // envs
            for part in np.array_split(group, minibatches):
                held = np.bincount(part, minlength=what)
                worst = max(worst, excess(held, part.size / what))
        assert worst < 6
