"""Means over seeds, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest

from operant.render.plot import Curve, draw_runs
from operant.render.seed_bands import mean_curve, mean_of, student_t


@pytest.mark.parametrize(
    ("count", "t"), [(2, 12.706), (5, 2.776), (11, 2.228), (12, 2.201), (31, 2.042), (1001, 1.962)]
)
def test_students_t(count: int, t: float) -> None:
    assert student_t(count) == pytest.approx(t, abs=0.003)  # of printed tables


def test_a_mean_by_hand() -> None:
    mean, half = mean_of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2.0, 5.0]
    assert half == pytest.approx([12.706 * np.sqrt(2) / np.sqrt(2), 0.0])
    assert np.isnan(mean_of(np.array([4.0])).half)


def curve(label: str, steps: list[float], returns: list[float]) -> Curve:
    seconds = np.arange(len(steps), dtype=np.float64)
    return Curve(label, np.array(steps), np.array(returns), seconds, 10.0)


def test_a_mean_curve_covers_what_all_have() -> None:
    short = curve("a", [10, 20, 30], [np.nan, 2.0, 3.0])
    long = curve("b", [10, 20, 30, 40], [1.0, 4.0, 5.0, 9.0])
    found = mean_curve([short, long], "both")
    assert found.steps.tolist() == [20, 30]
    assert found.mean_return.tolist() == [3.0, 4.0]
    assert found.half is not None
    assert found.half == pytest.approx([12.706, 12.706])
    assert (found.label, found.threshold) == ("both", 10.0)


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([curve("a", [1], [1.0])], "at least two runs"),
        ([curve("a", [1], [1.0]), curve("b", [1], [np.nan])], "no finished episodes"),
        ([curve("a", [1, 2], [1.0, 1.0]), curve("b", [3, 4], [1.0, 1.0])], "no steps in common"),
    ],
)
def test_what_has_no_mean(curves: list[Curve], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_curve(curves, "x")


@pytest.mark.parametrize("points", [5, 100])
def test_the_band_is_drawn_inside_the_chart(points: int) -> None:
    steps = np.linspace(1, 9, points)
    runs = [Curve(str(k), steps, steps * k, steps, None) for k in (1, 2, 3)]
    mean = mean_curve(runs, "mean of 3 runs")
    figure = draw_runs([mean])
    (axes,) = figure.axes
    (band,) = axes.collections
    corners = band.get_paths()[0].get_extents()
    low, high = axes.get_ylim()
    assert low <= corners.y0 < 9.0 < corners.y1 <= high
    assert any("95 % interval" in text.get_text() for text in figure.texts)
    assert not any("95 %" in text.get_text() for text in draw_runs(runs).texts)
