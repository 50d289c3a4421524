"""Line plots of braille characters: 2 x 4 dots in each cell of a terminal.

`draw` first reduces a series to the lowest and the highest value in each column of dots, so that
what follows costs the same for a hundred points and for a million.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Dots = NDArray[np.bool_]
Range = tuple[float, float]

MOST_SERIES = 128
"""In one canvas: the owner of a cell is an int8."""
_BITS = np.array([[1, 8], [2, 16], [4, 32], [64, 128]], dtype=np.uint8)  # Of the dots in a cell.
_FLAT = 1e-9  # A range this small beside its values is rounding: drawn as if it were one value.
_FAR = 1e9  # Rows. A line to a point further off than this is vertical.
_NOTHING = 1e-18  # A share of a mean that cannot change it.


@dataclass(frozen=True, eq=False)
class Series:
    """Points to join by a line.

    Raises:
        ValueError: the arrays are not of one length.
    """

    name: str
    x: Floats  # [n], increasing.
    y: Floats  # [n]. NaN and infinities are missing values: the line skips them.

    def __post_init__(self) -> None:
        if self.x.ndim != 1 or self.x.shape != self.y.shape:
            raise ValueError(f"x and y must be of one length, got {self.x.shape}, {self.y.shape}")


@dataclass(frozen=True, eq=False)
class Canvas:
    """A drawn plot; row 0 is the top."""

    glyphs: NDArray[np.uint32]  # [height, width] code points; a space where nothing is drawn.
    owners: NDArray[np.int8]  # [height, width] the series that a cell shows; -1: none.
    x_range: Range
    y_range: Range
    log_y: bool

    def lines(self) -> list[str]:
        """The rows as text."""
        return ["".join(map(chr, row)) for row in self.glyphs.tolist()]

    def column_of(self, x: float) -> int:
        """The cell that `x`, of the x range, is drawn in."""
        dot = _positions(np.array([x]), self.x_range, 2 * self.glyphs.shape[1])
        return int(np.rint(dot[0])) // 2

    def row_of(self, y: float) -> int:
        """The cell that `y`, of the y range, is drawn in."""
        dot = _rows(np.array([y]), self.y_range, 4 * self.glyphs.shape[0], self.log_y)
        return int(np.rint(dot[0])) // 4


def draw(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    x_range: Range | None = None,
    y_range: Range | None = None,
    log_y: bool = False,
) -> Canvas:
    """Draw the first 128 series, later ones on top, on `width` x `height` cells.

    Without a range it is that of the points. Only points inside the x range count. With `log_y`,
    values that are not positive are missing.

    Raises:
        ValueError: no cells, or a range that is empty, not finite, or for logarithms not positive.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a canvas needs at least one cell, got {width} x {height}")
    x_range = _checked(x_range) if x_range else x_extent(series)
    columns = [_reduce(one.x, one.y, x_range, 2 * width, log_y) for one in series[:MOST_SERIES]]
    y_range = _checked(y_range, log_y) if y_range else _y_extent(columns, log_y)
    bits = np.zeros((height, width), dtype=np.uint8)
    owners = np.full((height, width), -1, dtype=np.int8)
    for number, reduced in enumerate(columns):
        cells = _pack(_dots(reduced, y_range, (4 * height, 2 * width), log_y))
        drawn = cells > 0  # A cell has one colour: it shows one series only, the last.
        bits[drawn], owners[drawn] = cells[drawn], number
    glyphs = np.where(bits > 0, np.uint32(0x2800) + bits, np.uint32(ord(" ")))
    return Canvas(glyphs, owners, x_range, y_range, log_y)


def x_extent(series: Sequence[Series]) -> Range:
    """The range of all x; with some room where it is empty or a single value."""
    ends = np.array([one.x[[0, -1]] for one in series if len(one.x)])
    ends = ends[np.isfinite(ends)]
    return _roomy(float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)


@dataclass(frozen=True)
class _Columns:
    """A series as a plot shows it, in the m dot columns that have points."""

    column: NDArray[np.int64]  # [m], increasing.
    y: Floats  # [4, m] the first, last, lowest and highest value of each.


