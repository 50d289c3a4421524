"""Learning curves of one or many runs as one chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.render.chart import (
    DPI,
    GRAY,
    GRID,
    INK,
    Floats,
    apart,
    check_suffix,
    line_style,
    new_figure,
    quiet,
    save_figure,
    short_number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

_POINTS = 72  # To the inch.
_WIDTH, _HEIGHT = 8.4, 4.8  # Inches.
_EDGE, _LEFT, _BOTTOM, _TOP = 0.15, 0.6, 0.62, 0.46  # Inches around; left: at least.
_TITLE = 0.34  # More above, for a title.
_TICK_PAD = 5  # Points.
_LEADER, _SAMPLE, _SPACE = 0.22, 0.2, 0.07  # Inches: from a curve's end to its label.
_ENTRY = 0.33  # Inches of height for one run's label.
_MOST_CHARACTERS = 30  # Of a label.
_MOST_IN_TITLE = 90
_MANY_POINTS = 60  # From here on a curve is smoothed.


@dataclass(frozen=True)
class Curve:
    """One run, one value per iteration in each array [n]."""

    label: str
    steps: np.ndarray  # Environment steps so far, ascending.
    mean_return: np.ndarray  # Over the last 100 episodes; NaN before the first one ended.
    seconds: np.ndarray  # Since the run began.
    threshold: float | None  # The return from which the task counts as solved.
    half: np.ndarray | None = None  # Of a mean over runs: half the width of its 95 % interval.


def plot_runs(curves: Sequence[Curve], path: Path, *, title: str = "") -> None:
    """Write a chart of return against environment steps to a .png, .svg or .pdf file.

    Missing folders are made; the file appears when it is complete.

    Raises:
        ValueError: another suffix, no curves, a curve without a single return or with arrays of
            unequal lengths, a place that cannot be written, or no matplotlib.
    """
    check_suffix(path)
    save_figure(draw_runs(curves, title=title), path)


def draw_runs(curves: Sequence[Curve], *, title: str = "") -> Figure:
    """The chart that `plot_runs` writes, tied to no window and to no pyplot state."""
    if not curves:
        raise ValueError("there are no runs to plot")
    runs = [_finite(curve) for curve in curves]
    with quiet():
        above = _TOP + (_TITLE if title else 0.0)
        height = max(_HEIGHT, above + _BOTTOM + _ENTRY * len(runs))
        figure = new_figure(_WIDTH, height)
        labels = [_Label(figure, *pair) for pair in zip(_names(curves), runs, strict=True)]
        axes = figure.add_axes((0.0, _BOTTOM / height, 1.0, 1 - (above + _BOTTOM) / height))
        _dress(axes)
        _set_limits(axes, runs)
        ticks = max(text.get_window_extent().width for text in axes.get_yticklabels()) / DPI
        left = max(_LEFT, _EDGE + ticks + _TICK_PAD / _POINTS)
        right = _LEADER + _SAMPLE + _SPACE + max(label.width for label in labels) + _EDGE
        box = axes.get_position()
        axes.set_position((left / _WIDTH, box.y0, 1 - (left + right) / _WIDTH, box.height))
        _draw_captions(figure, title, any(run.half is not None for run in runs))
        lines = [_draw_curve(axes, run, line_style(index)) for index, run in enumerate(runs)]
        _place_labels(figure, axes, labels, lines)
        _draw_thresholds(axes, runs, lines)
    return figure


# --- What to draw ------------------------------------------------------------------------------


def _finite(curve: Curve) -> Curve:
    """`curve` without the iterations that have no return: no episode had ended yet.

    Left out, not left blank: a line with gaps might have no two points in a row.
    """
    arrays = [np.asarray(a, np.float64) for a in (curve.steps, curve.mean_return, curve.seconds)]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise ValueError(
            f"run {curve.label}: steps, mean_return and seconds must be [n] each, got {shapes}"
        )
    kept = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
    if not kept.any():
        raise ValueError(f"run {curve.label} has no finished episodes yet")
    steps, mean_return, seconds = (array[kept] for array in arrays)
    half = None if curve.half is None else np.asarray(curve.half, np.float64)[kept]
    solved = curve.threshold is not None and np.isfinite(curve.threshold)
    threshold = curve.threshold if solved else None
    return Curve(curve.label, steps, mean_return, seconds, threshold, half)


def _smooth(values: Floats) -> Floats:
    """A moving average [n] over a 12th of the curve, weighted to its middle; less at the ends."""
    weight = np.hanning(max(5, len(values) // 12 | 1))
    total = np.convolve(np.ones(len(values)), weight, "same")
    smooth: Floats = np.convolve(values, weight, "same") / total
    return smooth


def _names(curves: Sequence[Curve]) -> list[str]:
    """The curves' labels in one line each, short, and told apart."""
    names = [" ".join(curve.label.split()) for curve in curves]
    if max(map(len, names)) > _MOST_CHARACTERS and len(set(names)) > 1:
        columns = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
        common = "".join(letters[0] for letters in columns)
        shared = max(common.rfind(mark) for mark in "-_/. ") + 1
        names = ["…" + name[shared:] if shared else name for name in names]
    half = _MOST_CHARACTERS // 2
    names = [
        name if len(name) <= _MOST_CHARACTERS else f"{name[:half]}…{name[1 - half :]}"
        for name in names
    ]
    total, seen = Counter(names), Counter[str]()
    for index, name in enumerate(names):
        seen[name] += 1
        if total[name] > 1:
            names[index] = f"{name} ({seen[name]})"
    return names


