"""What several rounds of a measurement amount to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rounds:
    """Steps a second in each round, and what they say together.

    Raises:
        ValueError: no round.
    """

    sps: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.sps:
            raise ValueError("there is no round to summarise")

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.sps)

    @property
    def iqr(self) -> float:
        """Between the quartiles: half of the rounds lie in a band this wide."""
        if len(self.sps) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.sps, n=4, method="inclusive")
        return high - low

    @property
    def spread(self) -> float:
        """Slowest to fastest round, relative to the median."""
        return (max(self.sps) - min(self.sps)) / self.median

    @property
    def relative_iqr(self) -> float:
        """`iqr`, relative to the median."""
        return self.iqr / self.median

    def record(self) -> dict[str, object]:
        """For JSON."""
        return {
            "median": round(self.median, 1),
            "min": round(min(self.sps), 1),
            "max": round(max(self.sps), 1),
            "iqr": round(self.iqr, 1),
            "spread": round(self.spread, 4),
            "rounds": [round(one, 1) for one in self.sps],
        }


def shares(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Shares of the time by part, over all rounds; they sum to 1.

    Args:
        parts: seconds by part, one dict a round, all with the same names.
    """
    sums = {name: sum(max(one[name], 0.0) for one in parts) for name in parts[0]}
    total = sum(sums.values())
    found = {name: round(seconds / total, 4) for name, seconds in sums.items()}
    largest = max(found, key=lambda name: found[name])
    found[largest] = round(found[largest] + 1 - sum(found.values()), 4)  # what rounding took
    return found


def clearly_different(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether every round of one is faster than every round of the other.

    For two times five rounds of the same thing, chance does that once in 126 times.
    """
    return min(one) > max(other) or min(other) > max(one)