def _reduce(x: Floats, y: Floats, x_range: Range, count: int, log_y: bool) -> _Columns:
    part = np.clip((np.arange(count + 1) - 0.5) / (count - 1), 0, 1)
    edges = x_range[0] * (1 - part) + x_range[1] * part
    edges[-1] = math.nextafter(x_range[1], math.inf)  # The last column has its end, too.
    bounds = np.searchsorted(x, edges)
    columns = _summarise(y, bounds)
    if not _present(columns.y, log_y).all():
        present = np.flatnonzero(_present(y, log_y))
        columns = _summarise(y[present], np.searchsorted(present, bounds))
    return columns


def _summarise(y: Floats, bounds: NDArray[np.int64]) -> _Columns:
    """The columns with points; those of column i are y[bounds[i] : bounds[i + 1]]."""
    column = np.flatnonzero(bounds[1:] > bounds[:-1])
    if not column.size:
        return _Columns(column, np.empty((4, 0)))
    starts, ends = bounds[column], bounds[column + 1]
    inside = y[: ends.max()]
    with np.errstate(invalid="ignore"):
        low, high = np.minimum.reduceat(inside, starts), np.maximum.reduceat(inside, starts)
    return _Columns(column, np.stack((y[starts], y[ends - 1], low, high)))


def _present(y: Floats, log_y: bool) -> Dots:
    return np.isfinite(y) & (y > 0) if log_y else np.isfinite(y)


def _dots(columns: _Columns, y_range: Range, shape: tuple[int, int], log_y: bool) -> Dots:
    """Which dots of [rows, columns] the line of a series covers."""
    dots = np.zeros(shape, dtype=np.bool_)
    known = columns.column
    if not known.size:
        return dots
    first, last, low, high = _rows(columns.y, y_range, shape[0], log_y)
    # Columns without points take the straight line from the one before to the one after.
    column = np.arange(known[0], known[-1] + 1)
    before, after = np.searchsorted(known, column, "right") - 1, np.searchsorted(known, column)
    part = (column - known[before]) / np.maximum(known[after] - known[before], 1)
    leave = np.rint(last[before] + (first[after] - last[before]) * part)
    enter, top, bottom = leave.copy(), leave.copy(), leave.copy()
    here = known - known[0]
    enter[here], top[here], bottom[here] = np.rint(first), np.rint(high), np.rint(low)
    # Each of two neighbours covers half of the jump between them.
    jump = enter[1:] - leave[:-1]
    half = leave[:-1] + np.trunc(jump / 2)
    other = half + np.sign(jump)
    top[:-1], bottom[:-1] = np.minimum(top[:-1], half), np.maximum(bottom[:-1], half)
    top[1:], bottom[1:] = np.minimum(top[1:], other), np.maximum(bottom[1:], other)
    row = np.arange(float(shape[0]))[:, None]
    dots[:, known[0] : known[-1] + 1] = (row >= top) & (row <= bottom)
    return dots


def _pack(dots: Dots) -> NDArray[np.uint8]:
    """Dots [4 h, 2 w] as the low byte of braille characters [h, w]."""
    packed = np.zeros((dots.shape[0] // 4, dots.shape[1] // 2), dtype=np.uint8)
    for row, column in np.ndindex(4, 2):
        packed |= dots[row::4, column::2] * _BITS[row, column]
    return packed


def _rows(y: Floats, y_range: Range, count: int, log_y: bool) -> Floats:
    """Where y lies among `count` rows of dots, not yet rounded; outside the range, outside them."""
    low, high = y_range
    if log_y:
        y, low, high = np.log10(y), math.log10(low), math.log10(high)
    return np.clip(count - 1 - _positions(y, (low, high), count), -_FAR, _FAR)


def _positions(values: Floats, extent: Range, count: int) -> Floats:
    """Values as positions: 0 at the start of the range, `count` - 1 at its end."""
    scale = max(abs(extent[0]), abs(extent[1]))  # The width of a range may be beyond all floats.
    low, high = extent[0] / scale, extent[1] / scale
    with np.errstate(over="ignore"):
        return (values / scale - low) / (high - low) * (count - 1)


def _checked(given: Range, log: bool = False) -> Range:
    low, high = given
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not log)):
        kind = "positive and increasing" if log else "finite and increasing"
        raise ValueError(f"a range must be {kind}, got {low} to {high}")
    return _roomy(float(low), float(high), log)