def _duration(seconds: float) -> str:
    unit, letter = 1.0, "s"
    if seconds >= 7200:
        unit, letter = 3600.0, "h"
    elif seconds >= 120:
        unit, letter = 60.0, "min"
    amount = f"{seconds / unit:.1f}" if seconds < 10 * unit else f"{seconds / unit:.0f}"
    return f"{amount.removesuffix('.0')}\N{NO-BREAK SPACE}{letter}"


# --- How to draw it ----------------------------------------------------------------------------


def _dress(axes: Axes) -> None:
    """Grid and ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRAY)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=GRAY, pad=_TICK_PAD)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, position: short_number(value)))
    axes.set_xlabel("Environment steps", color=GRAY, fontsize=9, labelpad=6)


def _draw_captions(figure: Figure, title: str, band: bool) -> None:
    """What is drawn up the page, above the axes, and the title above that."""
    width, height = figure.get_size_inches()
    x, y = _EDGE / width, 1 - (_TOP - 0.3) / height
    caption = "Mean return of the last 100 episodes"
    caption += "; the band is the 95 % interval of the mean over the runs" if band else ""
    if not title:
        figure.text(x, y, caption, fontsize=9, color=GRAY, va="top")
        return
    figure.text(x, y - _TITLE / height, caption, fontsize=9, color=GRAY, va="top")
    title = " ".join(title.split())
    if len(title) > _MOST_IN_TITLE:
        title = title[: _MOST_IN_TITLE - 1] + "…"
    text = figure.text(x, y, title, fontsize=13, color=INK, fontweight="bold", va="top")
    text.set_parse_math(False)
    wide = text.get_window_extent().width / figure.dpi / (width - 2 * _EDGE)
    text.set_fontsize(13 / max(wide, 1.0))


def _set_limits(axes: Axes, runs: Sequence[Curve]) -> None:
    """From step 0 to the last, and all returns and thresholds with some air."""
    last = max(run.steps.max() for run in runs)
    axes.set_xlim(0.0, last if last > 0 else 1.0)
    values = [run.mean_return for run in runs]
    values += [run.mean_return + run.half for run in runs if run.half is not None]
    values += [run.mean_return - run.half for run in runs if run.half is not None]
    values += [np.array([run.threshold]) for run in runs if run.threshold is not None]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    air = 0.07 * (high - low) or 0.1 * abs(high) or 1.0
    axes.set_ylim(low - air, high + air)


def _draw_curve(axes: Axes, run: Curve, style: dict[str, Any]) -> Floats:
    """Draw one run, faint as it is and strong as it tends; the strong line [n, 2]."""
    values, half = run.mean_return, run.half
    if half is not None:
        many = len(values) >= _MANY_POINTS
        middle, reach = (_smooth(values), _smooth(half)) if many else (values, half)
        edges = middle - reach, middle + reach
        axes.fill_between(run.steps, *edges, color=style["color"], alpha=0.18, lw=0, zorder=1.5)
    if len(values) >= _MANY_POINTS:
        axes.plot(run.steps, values, color=style["color"], alpha=0.22, linewidth=0.8, zorder=2)
        values = _smooth(values)
    axes.plot(run.steps, values, linewidth=1.9, solid_capstyle="round", zorder=3, **style)
    axes.plot(
        run.steps[-1:], values[-1:], "o", color=style["color"], ms=4.5, clip_on=False, zorder=4
    )
    return np.column_stack([run.steps, values])


class _Label:
    """A run's name, and below it how much it took; not placed yet."""

    def __init__(self, figure: Figure, name: str, run: Curve) -> None:
        took = f"{short_number(float(f'{run.steps[-1]:.3g}'))} steps"
        if np.isfinite(run.seconds[-1]):
            took += f" in {_duration(run.seconds[-1])}"
        self.name = figure.text(0, 0, name, fontsize=9, color=INK, va="bottom", parse_math=False)
        self.took = figure.text(0, 0, took, fontsize=7.5, color=GRAY, va="top", parse_math=False)
        widths = [text.get_window_extent().width for text in (self.name, self.took)]
        self.width = max(widths) / figure.dpi  # Inches.

    def place(self, figure: Figure, x: float, y: float) -> None:
        """Put it right of the point, given in inches from the lower left corner."""
        width, height = figure.get_size_inches()
        self.name.set_position((x / width, (y - 0.02) / height))
        self.took.set_position((x / width, (y - 0.03) / height))


