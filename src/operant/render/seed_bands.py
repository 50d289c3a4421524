"""Several seeds of one training: the mean, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from operant.render.chart import Floats
from operant.render.plot import Curve

CONFIDENCE = 0.95
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 % and 1 to 10 degrees of freedom."""


class Mean(NamedTuple):
    """A mean over seeds, and the half width of its interval; NaN for a single seed."""

    mean: Floats
    half: Floats


def student_t(count: int) -> float:
    """Half the width of the 95 % interval of a mean of `count` values, in standard errors."""
    if count < 2:
        return float("nan")
    if count <= len(_STUDENT) + 1:
        return _STUDENT[count - 2]
    freedom, z = count - 1, NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    first = (z**3 + z) / (4 * freedom)  # Cornish and Fisher: to 0.002 from 11 degrees on
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def mean_of(values: Floats) -> Mean:
    """Mean and interval over the first axis: Student's, as if the seeds were normal.

    >>> mean, half = mean_of(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)  # 4.303 * 1 / sqrt(3)
    (2.0, 2.484)
    """
    count = len(values)
    if count < 2:
        return Mean(values.mean(0), np.full(values.shape[1:], np.nan))
    error = values.std(0, ddof=1) / np.sqrt(count)
    return Mean(values.mean(0), student_t(count) * error)


def mean_curve(curves: Sequence[Curve], label: str) -> Curve:
    """The mean of the curves with its interval, over the steps that all of them have.

    Raises:
        ValueError: less than two curves, or no steps that all of them have.
    """
    if len(curves) < 2:
        raise ValueError("a band needs at least two runs")
    kept = [np.isfinite(curve.mean_return) & np.isfinite(curve.steps) for curve in curves]
    if not all(one.any() for one in kept):
        raise ValueError("a run has no finished episodes yet")
    steps = [curve.steps[one] for curve, one in zip(curves, kept, strict=True)]
    first, last = max(x[0] for x in steps), min(x[-1] for x in steps)
    if first > last:
        raise ValueError("the runs have no steps in common")
    longest = max(steps, key=len)
    grid = np.unique(np.r_[first, longest[(longest >= first) & (longest <= last)], last])
    rows = [
        np.interp(grid, x, curve.mean_return[one])
        for x, curve, one in zip(steps, curves, kept, strict=True)
    ]
    mean, half = mean_of(np.array(rows))
    seconds = np.mean([np.interp(grid, c.steps, c.seconds) for c in curves], axis=0)
    return Curve(label, grid, mean, seconds, curves[0].threshold, half)