def _y_extent(columns: Sequence[_Columns], log_y: bool) -> Range:
    y = np.concatenate([np.empty((4, 0)), *(reduced.y for reduced in columns)], axis=1)
    if not y.size:
        return (1.0, 10.0) if log_y else (0.0, 1.0)
    return _roomy(float(y[2].min()), float(y[3].max()), log_y)


def _roomy(low: float, high: float, log: bool = False) -> Range:
    """The range from low to high, widened if it is a single value, or as good as."""
    size = max(abs(low), abs(high))
    if high - low > _FLAT * size:
        return low, high
    largest, smallest = sys.float_info.max, math.ulp(0.0)
    if log:
        return max(low / 2, smallest), min(high * 2, largest)
    room = 0.1 * size or 1.0
    return max(low - room, -largest), min(high + room, largest)


def ticks(low: float, high: float, count: int, log: bool = False) -> list[float]:
    """At most `count` round values from low to high: multiples of 1, 2 or 5 times a power of ten.

    There is at least one if `count` is 2 or more. With `log` they are powers of ten, if the range
    has two of those.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high and count > 0):
        return []
    if log and low > 0:
        powers = ticks(math.ceil(math.log10(low)), math.floor(math.log10(high)), count)
        values = [float(f"1e{power:.0f}") for power in powers if power.is_integer()]
        values = [value for value in values if low <= value <= high]
        if values:
            return values
    # Exact, because 3 * 0.1 is not 0.3; by way of str, because 0.3 is not 3 / 10.
    bottom, top = Fraction(str(float(low))), Fraction(str(float(high)))
    width = (top - bottom) / count
    finest = math.floor(math.log10(width.numerator) - math.log10(width.denominator))
    steps = (
        digit * Fraction(10) ** power for power in itertools.count(finest) for digit in (1, 2, 5)
    )
    step = next(step for step in steps if top // step - math.ceil(bottom / step) < count)
    values = [float(step * i) for i in range(math.ceil(bottom / step), top // step + 1)]
    return sorted(set(values))


def format_tick(value: float, digits: int = 6) -> str:
    """A short label of at most `digits` (3 or more) significant digits: 1.2M, 0.003, 1e-5."""
    if not math.isfinite(value):
        return str(value)
    if value and not 1e-3 <= abs(value) < 1e15:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    value = float(f"{value:.{digits}g}")  # First, because 999.9999 may become 1k.
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{unit}"
    return f"{value + 0.0:.{digits}g}"  # Minus zero is shown as zero.


def smooth(y: Floats, weight: float) -> Floats:
    """TensorBoard's smoothing: the exponential moving average over the values so far, unbiased.

    `weight` is that of the past; 0 leaves y as it is. Missing values stay, and count for nothing.

    Raises:
        ValueError: a weight outside 0 <= weight < 1.
    """
    if not 0 <= weight < 1:
        raise ValueError(f"a smoothing weight must be from 0 to below 1, got {weight}")
    smoothed = y.astype(np.float64)
    present = np.isfinite(smoothed)
    if weight == 0 or not present.any():
        return smoothed
    values = smoothed[present]
    mean = (1 - weight) * values
    with np.errstate(over="ignore"):  # the largest numbers there are, rounded up
        # Each round doubles how many values of the past are in a mean; nothing grows or cancels.
        reach = 1
        while reach < len(mean) and weight**reach > _NOTHING:
            mean[reach:] += weight**reach * mean[:-reach]
            reach *= 2
        early = mean[:reach]
        early /= -np.expm1(math.log(weight) * np.arange(1, len(early) + 1))
    smoothed[present] = np.clip(mean, values.min(), values.max())
    return smoothed
