"""The braille canvas, its axis labels, and smoothing."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operant.monitor.braille import Canvas, Series, draw, format_tick, smooth, ticks, x_extent

anything = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False)


def series(x, y) -> Series:
    return Series("", np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))


def dots(canvas: Canvas) -> set[tuple[int, int]]:
    """(row, column) of each dot, read off the characters."""
    places = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1)]
    found = set()
    for row, line in enumerate(canvas.lines()):
        for column, character in enumerate(line):
            bits = 0 if character == " " else ord(character) - 0x2800
            assert 0 <= bits < 256
            found |= {
                (4 * row + y, 2 * column + x) for i, (y, x) in enumerate(places) if bits >> i & 1
            }
    return found


def reference(points: list[tuple[float, float]]) -> set[tuple[int, int]]:
    """The dots of a line through (row, column) points, one segment and one column at a time."""
    row, column = points[0]
    found = {(round(row), round(column))}
    for (row, column), (next_row, next_column) in pairwise(points):
        start, end = round(column), round(next_column)
        if start == end:
            found |= {(r, start) for r in between(round(row), round(next_row))}
        path = [row + (next_row - row) * i / max(end - start, 1) for i in range(end - start + 1)]
        for i, (a, b) in enumerate(pairwise(map(round, path))):
            middle = a + int((b - a) / 2)
            beyond = middle + (b > a) - (b < a)
            found |= {(r, start + i) for r in between(a, middle)}
            found |= {(r, start + i + 1) for r in between(beyond, b)}
    return found


def between(a: int, b: int) -> range:
    return range(min(a, b), max(a, b) + 1)


@given(
    width=st.integers(1, 6),
    height=st.integers(1, 4),
    # Eighths of a dot, and then some so that no rounding is a tie.
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 5, 20]), st.none() | st.integers(-20, 140)),
        min_size=1,
        max_size=40,
    ),
)
def test_dots_are_those_of_the_naive_line(width, height, steps):
    columns, rows = 2 * width, 4 * height
    x = np.cumsum([step for step, _ in steps]) / 8 + 1 / 16
    y = np.array([math.nan if level is None else level / 8 + 0.0123 for _, level in steps])
    canvas = draw([series(x, y)], width, height, x_range=(0, columns - 1), y_range=(0, rows - 1))
    points = [(rows - 1 - b, a) for a, b in zip(x, y, strict=True) if a <= columns - 1 and b == b]
    expected = reference(points) if points else set()
    assert dots(canvas) == {(row, column) for row, column in expected if 0 <= row < rows}


def test_a_small_plot_by_hand():
    assert draw([series([0, 1, 2, 3], [0, 1, 2, 3])], 2, 1).lines() == ["⡠⠊"]
    assert draw([series([0, 3], [3, 0])], 2, 1).lines() == ["⠑⢄"]
    # Of the jump of three rows between two columns, each has half.
    assert draw([series([0, 1], [0, 3])], 1, 1).lines() == ["⡜"]


@given(
    points=st.lists(st.tuples(anything, anything), max_size=30),
    width=st.integers(1, 5),
    height=st.integers(1, 5),
    log_y=st.booleans(),
    ordered=st.booleans(),
)
def test_no_data_raises(points, width, height, log_y, ordered):
    x, y = np.array(points, dtype=np.float64).reshape(-1, 2).T
    line = Series("", np.sort(x) if ordered else x, y)
    canvas = draw([line, line], width, height, log_y=log_y)
    assert canvas.glyphs.shape == canvas.owners.shape == (height, width)
    for low, high in (canvas.x_range, canvas.y_range):
        assert -math.inf < low < high < math.inf
    shown = np.isfinite(y) & (y > 0) if log_y else np.isfinite(y)
    if ordered and np.isfinite(x).all() and shown.any():
        assert (canvas.owners >= 0).any()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1, 2], [math.nan, math.nan]),
        ([1, 2], [math.inf, -math.inf]),
    ],
)
def test_nothing_to_draw(x, y):
    canvas = draw([series(x, y)], 3, 2)
    assert canvas.lines() == ["   ", "   "]
    assert (canvas.owners == -1).all()
    assert canvas.y_range == (0, 1)


def test_one_point_is_one_dot_in_the_middle():
    canvas = draw([series([7], [5])], 3, 3)
    assert len(dots(canvas)) == 1
    assert canvas.owners[1, 1] == 0


def test_a_constant_is_a_level_line_in_the_middle():
    canvas = draw([series(range(100), [5.0] * 100)], 4, 3)
    assert (canvas.owners[1] == 0).all()
    assert len(dots(canvas)) == 8
    assert draw([series([1, 2], [5, 5])], 4, 3, log_y=True).y_range == (2.5, 10)
    tiny = 5e-324  # There is nothing between this and 0.
    assert draw([series([1, 2], [tiny, tiny])], 4, 3, log_y=True).y_range == (tiny, 2 * tiny)


def test_the_largest_numbers_are_drawn():
    top = np.finfo(np.float64).max
    canvas = draw([series([-top, top], [-top, top])], 2, 1)
    assert canvas.lines() == ["⡠⠊"]


@pytest.mark.parametrize("place", [0, 12_345, 99_999])
def test_one_extreme_among_many_is_seen(place):
    y = np.zeros(100_000)
    y[place] = 1
    canvas = draw([series(np.arange(100_000), y)], 50, 5)
    assert canvas.y_range == (0, 1)
    assert {column // 2 for row, column in dots(canvas) if row == 0} == {canvas.column_of(place)}


@given(st.lists(finite, min_size=1, max_size=300))
def test_the_range_is_that_of_the_values(y):
    canvas = draw([series(range(len(y)), y)], 3, 2)
    low, high = canvas.y_range
    assert low <= min(y)
    assert high >= max(y)
    if max(y) / 2 - min(y) / 2 > 1e-3 * max(map(abs, y)):
        assert (low, high) == (min(y), max(y))
        rows = {row for row, _ in dots(canvas)}
        assert {0, 7} <= rows


@given(st.lists(anything, min_size=1, max_size=50), st.booleans())
def test_missing_values_are_as_if_they_were_not_there(y, log_y):
    y = np.array(y)
    x = np.arange(len(y), dtype=np.float64)
    kept = np.isfinite(y) & (y > 0) if log_y else np.isfinite(y)
    whole = draw([series(x, y)], 5, 3, log_y=log_y, x_range=(0, len(y)))
    part = draw([series(x[kept], y[kept])], 5, 3, log_y=log_y, x_range=(0, len(y)))
    assert whole.lines() == part.lines()
    assert whole.y_range == part.y_range


def test_a_logarithmic_axis_makes_powers_a_straight_line():
    x = np.arange(40.0)
    powers = draw([series(x, 10.0 ** (x - 20))], 20, 5, log_y=True)
    assert powers.lines() == draw([series(x, x)], 20, 5).lines()
    assert powers.y_range == (1e-20, 1e19)
    assert [powers.row_of(y) for y in (1e19, 1, 1e-20)] == [0, 2, 4]


def test_a_cell_shows_the_last_series_in_it():
    flat, rising = series([0, 9], [1, 1]), series([0, 9], [0, 2])
    canvas = draw([flat, rising], 5, 3)
    assert canvas.owners.tolist() == [[-1, -1, -1, 1, 1], [0, 1, 1, 1, 0], [1, 1, -1, -1, -1]]
    alone = draw([rising], 5, 3).glyphs
    assert (canvas.glyphs[canvas.owners == 1] == alone[canvas.owners == 1]).all()
    assert draw([flat] * 300, 2, 2, y_range=(0, 2)).owners.max() == 127


def test_only_points_in_the_x_range_count():
    canvas = draw([series(range(101), [*range(100), 1e9])], 10, 2, x_range=(50, 99))
    assert canvas.x_range == (50, 99)
    assert canvas.y_range == (50, 99)


def test_a_line_beyond_the_y_range_is_cut_off():
    canvas = draw([series([0, 3, 9], [0.4, 5e300, 0.4])], 5, 1, y_range=(0, 1))
    assert dots(canvas) == {(row, column) for row in (0, 1, 2) for column in (0, 9)}
    far_away = [0, 1e308, 1e308, 0]
    canvas = draw([series([0, 3, 6, 9], far_away)], 5, 1, y_range=(0, 1e-300))
    assert dots(canvas) == {(row, column) for row in range(4) for column in (0, 9)}


def test_x_extent():
    assert x_extent([series([1, 5], [0, 0]), series([], []), series([3, 9], [0, 0])]) == (1, 9)
    assert x_extent([]) == (0, 1)


@pytest.mark.parametrize("bad", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_bad_ranges_and_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="finite and increasing"):
        draw([], 1, 1, x_range=bad)
    with pytest.raises(ValueError, match="finite and increasing"):
        draw([], 1, 1, y_range=bad)
    with pytest.raises(ValueError, match="positive and increasing"):
        draw([], 1, 1, y_range=(0, 1), log_y=True)
    with pytest.raises(ValueError, match="at least one cell, got 0 x 3"):
        draw([], 0, 3)
    with pytest.raises(ValueError, match=r"one length, got \(2,\), \(3,\)"):
        series([1, 2], [1, 2, 3])


@given(finite, finite, st.integers(1, 20), st.booleans())
def test_ticks_increase_inside_the_range(a, b, count, log):
    low, high = min(a, b), max(a, b)
    found = ticks(low, high, count, log)
    assert len(found) <= count
    assert all(low <= tick <= high for tick in found)
    assert all(a < b for a, b in pairwise(found))
    assert found or count < 2 or low == high


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 6, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 0.3, 4, [0, 0.1, 0.2, 0.3]),
        (0.1, 0.3, 3, [0.1, 0.2, 0.3]),
        (-75, 580, 8, [0, 100, 200, 300, 400, 500]),
        (0, 3.1e6, 4, [0, 1e6, 2e6, 3e6]),
        (-1e308, 1e308, 3, [-1e308, 0, 1e308]),
        (1, 1, 5, []),
        (2, 1, 5, []),
        (0, math.nan, 5, []),
        (0, math.inf, 5, []),
    ],
)
def test_ticks(low, high, count, expected):
    assert ticks(low, high, count) == expected


def test_logarithmic_ticks_are_powers_of_ten():
    assert ticks(2e-5, 0.3, 10, log=True) == [1e-4, 1e-3, 1e-2, 1e-1]
    assert ticks(1e-10, 1e10, 3, log=True) == [1e-10, 1, 1e10]
    assert ticks(2, 9, 5, log=True) == [2, 4, 6, 8]
    below = math.nextafter(1000, 0)  # Its logarithm is 3.
    assert ticks(1, below, 9, log=True) == [1, 10, 100]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, "0"),
        (-0.0, "0"),
        (-12, "-12"),
        (0.003, "0.003"),
        (1e-5, "1e-5"),
        (-2.5e-7, "-2.5e-7"),
        (999, "999"),
        (999.9999999, "1k"),
        (350e3, "350k"),
        (1.2e6, "1.2M"),
        (2e9, "2G"),
        (7e12, "7T"),
        (1e300, "1e300"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_labels_are_short(value, label):
    assert format_tick(value) == label


def test_labels_of_few_digits():
    assert format_tick(487.3219, 4) == "487.3"
    assert format_tick(-1234567.0, 3) == "-1.23M"
    assert format_tick(1.23456e-7, 3) == "1.23e-7"


@given(finite, st.integers(3, 8))
def test_labels_say_the_value(value, digits):
    label = format_tick(value, digits)
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(label[-1], 1)
    said = float(label.rstrip("kMGT")) * size
    if math.isfinite(said):  # The largest number may be rounded up.
        assert said == pytest.approx(value, rel=10.0 ** (1 - digits), abs=0)


def naive_smooth(y, weight):
    """TensorBoard's loop."""
    last, count, smoothed = 0.0, 0, []
    for value in y:
        if not math.isfinite(value):
            smoothed.append(value)
            continue
        last, count = weight * last + (1 - weight) * value, count + 1
        smoothed.append(last / (1 - weight**count))
    return smoothed


