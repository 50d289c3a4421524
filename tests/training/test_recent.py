"""`Recent`: the last episodes, and figures about them as NumPy computes them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from operant.training.recent import Recent


def filled(count: int, most: int = 100, dtype: str = "f4") -> Recent:
    random, recent = np.random.default_rng(count), Recent(most)
    recent.add((100 * random.standard_normal(count)).astype(dtype), random.integers(1, 500, count))
    return recent


@pytest.mark.parametrize("count", [1, 2, 7, 8, 99, 100, 250])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_figures_are_numpys_to_the_bit(count: int, dtype: str) -> None:
    recent = filled(count, 200, dtype)
    returns, lengths = np.array([r for r, _ in recent]), np.array([n for _, n in recent])
    assert recent.spread() == (
        returns.mean(),
        returns.min(),
        returns.max(),
        returns.std(),
        lengths.mean(),
    )


def test_nothing_is_not_a_number() -> None:
    assert all(math.isnan(figure) for figure in Recent(3).spread())
    assert not Recent(3)


def test_the_last_are_kept_in_order() -> None:
    recent = Recent(3)
    recent.add(np.array([1.5], np.float32), np.array([1], np.int32))
    recent.add(np.array([], np.float32), np.array([], np.int32))
    recent.extend([(2.5, 2), (3.5, 3)])
    assert list(recent) == [(1.5, 1), (2.5, 2), (3.5, 3)]
    recent.append((4.5, 4))
    assert list(recent) == [(2.5, 2), (3.5, 3), (4.5, 4)]
    assert (recent[0], recent[-1], recent[1:]) == ((2.5, 2), (4.5, 4), [(3.5, 3), (4.5, 4)])
    assert [type(x) for x in recent[0]] == [float, int]
    recent.add(np.arange(9.0), np.arange(9))
    assert list(recent) == [(6.0, 6), (7.0, 7), (8.0, 8)]
    recent.clear()
    assert len(recent) == 0
    recent.extend([(1.0, 2**62 - 1)])
    assert recent[0][1] == 2**62 - 1  # a checkpoint may say so


def test_equal_where_the_episodes_are() -> None:
    one, same, other = filled(50), filled(50), filled(51)
    assert one == same
    assert one != other
    assert one != list(one)
    assert np.array_equal(np.asarray(one), np.asarray(list(one)))
    assert repr(filled(0)) == "Recent([])"


def test_what_was_handed_out_stays() -> None:
    recent = filled(100)
    returns = recent.returns
    kept = returns.copy()
    recent.add(np.ones(60), np.ones(60, np.int64))
    assert np.array_equal(returns, kept)
