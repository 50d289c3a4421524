"""What kernels are told of parameters, and of Adam."""

from __future__ import annotations

from numba import float32, njit

from operant.ppo.kernels.cpu.record import RecordSpec, array, number, record_at

PARAMETER = RecordSpec(
    "parameter",
    array("source", float32),
    number("rows"),
    number("columns"),
    # Offsets of copies in the packed weights, -1: no such copy; and their rows' widths.
    number("transposed"),
    number("transposed_width"),
    number("copy"),
    number("copy_width"),
    number("copy_panelled"),
    # Where its gradient is.
    number("gradient"),
    number("gradient_row"),
    number("gradient_transposed"),
)
"""One parameter tensor of a policy: a matrix, or a vector as a matrix of one row."""
PARAMETER_BYTES = PARAMETER.bytes

(RATE, BETA1, BETA2, EPSILON, MAX_NORM, GUARD, COUNT) = range(7)
"""Adam's numbers: float64. COUNT is the number of steps taken."""


@njit(nogil=True, error_model="numpy")
def parameter_at(address, k):
    """Parameter tensor `k` of the records at an address."""
    return record_at(PARAMETER, address + PARAMETER_BYTES * k)
