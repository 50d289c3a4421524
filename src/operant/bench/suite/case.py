"""`Case`: one thing that the suite measures, and what the rounds said of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

UNITS = ("steps/s", "samples/s", "us", "s", "B")
"""Of a figure. A speed ends in ``/s``; of everything else less is better."""


class Work(Protocol):
    """A case that was opened: everything is made and compiled."""

    def measure(self, seconds: float) -> float:
        """One figure, in the case's unit, from about so many seconds of work."""

    def details(self) -> dict[str, float]:
        """Further figures by name, of all rounds so far."""

    def close(self) -> None:
        """Release it."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Args:
        name: ``what/of which/how``, such as ``vecenv_step/CartPole-v1/cpu``.
        unit: one of `UNITS`.
        open: makes it; called once, in the first round.
        quick: whether it belongs to the quick suite as well.
        most_rounds: where a round is expensive.
    """

    name: str
    unit: str
    open: Callable[[], Work]
    quick: bool = False
    most_rounds: int = 99

    @property
    def more_is_better(self) -> bool:
        """Whether the figure is a speed."""
        return self.unit.endswith("/s")

    @property
    def is_time(self) -> bool:
        """Whether the figure depends on how fast the machine is."""
        return self.unit != "B"


@dataclass
class Measured:
    """A case, and what each round said."""

    case: Case
    rounds: list[float] = field(default_factory=list)
    details: dict[str, float] = field(default_factory=dict)
    trouble: str = ""
    """Why it was not measured, if it was not."""

    def record(self) -> dict[str, Any]:
        """Flat, for JSON."""
        found: dict[str, Any] = {"name": self.case.name, "unit": self.case.unit}
        if self.trouble:
            return {**found, "trouble": self.trouble}
        low, high = median_interval(self.rounds)
        return {
            **found,
            "median": _rounded(statistics.median(self.rounds)),
            "low": _rounded(low),
            "high": _rounded(high),
            "rounds": [_rounded(one) for one in self.rounds],
            **{name: _rounded(value) for name, value in self.details.items()},
        }


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


LEVEL = 0.95
"""Of the interval of a median."""


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the median lies with a probability of `LEVEL` or more, as far
    as there are enough of them; all of them, if not.

    How many values lie below the median is binomial, whatever the noise looks like.
    """
    ordered, count = sorted(values), len(values)
    cut, below = 0, 0.5**count
    while 2 * (below + math.comb(count, cut + 1) * 0.5**count) <= 1 - LEVEL:
        cut += 1
        below += math.comb(count, cut) * 0.5**count
    return ordered[cut], ordered[count - 1 - cut]


class Throughput:
    """See `Work`: something done again and again; the figure is items a second.

    Args:
        run: does it once.
        items: that once is worth.
        close: releases what it holds.
    """

    def __init__(
        self, run: Callable[[], Any], items: int, close: Callable[[], Any] = lambda: None
    ) -> None:
        self._run, self._items, self.close = run, items, close
        run()  # compiles
        self._once = min(_timed(run, 1) for _ in range(3))

    def measure(self, seconds: float) -> float:
        """See `Work`."""
        count = max(1, round(seconds / self._once))
        return self._items * count / _timed(self._run, count)

    def details(self) -> dict[str, float]:
        """None."""
        return {}


class Duration(Throughput):
    """See `Work`: something done again and again; the figure is the seconds of one time."""

    def __init__(
        self, run: Callable[[], Any], close: Callable[[], Any] = lambda: None, scale: float = 1.0
    ) -> None:
        super().__init__(run, 1, close)
        self._scale = scale

    def measure(self, seconds: float) -> float:
        """See `Work`."""
        return self._scale / super().measure(seconds)


class Latency:
    """See `Work`: calls timed one by one; the figure is their median in microseconds, and
    ``p99`` is a detail.

    Args:
        run: the call; on a GPU it waits for the result.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self._all: list[float] = []
        for _ in range(10):
            run()

    def measure(self, seconds: float) -> float:
        """See `Work`."""
        found: list[float] = []
        now = time.perf_counter()
        end = now + seconds
        while now < end or len(found) < 3:
            self._run()
            before, now = now, time.perf_counter()
            found.append(1e6 * (now - before))
        self._all += found
        return statistics.median(found)

    def details(self) -> dict[str, float]:
        """The 99th percentile of all calls, in microseconds."""
        ordered = sorted(self._all)
        return {"p99": ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)))]}

    def close(self) -> None:
        """Nothing is held."""


class Once:
    """See `Work`: a figure that is found by doing something as a whole.

    Args:
        run: does it, and gives the figure.
    """

    def __init__(self, run: Callable[[], float]) -> None:
        self._run = run

    def measure(self, seconds: float) -> float:
        """See `Work`."""
        return self._run()

    def details(self) -> dict[str, float]:
        """None."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


def _timed(run: Callable[[], Any], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        run()
    return max(time.perf_counter() - began, 1e-9)