@pytest.mark.parametrize("weight", [0.0, 1e-300, 0.3, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 4097])
def test_smoothing_is_tensorboards(count, weight):
    rng = np.random.default_rng(count)
    y = rng.normal(100, 10, count)
    y[rng.random(count) < 0.1] = math.nan
    y[rng.random(count) < 0.02] = math.inf
    before = y.copy()
    np.testing.assert_allclose(smooth(y, weight), naive_smooth(y, weight), rtol=1e-10)
    np.testing.assert_array_equal(y, before)


@given(st.lists(anything, max_size=50), st.floats(0, 1, exclude_max=True))
@example([np.finfo(np.float64).max] * 3, 0.75)
@example([-np.finfo(np.float64).max], 0.75)
def test_smoothing_stays_between_the_extremes(y, weight):
    y = np.array(y, dtype=np.float64)
    smoothed = smooth(y, weight)
    present = np.isfinite(y)
    np.testing.assert_array_equal(smoothed[~present], y[~present])
    if present.any():
        y, smoothed = y[present] / 2, smoothed[present] / 2  # So that some room can be added.
        room = 1e-9 * np.abs(y).max()
        assert y.min() - room <= smoothed.min()
        assert smoothed.max() <= y.max() + room


def test_a_constant_stays_constant():
    np.testing.assert_allclose(smooth(np.full(5000, 7.0), 0.999), 7, rtol=1e-13)


@pytest.mark.parametrize("weight", [-0.1, 1, math.nan])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ValueError, match="from 0 to below 1"):
        smooth(np.zeros(3), weight)
