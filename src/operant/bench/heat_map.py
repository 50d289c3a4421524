"""Speed over a grid: a heat map of the two axes that matter most, a panel for each of the others'
combinations."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.bench.grid import Axis
from operant.render.chart import GRAY, GRID, INK, new_figure, quiet, short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELL_W, _CELL_H = 0.86, 0.52  # Inches.
_LEFT, _BOTTOM, _TOP, _GAP = 0.95, 0.55, 0.75, 0.42  # Inches around panels and between them.
_TITLE, _LINE, _LETTER = 0.12, 0.14, 0.062  # Inches above a panel: around its title, and of text.
_MOST_ACROSS = 4
_LEAST_WIDTH = 5.0
_CHOSEN, _FAILED = "#D55E00", "#CC79A7"

Record = Mapping[str, Any]


def main_effects(axes: Sequence[Axis], records: Sequence[Record]) -> dict[str, float]:
    """How much an axis matters: the ratio of its best value's geometric mean speed to its worst's.

    Cells that were not measured count nowhere; an axis with one value has 1.
    """
    found = {}
    for axis in axes:
        means = []
        for value in axis.values:
            speeds = [
                math.log(one["sps"]["median"])
                for one in records
                if one["sps"] is not None and one["values"][axis.name] == value
            ]
            if speeds:
                means.append(statistics.fmean(speeds))
        found[axis.name] = math.exp(max(means) - min(means)) if means else 1.0
    return found


def draw_heat_map(
    axes: Sequence[Axis],
    records: Sequence[Record],
    chosen: Mapping[str, Any] | None = None,
    failed: Sequence[Mapping[str, Any]] = (),
) -> Figure:
    """The chart.

    Args:
        axes: the grid's.
        records: its cells, see `operant.bench.tune.record`.
        chosen: values of the cell to mark as the choice.
        failed: values of cells that did not converge.

    Raises:
        ValueError: nothing was measured.
    """
    speeds = [one["sps"]["median"] for one in records if one["sps"] is not None]
    if not speeds:
        raise ValueError("there is nothing to draw: no cell was measured")
    effects = main_effects(axes, records)
    order = sorted(axes, key=lambda axis: (len(axis.values) < 2, -effects[axis.name]))
    x, y, others = order[0], order[1] if len(order) > 1 else None, order[2:]
    panels = list(itertools.product(*(axis.values for axis in others)))
    with quiet():
        room = len(x.values) * _CELL_W + _GAP - 0.2
        titles = [_title(others, values, room) for values in panels]
        page = _Page(titles, len(x.values), len(y.values) if y else 1)
        figure = new_figure(page.width, page.height)
        for number, combination in enumerate(panels):
            fixed = dict(zip((axis.name for axis in others), combination, strict=True))
            panel = figure.add_axes(page.box(number))
            _dress(panel, x, y, page.is_first(number), page.is_lowest(number))
            panel.set_title(titles[number], fontsize=8, color=INK, pad=5, parse_math=False)
            for record in records:
                if all(record["values"][name] == value for name, value in fixed.items()):
                    _draw_cell(panel, record, x, y, (min(speeds), max(speeds)), chosen, failed)
        _caption(figure, page, chosen, failed)
    return figure


def _title(others: Sequence[Axis], values: Sequence[Any], width: float) -> str:
    """What a panel is of: in one line, or one for each axis if that is wider than `width`."""
    parts = [f"{axis.name} {value}" for axis, value in zip(others, values, strict=True)]
    line = ", ".join(parts)
    return line if len(line) * _LETTER <= width else "\n".join(parts)


class _Page:
    """Where panels are, in shares of the page."""

    def __init__(self, titles: Sequence[str], columns: int, rows: int) -> None:
        self._panels = len(titles)
        self._across = min(self._panels, _MOST_ACROSS)
        self._down = -(-self._panels // self._across)
        self._w, self._h = columns * _CELL_W, rows * _CELL_H
        lines = max(title.count("\n") + 1 for title in titles)
        self._title = _TITLE + _LINE * lines if titles[0] else 0.0
        inner = self._across * self._w + (self._across - 1) * _GAP
        self.width = max(_LEFT + inner + 0.25, _LEAST_WIDTH)
        panels = self._down * (self._h + self._title) + (self._down - 1) * _GAP
        self.height = _TOP + _BOTTOM + panels

    def box(self, number: int) -> tuple[float, float, float, float]:
        row, column = divmod(number, self._across)
        left = _LEFT + column * (self._w + _GAP)
        top = _TOP + row * (self._h + self._title + _GAP) + self._title
        bottom = self.height - top - self._h
        return left / self.width, bottom / self.height, self._w / self.width, self._h / self.height

    def is_first(self, number: int) -> bool:
        """Of its row."""
        return number % self._across == 0

    def is_lowest(self, number: int) -> bool:
        """Of its column."""
        return number + self._across >= self._panels


def _dress(panel: Axes, x: Axis, y: Axis | None, first: bool, lowest: bool) -> None:
    """Ticks and names."""
    rows = y.values if y is not None else ("",)
    panel.set_xlim(-0.5, len(x.values) - 0.5)
    panel.set_ylim(-0.5, len(rows) - 0.5)
    panel.set_xticks(range(len(x.values)), [str(value) for value in x.values])
    panel.set_yticks(range(len(rows)), [str(value) for value in rows])
    panel.tick_params(length=0, labelsize=8.5, labelcolor=INK, pad=4)
    for spine in panel.spines.values():
        spine.set_visible(False)
    if lowest:
        panel.set_xlabel(x.name, color=GRAY, fontsize=9, labelpad=4)
    if first and y is not None:
        panel.set_ylabel(y.name, color=GRAY, fontsize=9, labelpad=6)


def _draw_cell(
    panel: Axes,
    record: Record,
    x: Axis,
    y: Axis | None,
    limits: tuple[float, float],
    chosen: Mapping[str, Any] | None,
    failed: Sequence[Mapping[str, Any]],
) -> None:
    """A square with its speed; noisy ones are hatched, the choice has a frame."""
    from matplotlib.patches import Rectangle

    values = record["values"]
    if values[x.name] not in x.values or (y is not None and values[y.name] not in y.values):
        return  # The base, beside the grid.
    column = x.values.index(values[x.name])
    row = y.values.index(values[y.name]) if y is not None else 0
    corner, sps = (column - 0.5, row - 0.5), record["sps"]
    style: dict[str, Any] = {"facecolor": GRID, "edgecolor": "white", "linewidth": 1.5}
    ink, text, below = GRAY, "\N{EN DASH}", "skipped"
    if sps is not None:
        shade = _shade(sps["median"], limits)
        style["facecolor"], ink = shade, "white" if _is_dark(shade) else INK
        text = short_number(float(f"{sps['median']:.3g}"))
        below = f"±{record['relative_iqr'] / 2:.0%}"
        if record["status"] == "noisy":
            style |= {"hatch": "////", "edgecolor": "white", "alpha": 0.55}
            ink, below = INK, "noisy"
        if values in failed:
            below = "no convergence"
    panel.add_patch(Rectangle(corner, 1, 1, **style))
    center: dict[str, Any] = {"ha": "center", "color": ink, "zorder": 4}
    panel.text(column, row + 0.05, text, va="center", fontsize=9, **center)
    panel.text(column, row - 0.28, below, va="center", fontsize=6, **center)
    for marked, color in ((values == chosen, _CHOSEN), (values in failed, _FAILED)):
        if marked:
            frame: dict[str, Any] = {"fill": False, "edgecolor": color, "linewidth": 2.4}
            inside = (corner[0] + 0.03, corner[1] + 0.03)
            panel.add_patch(Rectangle(inside, 0.94, 0.94, zorder=5, **frame))


def _shade(value: float, limits: tuple[float, float]) -> tuple[float, ...]:
    """From light to dark blue, by speed."""
    low, high = limits
    share = (value - low) / (high - low) if high > low else 1.0
    light, dark = np.array([0.90, 0.94, 0.98]), np.array([0.02, 0.27, 0.49])
    return tuple(light + share * (dark - light))


def _is_dark(shade: Sequence[float]) -> bool:
    return float(np.dot(shade, (0.299, 0.587, 0.114))) < 0.55


def _caption(
    figure: Figure, page: _Page, chosen: Mapping[str, Any] | None, failed: Sequence[Any]
) -> None:
    """What the numbers and frames are."""
    height = page.height
    text = "PPO training, environment steps per second"
    figure.text(0.15 / page.width, 1 - 0.14 / height, text, fontsize=9, color=INK, va="top")
    x, y = 0.15, 1 - 0.36 / height
    notes = [("median and half the distance between quartiles", GRAY)]
    notes += [("chosen", _CHOSEN)] if chosen is not None else []
    notes += [("did not converge", _FAILED)] if failed else []
    for note, color in notes:
        drawn = figure.text(x / page.width, y, note, fontsize=8, color=color, va="top")
        x += drawn.get_window_extent().width / figure.dpi + 0.2
