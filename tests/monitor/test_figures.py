"""Figures as short texts, whatever the numbers are."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from operant.monitor.figures import (
    duration,
    hardware,
    metric_names,
    number,
    overlap,
    ranks,
    since,
    split,
    status_text,
)
from operant.monitor.panels import large_figures, machine
from operant.monitor.source import View
from operant.toolchain.text import bar

NAN, INF = math.nan, math.inf


def view(status: str = "running", heartbeat: float = NAN, **last: Any) -> View:
    """Of one row."""
    table = {name: np.array([value], dtype=np.float64) for name, value in last.items()}
    return View("one", status, heartbeat=heartbeat, table=table)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NAN, "-"),
        (INF, "-"),
        (-INF, "-"),
        (0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (-7.0, "-7"),
        (9999, "9999"),
        (-9999, "-9999"),
        (10_000, "10 k"),
        (1234.5, "1.23 k"),
        (45_600, "45.6 k"),
        (-45_600, "-45.6 k"),
        (999_499, "999 k"),
        (999_999, "1 M"),
        (-999_999, "-1 M"),
        (999.96, "1 k"),
        (9999.5, "10 k"),
        (1_234_567, "1.23 M"),
        (2.5e9, "2.5 G"),
        (3e12, "3 T"),
        (9.999e14, "1.0e+15"),
        (1e15, "1.0e+15"),
        (-1.5e300, "-1.5e+300"),
        (1.797e308, "1.8e+308"),
        (0.5, "0.5"),
        (20.352, "20.4"),
        (0.99999, "1"),
        (0.00123, "0.00123"),
        (5e-324, "4.94e-324"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_number_of_digits() -> None:
    assert (number(1234.5, 2), number(0.98765, 4), number(12_345, 5)) == (
        "1.2 k",
        "0.9877",
        "12.345 k",
    )


@given(st.floats())
def test_a_number_is_short_and_nearly_right(value: float) -> None:
    text = number(value)
    assert len(text) <= 10
    assert text.isascii()
    if not math.isfinite(value):
        assert text == "-"
    elif abs(value) < 1.7e308:  # of more, the text may round to infinity
        digits, _, unit = text.partition(" ")
        scale = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]
        assert abs(float(digits)) < (1e4 if not unit else 1e3) or "e" in digits
        assert float(digits) * scale == pytest.approx(value, rel=0.051, abs=0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (NAN, "-"),
        (INF, "-"),
        (-1, "-"),
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.9, "59 min 59 s"),
        (3599.99, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (100 * 3600 - 1, "99 h 59 min"),
        (100 * 3600, "4 days"),
        (86400 * 365, "365 days"),
        (86400 * 1e6, "1 M days"),
        (8.64e304, "1.0e+300 days"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_since() -> None:
    now = time.time()
    today = time.strftime("%H:%M:%S", time.localtime(now))
    # A day ends between two reads of the clock once in a long while.
    assert since(now) in (today, time.strftime("%Y-%m-%d %H:%M", time.localtime(now)))
    assert since(now - 400 * 86400) == time.strftime(
        "%Y-%m-%d %H:%M", time.localtime(now - 400 * 86400)
    )
    assert since(0.0)[:4] in ("1969", "1970")  # by the time zone
    for odd in (NAN, INF, -INF, -1.0, 2.0**35, 1e300):
        assert since(odd) == "?"


def test_status_text() -> None:
    assert status_text(view("finished", 0.0)) == "finished"
    assert status_text(view("stale", 0.0)) == f"stale since {since(0.0)}"
    assert status_text(view("stale")) == "stale since ?"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "    "),
        (1, "████"),
        (0.5, "██  "),
        (0.5 + 1 / 32, "██▏ "),
        (1 - 1 / 32, "███▉"),
        (1 / 128, "    "),  # a quarter of an eighth
        (-3, "    "),
        (1.5, "████"),
        (1e308, "████"),
        (NAN, "    "),
        (INF, "    "),
        (-INF, "    "),
    ],
)
def test_bar(share: float, text: str) -> None:
    assert bar(share, 4) == text


@given(st.floats(), st.integers(0, 200))
def test_a_bar_has_its_width(share: float, width: int) -> None:
    assert cell_len(bar(share, width)) == width


def parts(collect: float, advantages: float, update: float) -> View:
    return view(
        collect_seconds=collect, advantages_seconds=advantages, update_seconds=update, sps=1.0
    )


@pytest.mark.parametrize(
    ("seconds", "shares"),
    [
        ((2.0, 0.0, 2.0), [0.5, 0, 0.5]),
        ((1.0, 2.0, 5.0), [0.125, 0.25, 0.625]),
        ((5e-324, 0.0, 0.0), [1, 0, 0]),
        ((0.0, 0.0, 0.0), []),
        ((1.0, NAN, 1.0), []),
        ((1.0, INF, 1.0), []),
        ((INF, -INF, 1.0), []),
        ((-1.0, 0.0, 0.0), []),
        ((1e300, -1e300, 1.0), []),  # shares of 1e300 would be a long bar
        ((-1.0, 2.0, 3.0), []),
        ((1e308, 1e308, 0.0), []),  # more than a float64 has
    ],
)
def test_split(seconds: tuple[float, float, float], shares: list[float]) -> None:
    found = split(parts(*seconds))
    assert [share for _, share in found] == shares
    assert [name for name, _ in found] == ["collect", "advantages", "update"][: len(shares)]


def test_split_of_nothing() -> None:
    assert split(view()) == []
    assert split(view(collect_seconds=1.0)) == []


@given(st.floats(), st.floats(), st.floats(), st.integers(1, 500))
def test_the_split_has_room(a: float, b: float, c: float, width: int) -> None:
    text = machine(parts(a, b, c), width).plain
    assert text.count("█") <= max(10, min(48, width // 3)) + 1  # each part is rounded


def test_hardware() -> None:
    assert hardware(view()) == []
    found = hardware(
        view(
            cpu_percent=153.4, memory_mb=1234.0, gpu_percent=98.6, gpu_memory_mb=40_960.0,
            gpu_celsius=61.0, gpu_watts=349.6,
        )
    )  # fmt: skip
    assert [one[:2] for one in found] == [
        ("cpu", "153 %"),
        ("memory", "1.23 GB"),
        ("gpu", "99 %"),
        ("gpu memory", "41.0 GB"),
        ("gpu", "61 °C"),
        ("gpu", "350 W"),
    ]
    assert hardware(view(cpu_percent=NAN, memory_mb=INF, gpu_watts=-INF)) == []
    shares = [one[2] for one in found]
    assert shares[0] == pytest.approx(1.534 / (os.cpu_count() or 1))
    assert shares[2] == pytest.approx(0.986)
    assert all(math.isnan(shares[k]) for k in (1, 3, 4, 5))
    found = hardware(view(cpu_percent=0.0, gpu_celsius=-5.0, gpu_watts=1e300))
    assert [one[:2] for one in found] == [("cpu", "0 %"), ("gpu", "-5 °C")]


def test_metric_names() -> None:
    assert metric_names(view()) == []
    names = ("iteration", "zebra", "kl", "steps", "sps", "step", "mean_return", "seconds", "apple")
    found = metric_names(view(**dict.fromkeys(names, 0.0)))
    assert found == ["mean_return", "sps", "kl", "zebra", "apple"]
    assert metric_names(view(loss=1.0, **{"return": 2.0})) == ["return", "loss"]


def test_an_evaluation_stays_until_the_next_one() -> None:
    table = {"eval/return": np.array([NAN, 7.5, NAN]), "mean_return": np.array([1.0, 2.0, 3.0])}
    seen = View("one", "running", table=table)
    assert seen.newest("eval/return") == 7.5
    assert math.isnan(seen.newest("nothing"))
    assert "return 3  eval 7.5" in large_figures(seen, 80).plain
    assert "eval" not in large_figures(view(mean_return=3.0), 80).plain


def test_the_line_of_an_asynchronous_run() -> None:
    last = {"lag": 0.75, "lag_max": 1.0, "queue": 0.0, "learner_idle": 0.031}
    one = view(
        **last, collector_idle=0.42, collect_seconds=1, advantages_seconds=0, update_seconds=1
    )
    text = "lag 0.75 (at most 1)  queue 0  idle: collector 42%, learner 3%"
    assert overlap(one) == text
    for width in (80, 160):  # nothing of it is cut off
        first = machine(one, width).plain.splitlines()[0]
        assert first.endswith(text)
        assert len(first) <= width
    assert "collect 50%" in machine(one, 160).plain
    assert overlap(view(**last)) == ""
    assert overlap(view(**last, collector_idle=NAN)) == ""


def test_ranks_and_what_each_waited() -> None:
    spent = {"collect_seconds": 0.5, "advantages_seconds": 0.1, "update_seconds": 1.4}
    waits = {"all_gather_seconds/rank_0": 0.5, "all_gather_seconds/rank_1": 0.02}
    assert ranks(view(ranks=2.0, **spent, **waits)) == "2 ranks  waiting: 0 25%, 1 1%"
    assert ranks(view(ranks=40.0, **spent)) == "40 ranks"
    assert ranks(view(ranks=1.0, **spent, **waits)) == ""
    assert ranks(view(**spent)) == ""
    assert ranks(view(ranks=NAN, **spent)) == ""
    forged = {"all_gather_seconds/rank_0": 1e300, "all_gather_seconds/rank_1": NAN}
    assert ranks(view(ranks=2.0, **spent, **forged)) == "2 ranks  waiting: 0 100%"
