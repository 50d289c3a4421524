"""What the rounds of two sides that took turns say: the ratio, how sure it is, and a verdict.

In a round of two equal sides the ratio is above 1 as often as it is so far below 1. From that
alone, without a word about how the noise is distributed, Wilcoxon's signed ranks give an interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.999
"""Of the interval: of a thousand rows of two equal sides, one is called different."""
LEAST = 0.01
"""Less than that is not called a difference: where the linker puts a loop can be worth as much."""
FEWEST = 11
"""Rounds that an interval of that level needs: chance gives eleven equal signs once in 1024."""


@dataclass(frozen=True)
class Paired:
    """The ratio of two sides over the rounds, with its interval."""

    ratio: float
    """The median over all rounds and means of two rounds (the Hodges-Lehmann estimate)."""
    low: float
    high: float
    verdict: str
    """``equal``, ``faster``, ``slower``, or ``too few rounds``."""

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Paired:
        """What the ratios of the rounds amount to; above 1 is faster.

        Raises:
            ValueError: no round, or a ratio that is not a positive number.
        """
        if not ratios or not all(0 < one < math.inf for one in ratios):
            raise ValueError(f"ratios of rounds must be positive numbers, got {list(ratios)}")
        logs = [math.log(one) for one in ratios]
        means = sorted((a + b) / 2 for k, a in enumerate(logs) for b in logs[k:])
        cut = _cut(len(logs))
        low, high = (math.exp(means[cut]), math.exp(means[-1 - cut]))
        ratio = math.exp(statistics.median(means))
        return cls(ratio, low, high, _verdict(len(ratios), ratio, low, high))


def _verdict(rounds: int, ratio: float, low: float, high: float) -> str:
    if rounds < FEWEST:
        return "too few rounds"
    if low <= 1 <= high or abs(ratio - 1) < LEAST:
        return "equal"
    return "faster" if ratio > 1 else "slower"


def _cut(rounds: int) -> int:
    """How many of the sorted means lie outside the interval on each side; 0 if `LEVEL` cannot
    be reached: then it is all of them."""
    counts = [1]  # ways to reach each sum of the ranks of the rounds above 1
    for rank in range(1, rounds + 1):
        added = [0] * rank + counts
        counts = [a + b for a, b in zip(counts + [0] * rank, added, strict=True)]
    cut, ways = 0, counts[0]
    while 2 * (ways + counts[cut + 1]) <= (1 - LEVEL) * 2**rounds:
        cut += 1
        ways += counts[cut]
    return cut
