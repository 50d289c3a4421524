"""Speed by commit: one line for each environment, mode and machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.bench.compare import Line
from operant.render.chart import GRAY, GRID, INK, apart, line_style, new_figure, quiet, short_number
from operant.toolchain.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 8.4, 4.8  # Inches.
_LEFT, _BOTTOM, _TOP, _RIGHT = 0.75, 0.95, 0.5, 0.15  # Inches around the axes and the labels.
_SPACE = 0.3  # Inches from the axes to the labels.
_ENTRY = 0.36  # Inches of height for one label.
_MOST_TICKS = 24
_MOST_CHARACTERS = 30
_WIDE = 20.0  # Fastest over slowest, from which steps are drawn by their logarithm.


def draw_trend(found: Sequence[Line]) -> Figure:
    """The chart of lines with one point an artifact.

    Raises:
        ValueError: no line.
    """
    if not found:
        raise ValueError("there is nothing to draw")
    with quiet():
        height = max(_HEIGHT, _TOP + _BOTTOM + _ENTRY * len(found))
        figure = new_figure(_WIDTH, height)
        labels = [_texts(figure, line, _several_machines(found)) for line in found]
        widths = [text.get_window_extent().width for pair in labels for text in pair]
        right = _SPACE + max(widths) / figure.dpi + _RIGHT
        box = (_LEFT / _WIDTH, _BOTTOM / height, 1 - (_LEFT + right) / _WIDTH, 0.0)
        axes = figure.add_axes((*box[:3], 1 - (_TOP + _BOTTOM) / height))
        _dress(axes, found)
        for index, line in enumerate(found):
            _draw_line(axes, line, line_style(index))
        _place(figure, axes, found, labels)
        caption = "Environment steps per second: median, and slowest to fastest round"
        figure.text(0.15 / _WIDTH, 1 - 0.16 / height, caption, fontsize=9, color=GRAY, va="top")
    return figure


def _several_machines(found: Sequence[Line]) -> bool:
    return len({line.machine for line in found}) > 1


def _texts(figure: Figure, line: Line, with_machine: bool) -> tuple[Any, Any]:
    """A line's name, and below it the last figure and, if need be, the machine."""
    name = _cut(f"{line.env} {line.mode}")
    below = f"{short_number(float(f'{line.points[-1].median:.3g}'))} steps/s"
    below += f", {_cut(line.cpu)}" if with_machine else ""
    return (
        figure.text(0, 0, name, fontsize=9, color=INK, va="bottom", parse_math=False),
        figure.text(0, 0, below, fontsize=7.5, color=GRAY, va="top", parse_math=False),
    )


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _dress(axes: Axes, found: Sequence[Line]) -> None:
    """Grid, limits and ticks; a tick a commit, as far as there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRAY)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=GRAY, pad=5)
    low = min(point.low for line in found for point in line.points)
    high = max(point.high for line in found for point in line.points)
    if high / low > _WIDE:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.4, high * 1.4)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0.0, high * 1.08)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    commits = {p.position: p.commit for line in found for p in line.points}
    last = max(commits)
    axes.set_xlim(-0.3, last + 0.3)
    every = -(-(last + 1) // _MOST_TICKS)
    shown = [position for position in sorted(commits) if (last - position) % every == 0]
    names = [_cut(commits[position]) for position in shown]
    axes.set_xticks(shown, names, rotation=40, ha="right", rotation_mode="anchor", fontsize=7.5)
    axes.set_xlabel("Commit, the oldest first", color=GRAY, fontsize=9, labelpad=4)


def _draw_line(axes: Axes, line: Line, style: dict[str, Any]) -> None:
    x = [point.position for point in line.points]
    median = np.array([point.median for point in line.points])
    below = median - [point.low for point in line.points]
    above = [point.high for point in line.points] - median
    size = 4.5 if len(x) <= _MOST_TICKS else 2.5
    axes.plot(x, median, linewidth=1.9, marker="o", markersize=size, zorder=3, **style)
    bars = np.maximum([below, above], 0.0)  # A figure in a file may be rounded.
    axes.errorbar(
        x, median, bars, fmt="none", ecolor=style["color"], elinewidth=1.1, alpha=0.5, zorder=2
    )


def _place(
    figure: Figure, axes: Axes, found: Sequence[Line], labels: Sequence[tuple[Any, Any]]
) -> None:
    """Put each label at the height of its line's end, and lead a thin line to it."""
    from matplotlib.lines import Line2D

    inches = figure.dpi_scale_trans
    box = axes.get_window_extent().transformed(inches.inverted())
    ends = [(line.points[-1].position, line.points[-1].median) for line in found]
    spots = np.array([axes.transData.transform(end) for end in ends]) / figure.dpi
    heights = apart(spots[:, 1], _ENTRY, box.y0 + _ENTRY / 2, box.y1 - _ENTRY / 2)
    width, height = figure.get_size_inches()
    for index, ((name, below), y) in enumerate(zip(labels, heights, strict=True)):
        x = box.x1 + _SPACE
        name.set_position((x / width, (y - 0.02) / height))
        below.set_position((x / width, (y - 0.03) / height))
        leader = [spots[index, 0] + 0.06, x - 0.04], [spots[index, 1], y]
        thin: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.6, "zorder": 1}
        if spots[index, 0] < spots[:, 0].max():
            thin["linestyle"] = (0, (1, 4))  # across the chart: not to be taken for a line of it
        thin["color"] = line_style(index)["color"]
        figure.add_artist(Line2D(*leader, transform=inches, **thin))
