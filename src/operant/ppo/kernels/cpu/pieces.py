"""Names of the numbers that describe a parameter, and of Adam's.

A *piece* is one parameter: where it is, where its copies go, and where its gradient is.
"""

from __future__ import annotations

# fmt: off
(
    SOURCE, ROWS, COLUMNS, TURNED, TURNED_WIDTH, COPY, COPY_WIDTH, COPY_PANELLED, GRADIENT,
    GRADIENT_ROW, GRADIENT_TURNED, PIECE,
) = range(12)
# fmt: on
(RATE, BETA1, BETA2, EPSILON, MAX_NORM, GUARD, COUNT) = range(7)
"""Adam's numbers: float64. COUNT is the number of steps taken."""
