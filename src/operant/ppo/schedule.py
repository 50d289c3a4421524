"""Values that change over a run."""

from __future__ import annotations

import math


def scheduled(value: float, schedule: str, progress: float) -> float:
    """`value` at `progress`, 0 at the start of a run and 1 at its end.

    >>> scheduled(0.2, "linear", 0.25)
    0.15000000000000002
    """
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "linear":
        return value * (1 - progress)
    if schedule == "cosine":
        return value * 0.5 * (1 + math.cos(math.pi * progress))
    return value
