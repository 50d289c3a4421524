"""A line plot as a widget: title, legend, labels, and the lines in braille."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.geometry import Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from operant.monitor.braille import Canvas, Series, draw, format_tick, ticks, x_extent
from operant.toolchain.text import printable

__all__ = ["Plot", "Series"]

Line = list[tuple[str, str]]
"""A line of the screen: pieces of text, and which part of a plot each is."""

_COLORS = 6
_GUTTER = 8  # Cells: a label and the axis. The same for every plot, so that stacked ones align.
_WIDE = 24  # Cells from which there are y labels, and a value beside the title.
_TITLE, _X_LABELS, _LEGEND = 3, 5, 6  # Lines from which there is one for each.
_ENTRY = 12  # Cells: the least for a series in the legend.
_NARROWEST = 1e-3  # Window.


@dataclass(frozen=True)
class View:
    """All that a plot shows."""

    series: tuple[Series, ...]
    title: str = ""
    threshold: float | None = None
    window: float = 1.0
    log_y: bool = False


class Plot(Widget):
    """Lines over one x axis. Works in any size; labels are the first to go.

    Lines take the colours of the component classes in turn.
    """

    COMPONENT_CLASSES = {
        "plot--title",
        "plot--axis",
        "plot--threshold",
        *(f"plot--line-{number}" for number in range(_COLORS)),
    }
    # Okabe and Ito's colours, which the colour-blind tell apart; lighter ones on a dark ground.
    DEFAULT_CSS = """
    Plot { width: 1fr; height: 1fr; padding-right: 1; }
    Plot > .plot--title { text-style: bold; }
    Plot > .plot--axis { color: $text-muted; }
    Plot > .plot--threshold { color: $text-muted; }
    Plot > .plot--line-0 { color: #56B4E9; }
    Plot > .plot--line-1 { color: #E69F00; }
    Plot > .plot--line-2 { color: #2FBF98; }
    Plot > .plot--line-3 { color: #E39AC4; }
    Plot > .plot--line-4 { color: #F0E442; }
    Plot > .plot--line-5 { color: #F07A35; }
    Plot:light > .plot--line-0 { color: #0072B2; }
    Plot:light > .plot--line-1 { color: #C04F00; }
    Plot:light > .plot--line-2 { color: #007A59; }
    Plot:light > .plot--line-3 { color: #A9477F; }
    Plot:light > .plot--line-4 { color: #8A6100; }
    Plot:light > .plot--line-5 { color: #2C3648; }
    """

    window: reactive[float] = reactive(1.0)
    """The part of the x range that is shown, up to the newest point; 1 is all of it."""
    log_y: reactive[bool] = reactive(False)
    """Whether the y axis is logarithmic."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._view = View(())
        self._lines: list[Line] = []
        self._drawn: tuple[View, Size] | None = None  # What the lines show.

    def show(
        self, series: Sequence[Series], title: str = "", threshold: float | None = None
    ) -> None:
        """Replace what is shown; the threshold is a dashed level.

        The arrays are not copied: whoever has new values shows new arrays.
        """
        self._view = View(tuple(series), title, threshold, self.window, self.log_y)
        self.refresh()

    def validate_window(self, window: float) -> float:
        """Something is always shown."""
        return min(max(_NARROWEST, window), 1.0)

    def watch_window(self, window: float) -> None:
        """Draw again."""
        self._view = replace(self._view, window=window)

    def watch_log_y(self, log_y: bool) -> None:
        """Draw again."""
        self._view = replace(self._view, log_y=log_y)

    def render_line(self, y: int) -> Strip:
        """A line of the screen, of those laid out once for a view and a size."""
        ground = self.rich_style
        if self._drawn != (self._view, self.size):
            self._lines = lay_out(self._view, self.size.width, self.size.height)
            self._drawn = self._view, self.size
        if y >= len(self._lines):
            return Strip.blank(self.size.width, ground)
        pieces = [
            Segment(text, self.get_component_rich_style(f"plot--{part}"))
            for text, part in self._lines[y]
        ]
        return Strip(pieces).adjust_cell_length(self.size.width, ground)


def lay_out(view: View, width: int, height: int) -> list[Line]:
    """The `height` lines of a plot `width` wide; a legend may be longer, to be cut off."""
    if width < 1 or height < 1:
        return []
    has_title, has_x_labels = height >= _TITLE, height >= _X_LABELS
    has_legend = height >= _LEGEND and len(view.series) > 1
    gutter = _GUTTER if width >= _WIDE else 0
    canvas = _draw(view, width - gutter, height - has_title - has_x_labels - has_legend)
    lines = [_title_line(view, width)] if has_title else []
    lines += [_legend_line(view.series, width)] if has_legend else []
    lines += _body(canvas, gutter)
    lines += [[(" " * gutter + _x_labels(canvas), "axis")]] if has_x_labels else []
    return lines


def _draw(view: View, width: int, height: int) -> Canvas:
    """The canvas; owner 0 is the threshold, 1 the first series."""
    start, end = x_extent(view.series)
    start = end * (1 - view.window) + start * view.window
    level = np.full(2, np.nan if view.threshold is None else view.threshold)
    layers = [Series("", np.array([start, end]), level), *view.series]
    canvas = draw(layers, width, height, x_range=(start, end), log_y=view.log_y)
    canvas.glyphs[:, ::2][canvas.owners[:, ::2] == 0] = ord(" ")  # Dashes.
    return canvas


def _body(canvas: Canvas, gutter: int) -> list[Line]:
    """The y axis and the lines of the plot."""
    rows = canvas.lines()
    labels = {}
    for tick in ticks(*canvas.y_range, max(len(rows) // 2, 2), canvas.log_y):
        label = format_tick(tick)
        if len(label) < gutter:
            labels[canvas.row_of(tick)] = f"{label:>{gutter - 1}}┤"
    lines: list[Line] = []
    for number, row in enumerate(rows):
        axis = labels.get(number, f"{'':{gutter - 1}}│") if gutter else ""
        owners = canvas.owners[number]
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(row)]
        pieces = [(row[a:b], _part(int(owners[a]))) for a, b in pairwise(bounds)]
        lines.append([(axis, "axis"), *pieces])
    return lines


def _part(owner: int) -> str:
    return _line(owner - 1) if owner > 0 else "threshold"


def _line(number: int) -> str:
    return f"line-{number % _COLORS}"


def _x_labels(canvas: Canvas) -> str:
    """Labels below their places, as many as fit."""
    width = canvas.glyphs.shape[1]
    text = ""
    for tick in ticks(*canvas.x_range, max(width // 10, 2)):
        label = format_tick(tick)
        start = canvas.column_of(tick) - len(label) // 2
        start = max(min(start, width - len(label)), 0)
        if (not text or start > len(text)) and start + len(label) <= width:
            text = f"{text:{start}}{label}"
    return text


def _title_line(view: View, width: int) -> Line:
    """The title; for a single series its latest value, too."""
    title = printable(view.title)
    if len(view.series) != 1 or width < _WIDE:
        return [(_fit(title, width), "title")]
    value = _latest(view.series[0])
    room = width - len(value) - 1
    return [(set_cell_size(_fit(title, room), room + 1), "title"), (value, _line(0))]


def _legend_line(series: Sequence[Series], width: int) -> Line:
    """Names, cut to fit, and latest values; of many series only the first."""
    shown = series[: max(width // _ENTRY, 1)]
    share = width // len(shown) - 2
    pieces = []
    for number, one in enumerate(shown):
        value = _latest(one)
        name = _fit(printable(one.name), share - len(value) - 3)
        pieces.append((f"━ {name} {value}  ", _line(number)))
    return pieces


def _latest(series: Series) -> str:
    for tail in (series.y[-100:], series.y):  # Of a million values 100 nearly always do.
        present = tail[np.isfinite(tail)]
        if present.size:
            return format_tick(float(present[-1]), 4)
    return "-"


def _fit(text: str, cells: int) -> str:
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1) + "…" if cells > 0 else ""
