"""Figures of a run as short texts: what the frame and the screens have in common."""

from __future__ import annotations

import math
import os
import time

from operant.monitor.source import View

STATUS_COLOURS = {
    "running": "cyan",
    "starting": "cyan",
    "saving": "cyan",
    "finished": "green",
    "interrupted": "yellow",
    "stale": "yellow",
    "failed": "red",
    "unreadable": "red",
}
PARTS = ("collect", "advantages", "update")
CURVES = (
    "mean_return",
    "return",
    "sps",
    "eval/return",
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
)
"""What is drawn first, where it is there."""


def number(value: float, digits: int = 3) -> str:
    """1.23 M, 45.6 k, 0.00123, or ``-`` where it is not known."""
    if not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e4:
        return f"{int(value)}"
    rounded = float(f"{value:.{digits}g}")  # first, because 999.9 may become 1 k
    if abs(rounded) >= 1e15:
        return f"{value:.1e}"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= size:
            return f"{rounded / size:.{digits}g} {unit}"
    return f"{rounded:.{digits}g}"


def duration(seconds: float) -> str:
    """1 h 02 min, 3 min 20 s, 4.2 s, or ``-``."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    seconds = round(seconds, 1)  # first, because 59.96 is a minute
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 100 else f"{number(hours // 24)} days"


def since(moment: float) -> str:
    """A time of day, with the date if that is another day."""
    if not math.isfinite(moment) or not 0 <= moment < 2**35:
        return "?"
    then = time.localtime(moment)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", then)


def status_text(view: View) -> str:
    """The status, and since when it is stale."""
    return f"stale since {since(view.heartbeat)}" if view.status == "stale" else view.status


def split(view: View) -> list[tuple[str, float]]:
    """Shares of the last iteration's parts, 0 to 1; empty where they are not known."""
    seconds = [view.last(f"{name}_seconds") for name in PARTS]
    total = sum(seconds)
    if not math.isfinite(total) or total <= 0 or min(seconds) < 0:
        return []
    return [(name, part / total) for name, part in zip(PARTS, seconds, strict=True)]


def overlap(view: View) -> str:
    """How collecting and training went beside each other; empty where they take turns."""
    lag, most, queue = (view.last(name) for name in ("lag", "lag_max", "queue"))
    idle = [view.last(f"{name}_idle") for name in ("collector", "learner")]
    if not all(map(math.isfinite, (lag, most, queue, *idle))):
        return ""
    collector, learner = (f"{min(max(share, 0.0), 1.0):.0%}" for share in idle)
    return (
        f"lag {number(lag)} (at most {number(most)})  queue {number(queue)}  "
        f"idle: collector {collector}, learner {learner}"
    )


def ranks(view: View) -> str:
    """How many processes train, and the share of the last iteration that each waited for others;
    empty for one."""
    count, spent = view.last("ranks"), sum(view.last(f"{name}_seconds") for name in PARTS)
    if not (math.isfinite(count) and count > 1 and math.isfinite(spent) and spent > 0):
        return ""
    waits = [
        (name.rpartition("_")[2], view.last(name) / spent)
        for name in view.table
        if name.startswith("all_gather_seconds/rank_")
    ]
    shown = ", ".join(
        f"{number} {min(max(share, 0.0), 1.0):.0%}"
        for number, share in waits
        if math.isfinite(share)
    )
    return f"{int(count)} ranks  waiting: {shown}" if shown else f"{int(count)} ranks"


def hardware(view: View) -> list[tuple[str, str, float]]:
    """Name, value as text, and share of what there is (NaN: unknown), of what is known of the
    machine. The processor's share is of all its cores, if this is the machine."""
    cores = 100.0 * (os.cpu_count() or 1)
    known = [
        ("cpu", "cpu_percent", "{:.0f} %", 1.0, cores),
        ("memory", "memory_mb", "{:.2f} GB", 1e3, math.nan),
        ("gpu", "gpu_percent", "{:.0f} %", 1.0, 100.0),
        ("gpu memory", "gpu_memory_mb", "{:.1f} GB", 1e3, math.nan),
        ("gpu", "gpu_celsius", "{:.0f} °C", 1.0, math.nan),
        ("gpu", "gpu_watts", "{:.0f} W", 1.0, math.nan),
    ]
    found = []
    for name, key, form, unit, most in known:
        value = view.last(key)
        if math.isfinite(value) and abs(value) < 1e12:
            found.append((name, form.format(value / unit), value / most))
    return found


def metric_names(view: View) -> list[str]:
    """What can be drawn: the usual curves first, then everything else."""
    skipped = {"iteration", "steps", "step", "seconds"}
    first = [name for name in CURVES if name in view.table]
    return first + [name for name in view.table if name not in {*first, *skipped}]
