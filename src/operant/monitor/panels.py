"""Parts of what is shown of a run, as styled text: for the screens and for the single frame."""

from __future__ import annotations

import math

from rich.text import Text

from operant.monitor.figures import (
    STATUS_COLOURS,
    duration,
    hardware,
    number,
    overlap,
    ranks,
    split,
    status_text,
)
from operant.monitor.source import View
from operant.toolchain.text import bar

_WIDE = 160
"""Columns for the parts of an iteration, and for what collecting beside it, or ranks, came to."""


def identity(view: View, views: list[View]) -> Text:
    """Which run it is, and what it is doing."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(view.run_id, "bold")
    text.append(f"  {status_text(view)}", STATUS_COLOURS.get(view.status, ""))
    text.append(f"  {view.env} · {view.engine} on {view.device} · {view.host}", "dim")
    if len(views) > 1:
        text.append(f"  compared with {', '.join(one.run_id for one in views[1:])}", "italic")
    return text


def large_figures(view: View, width: int) -> Text:
    """Speed, return and progress, large enough to be seen from afar."""
    spread = view.last("return_min"), view.last("return_max"), view.last("return_std")
    text = Text(no_wrap=True, overflow="ellipsis")
    wide = width >= 100
    reached = view.last("mean_return" if "mean_return" in view.table else "return")
    text.append(f"{number(view.last('sps'))} steps/s", "bold cyan")
    text.append(f"  mean {number(view.mean_sps)}" if wide else "", "dim")
    text.append(f"   return {number(reached)}", "bold green")
    evaluated = view.newest("eval/return")
    text.append(f"  eval {number(evaluated)}" if math.isfinite(evaluated) else "", "bold green")
    if math.isfinite(spread[0]):
        low, high, deviation = (number(one) for one in spread)
        text.append(f"  {low} to {high}, ±{deviation}", "dim")
    episodes, length = view.last("episodes"), view.last("mean_length")
    if math.isfinite(episodes):
        text.append(f"   {number(episodes)} episodes of {number(length)}", "dim")
    text.append("\n")
    done = view.progress
    room = max(10, min(60, width - 50))
    share = f"{done:4.0%}" if done == done else " -  "
    text.append(f"{bar(done, room)} {share}", "cyan")
    text.append(f"  {number(view.last('steps'))} of {number(view.total_steps)} steps", "dim")
    eta = view.eta_s
    text.append(f"  {duration(eta)} to go" if math.isfinite(eta) else "", "dim")
    return text


def machine(view: View, width: int) -> Text:
    """Where an iteration's time goes, and what the machine does."""
    text = Text(no_wrap=True, overflow="ellipsis")
    colours = ("blue", "magenta", "yellow")
    beside = f"{overlap(view)}{ranks(view)}"
    # Where there is no room for both, what is special about the run goes first.
    parts = [] if beside and width < _WIDE else split(view)
    room = max(10, min(48, width // 3))
    for (_, share), colour in zip(parts, colours, strict=False):
        text.append("█" * round(share * room), colour)
    for (name, share), colour in zip(parts, colours, strict=False):
        text.append(f"  {name} {share:.0%}", colour)
    text.append(f"{'   ' if parts else ''}{beside}", "dim")
    text.append("\n")
    for name, value, share in hardware(view):
        text.append(f"{name} ", "dim")
        if math.isfinite(share):
            text.append(bar(share, 8), "cyan on grey23")
            text.append(" ")
        text.append(f"{value}   ")
    return text
