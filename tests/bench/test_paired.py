"""What the rounds of two sides say."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from operant.bench import paired
from operant.bench.paired import FEWEST, LEVEL, Paired
from operant.bench.turns import Measured, Row


def test_the_estimate_by_hand() -> None:
    found = Paired.of([math.exp(x) for x in (0.0, 0.1, 0.5)])
    # the rounds and their means: 0, 0.05, 0.1, 0.25, 0.3, 0.5
    assert math.log(found.ratio) == pytest.approx(0.175)
    assert (math.log(found.low), math.log(found.high)) == (0.0, pytest.approx(0.5))
    assert found.verdict == "too few rounds"


def test_the_interval_is_that_of_all_signs() -> None:
    """Counted: of all 2**n signs, how often would the interval miss 0?"""
    rounds = 12
    cut, sizes = paired._cut(rounds), np.arange(1.0, rounds + 1)
    below = sum(
        sum(size for size, sign in zip(sizes, signs, strict=True) if sign) <= cut
        for signs in product((False, True), repeat=rounds)
    )
    assert 2 * below <= (1 - LEVEL) * 2**rounds * (1 + 1e-9)
    assert cut == 1  # ranks that sum to 0 or 1: one way each, 4 in 4096
    assert paired._cut(FEWEST) == 0
    assert 2 / 2**FEWEST <= 1 - LEVEL < 2 / 2 ** (FEWEST - 1)


def noisy(random: np.random.Generator, slowdown: float = 1.0) -> list[float]:
    """Rounds on a busy machine: a process is up to 2 % slower as a whole, every fifth slice takes
    up to three times as long, and the machine as a whole drifts."""
    measured = Measured(Row("", "env"))
    for _ in range(12):
        slices = random.lognormal(0.0, 0.03, (2, 24))
        slices *= np.where(random.random((2, 24)) < 0.2, random.uniform(1.0, 3.0, (2, 24)), 1.0)
        slices *= np.linspace(1.0, random.uniform(0.7, 1.4), 24)
        slices *= random.uniform(1.0, 1.02, (2, 1))
        measured.note({"wall": (list(slices[0]), list(slices[1] * slowdown))}, 1)
    return measured.ratios["wall"]


def test_equal_sides_are_called_equal() -> None:
    random = np.random.default_rng(0)
    verdicts = [Paired.of(noisy(random)).verdict for _ in range(400)]
    assert verdicts.count("equal") >= 397  # 0.4 wrong ones are expected, four once in 1300 times


def test_a_tenth_is_found_and_a_hundredth_is_nothing() -> None:
    random = np.random.default_rng(1)
    slow = [Paired.of(noisy(random, slowdown=1.1)) for _ in range(100)]
    assert [one.verdict for one in slow].count("slower") > 95
    assert np.median([one.ratio for one in slow]) == pytest.approx(1 / 1.1, abs=0.01)
    assert all(one.low <= one.ratio <= one.high for one in slow)
    fast = [Paired.of(noisy(random, slowdown=1 / 1.1)).verdict for _ in range(100)]
    assert fast.count("faster") > 95
    assert Paired.of([1.005] * 12).verdict == "equal"
    assert Paired.of([1.02] * 12).verdict == "faster"
    assert Paired.of([1.02] * 10).verdict == "too few rounds"


def test_both_directions_are_alike() -> None:
    rounds = noisy(np.random.default_rng(2))
    one, other = Paired.of(rounds), Paired.of([1 / ratio for ratio in rounds])
    assert one.ratio == pytest.approx(1 / other.ratio)
    assert (one.low, one.high) == (pytest.approx(1 / other.high), pytest.approx(1 / other.low))


@pytest.mark.parametrize("rounds", [[], [0.0, 1.0], [math.nan], [math.inf]])
def test_what_is_no_ratio_is_refused(rounds: list[float]) -> None:
    with pytest.raises(ValueError, match="must be positive numbers"):
        Paired.of(rounds)
