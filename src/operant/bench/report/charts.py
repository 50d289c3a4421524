"""Charts as SVG, in the colours of the page they are in, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from operant.toolchain.text import short

COLOURS = 8
"""Of the page: classes ``c0`` to ``c7``."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 300, 62, 14, 12, 40


@dataclass(frozen=True)
class Line:
    """A line of a chart, with a band around it where there are several of a kind."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()
    """x, low, high."""


@dataclass(frozen=True)
class Bar:
    """A bar, with the range that its figure had."""

    name: str
    value: float
    low: float
    high: float
    shown: str
    """The figure in words."""
    colour: int = 0
    note: str = ""


def bars(rows: Sequence[Bar]) -> str:
    """Rows of a name, a bar and a figure. The scale is logarithmic where values differ by more than
    thirty times, and says so.

    Raises:
        ValueError: a value that is not positive, or none at all.
    """
    values = [value for row in rows for value in (row.value, row.low, row.high)]
    if not values or min(values) <= 0 or not all(map(math.isfinite, values)):
        raise ValueError("bars need positive numbers")
    most, least = max(values), min(values)
    logarithmic = most / least > 30
    floor = 10 ** math.floor(math.log10(least) - 0.3)

    def share(value: float) -> float:
        if not logarithmic:
            return value / most
        return math.log(value / floor) / math.log(most / floor)

    lines = ['<div class="bars">']
    for row in rows:
        low, high, end = (100 * share(value) for value in (row.low, row.high, row.value))
        lines.append(
            f'<div class="label">{escape(row.name)}</div>'
            f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(row.name)}: {escape(row.shown)}">'
            f'<rect class="c{row.colour % COLOURS}" x="0" y="1" width="{end:.2f}" height="8"/>'
            f'<line class="range" x1="{low:.2f}" x2="{high:.2f}" y1="5" y2="5"/></svg>'
            f'<div class="figure">{escape(row.shown)}<small>{escape(row.note)}</small></div>'
        )
    note = '<p class="note">logarithmic scale</p>' if logarithmic else ""
    return "\n".join([*lines, "</div>", note])


def lines(
    found: Sequence[Line], x_name: str, y_name: str, log_x: bool = False, from_zero: bool = False
) -> str:
    """A chart of lines with a legend below; `from_zero`: the upright axis begins at 0.

    Raises:
        ValueError: no points, or, on a logarithmic axis, some that are not positive.
    """
    xs = [x for line in found for x, _ in line.points]
    xs += [x for line in found for x, _, _ in line.band]
    ys = [y for line in found for _, y in line.points]
    ys += [y for line in found for _, low, high in line.band for y in (low, high)]
    if not xs or (log_x and min(xs) <= 0):
        raise ValueError("a chart needs points, positive ones on a logarithmic axis")
    across = _Axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, log_x)
    least = min(0.0, *ys) if from_zero else min(ys)
    up = _Axis(least, max(ys), _HEIGHT - _BOTTOM, _TOP, False)
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(y_name)} by {escape(x_name)}">'
    ]
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_tick(value)}</text>')
    for value in across.ticks():
        x = across.at(value)
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{_tick(value)}</text>'
        )
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{escape(x_name)}</text>'
        f'<text x="{_LEFT + 4}" y="{_TOP + 4}">{escape(y_name)}</text>'
    )
    for k, line in enumerate(found):
        parts.append(_line(line, k % COLOURS, across, up))
    legend = "".join(
        f'<li><i class="c{k % COLOURS}"></i>{escape(line.name)}</li>'
        for k, line in enumerate(found)
    )
    return "\n".join(
        [*parts, "</svg>", f'<ul class="legend">{legend}</ul>' if len(found) > 1 else ""]
    )


def _line(line: Line, colour: int, across: _Axis, up: _Axis) -> str:
    parts = []
    if line.band:
        there = [f"{across.at(x)},{up.at(high)}" for x, _, high in line.band]
        back = [f"{across.at(x)},{up.at(low)}" for x, low, _ in reversed(line.band)]
        parts.append(f'<polygon class="band c{colour}" points="{" ".join([*there, *back])}"/>')
    places = [(across.at(x), up.at(y)) for x, y in line.points]
    joined = " ".join(f"{x},{y}" for x, y in places)
    parts.append(f'<polyline class="line c{colour}" points="{joined}"/>')
    if len(places) <= 24:
        parts += [f'<circle class="c{colour}" cx="{x}" cy="{y}" r="3"/>' for x, y in places]
    return "".join(parts)


class _Axis:
    """Numbers to places between two ends of a picture."""

    def __init__(self, least: float, most: float, start: float, end: float, log: bool) -> None:
        self._log = log
        if least == most:
            least, most = (least / 2, most * 2) if log else (least - 0.5, most + 0.5)
        if not log:
            step = _step(most - least)
            least, most = math.floor(least / step) * step, math.ceil(most / step) * step
            self._step = step
        self._least, self._most, self._start, self._end = least, most, start, end

    def at(self, value: float) -> float:
        """The place of a number."""
        if self._log:
            share = math.log(value / self._least) / math.log(self._most / self._least)
        else:
            share = (value - self._least) / (self._most - self._least)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        """Round numbers on it."""
        if not self._log:
            count = round((self._most - self._least) / self._step)
            return [self._least + k * self._step for k in range(count + 1)]
        low, high = math.ceil(math.log10(self._least)), math.floor(math.log10(self._most))
        powers = [10.0**k for k in range(low, high + 1)]
        if len(powers) > 2:
            return powers[:: -(-len(powers) // 6)]
        finer = [k * 10.0**p for p in range(low - 1, high + 1) for k in (1, 2, 5)]
        return [tick for tick in finer if self._least <= tick <= self._most] or [self._least]


def _step(width: float) -> float:
    """A round distance of which four to eight fit."""
    power = float(10 ** math.floor(math.log10(width / 4)))
    return next(power * k for k in (1, 2, 5, 10) if width / (power * k) <= 6)


def _tick(value: float) -> str:
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.4g}"
    return short(value) if value > 0 else f"-{short(-value)}"
