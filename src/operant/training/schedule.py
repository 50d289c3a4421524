"""Values that change over a run."""

from __future__ import annotations

import math


def scheduled(value: float, schedule: str, progress: float) -> float:
    """`value` at `progress`, 0 at the start of a run and 1 at its end (beyond, as there).

    >>> scheduled(0.2, "linear", 0.25)
    0.15000000000000002

    Raises:
        ValueError: another schedule than ``"constant"``, ``"linear"`` or ``"cosine"``.
    """
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "constant":
        return value
    if schedule == "linear":
        return value * (1 - progress)
    if schedule == "cosine":
        return value * 0.5 * (1 + math.cos(math.pi * progress))
    raise ValueError(f"schedule must be constant, linear or cosine, got {schedule!r}")
