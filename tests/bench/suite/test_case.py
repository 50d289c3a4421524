"""What rounds amount to, and the ways to measure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from operant.bench.suite import case as suite_case
from operant.bench.suite.case import (
    LEVEL,
    Case,
    Duration,
    Latency,
    Measured,
    Once,
    Throughput,
    median_interval,
)


@pytest.mark.parametrize(
    ("count", "left_out"),
    # Twice the binomial tail up to `left_out` is at most 5 %, and of one more it is not.
    [(1, 0), (2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5)],
)
def test_interval_of_a_median_by_the_table_of_the_sign_test(count: int, left_out: int) -> None:
    values = [float(k) for k in np.random.default_rng(count).permutation(count)]
    assert median_interval(values) == (left_out, count - 1 - left_out)


def test_the_interval_has_the_median_as_often_as_it_says() -> None:
    random, count = np.random.default_rng(0), 2000
    hits = 0
    for _ in range(count):
        low, high = median_interval(list(random.lognormal(0.0, 1.0, 12)))  # its median is 1
        hits += low <= 1.0 <= high
    assert LEVEL - 0.015 <= hits / count <= 0.995


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless it is moved: its time is the only entry."""
    now = [0.0]
    monkeypatch.setattr(suite_case.time, "perf_counter", lambda: now[0])
    return now


def test_speed_is_items_over_seconds(clock: list[float]) -> None:
    def run() -> None:
        clock[0] += 0.01

    closed: list[bool] = []
    work = Throughput(run, 250, lambda: closed.append(True))
    began = clock[0]
    assert work.measure(0.1) == pytest.approx(25_000)
    assert clock[0] - began == pytest.approx(0.1)
    assert work.details() == {}
    work.close()
    assert closed == [True]


def test_a_duration_is_the_seconds_of_one_time(clock: list[float]) -> None:
    def run() -> None:
        clock[0] += 0.02

    assert Duration(run).measure(0.1) == pytest.approx(0.02)


def test_latency_is_a_median_with_its_tail(clock: list[float]) -> None:
    times: Iterator[float] = iter([1e-5] * 10 + [2e-5] * 97 + [5e-5] * 3)

    def run() -> None:
        clock[0] += next(times)

    work = Latency(run)
    assert work.measure(97 * 2e-5 + 3 * 5e-5 - 1e-9) == pytest.approx(20)
    assert work.details()["p99"] == pytest.approx(50)


def test_a_record() -> None:
    one = Measured(Case("a/b", "steps/s", lambda: Once(lambda: 1.0)), [3.0, 1.0, 2.0])
    one.details = {"p99": 7.123456}
    assert one.record() == {
        "name": "a/b",
        "unit": "steps/s",
        "median": 2.0,
        "low": 1.0,
        "high": 3.0,
        "rounds": [3.0, 1.0, 2.0],
        "p99": 7.1235,
    }
    one.trouble = "it cannot"
    assert one.record() == {"name": "a/b", "unit": "steps/s", "trouble": "it cannot"}
    units = {unit: Case("", unit, one.case.open) for unit in suite_case.UNITS}
    assert [unit for unit, case in units.items() if case.more_is_better] == ["steps/s", "samples/s"]
    assert [unit for unit, case in units.items() if not case.is_time] == ["B"]