def _place_labels(
    figure: Figure, axes: Axes, labels: Sequence[_Label], lines: Sequence[Floats]
) -> None:
    """Put each label at the height of its curve's end, as near as the others let it."""
    from matplotlib.lines import Line2D

    inches = figure.dpi_scale_trans
    box = axes.get_window_extent().transformed(inches.inverted())
    ends = np.array([axes.transData.transform(line[-1])[1] for line in lines]) / figure.dpi
    places = apart(ends, _ENTRY, box.y0 + _ENTRY / 2, box.y1 - _ENTRY / 2)
    start = box.x1 + _LEADER
    for index, (label, line) in enumerate(zip(labels, lines, strict=True)):
        style, end, place = line_style(index), ends[index], places[index]
        label.place(figure, start + _SAMPLE + _SPACE, place)
        sample = [start, start + _SAMPLE], [place, place]
        figure.add_artist(Line2D(*sample, linewidth=1.9, transform=inches, **style))
        # A thin line from end to label, unless it would cross the chart or many others.
        if line[-1, 0] >= 0.99 * axes.get_xlim()[1] and abs(place - end) < 2.5 * _ENTRY:
            leader = [box.x1 + 0.05, start - 0.02], [end, place]
            thin = {"linewidth": 0.7, "alpha": 0.6, "color": style["color"]}
            figure.add_artist(Line2D(*leader, transform=inches, **thin))


def _draw_thresholds(axes: Axes, runs: Sequence[Curve], lines: Sequence[Floats]) -> None:
    """A dashed line at each return from which a task is solved."""
    from matplotlib.patheffects import withStroke

    taken: list[Any] = []
    thresholds = {run.threshold for run in runs if run.threshold is not None}
    for threshold in sorted(thresholds, reverse=True):
        axes.axhline(threshold, color=GRAY, linewidth=1.1, dashes=(4, 3), zorder=2.5)
        text = axes.annotate(
            "solved",
            (0.0, threshold),
            (4, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
            color=GRAY,
            zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        _move_to_clear_spot(axes, text, lines)
        box = text.get_window_extent()
        if any(box.overlaps(other) for other in taken):
            text.remove()  # One word is enough for two lines so near.
        else:
            taken.append(box)


def _move_to_clear_spot(axes: Axes, text: Annotation, lines: Sequence[Floats]) -> None:
    """Slide `text` along its line to the leftmost place with the fewest points of curves."""
    dense = []
    for line in lines:
        x = np.linspace(line[0, 0], line[-1, 0], 400)
        dense.append(np.column_stack([x, np.interp(x, line[:, 0], line[:, 1])]))
    points = axes.transData.transform(np.concatenate(dense))
    box = text.get_window_extent().padded(3)
    spots = np.linspace(0.0, 0.85, 18)
    shifts = spots * axes.get_window_extent().width
    crossed = [box.translated(shift, 0).count_contains(points) for shift in shifts]
    text.xy = (spots[int(np.argmin(crossed))], text.xy[1])
