"""One frame of the monitor, for logs and scripts."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from operant.monitor.braille import Series, draw, format_tick
from operant.monitor.figures import metric_names
from operant.monitor.panels import identity, large_figures, machine
from operant.monitor.source import View

_PLOT_ROWS = 6
_LOG_LINES = 4


def frame(view: View, width: int) -> RenderableType:
    """What the monitor shows of a run, as lines of `width` cells at most."""
    parts: list[RenderableType] = [identity(view, [view]), large_figures(view, width)]
    for name in metric_names(view)[:2]:
        parts.append(_plot(view, name, max(20, min(width, 100))))
    parts.append(machine(view, width))
    if view.problem:
        parts.append(Text(view.problem, "red"))
    parts += [
        Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in view.log[-_LOG_LINES:]
    ]
    return Group(*parts)


def _plot(view: View, name: str, width: int) -> Text:
    """A curve with its range on the left."""
    label = 9
    canvas = draw([Series(name, view.x()[1], view.table[name])], width - label, _PLOT_ROWS)
    low, high = canvas.y_range
    lines = canvas.lines()
    text = Text(f"{name}\n", "bold")
    for k, line in enumerate(lines):
        edge = format_tick(high) if k == 0 else format_tick(low) if k == len(lines) - 1 else ""
        text.append(f"{edge:>{label - 1}} ", "dim")
        text.append(line + ("\n" if k < len(lines) - 1 else ""), "cyan")
    return text
