"""Parameters as kernels want them, and one optimiser step.

PyTorch keeps a layer's weights as ``[neurons, inputs]``. The forward pass wants them the other way
round, the backward pass as they are, both with rows padded to whole vectors: copies are packed after
each step. A *piece* is one parameter: where it is, where its copies go, and where its gradient is.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.lang.intrinsics import at, prefer_wide_vectors, shifted, sqrt
from operant.ppo.kernels.numba import table as t

# fmt: off
(
    SOURCE, ROWS, COLUMNS, TURNED, TURNED_ROW, COPY, COPY_ROW, GRADIENT, GRADIENT_ROW,
    GRADIENT_TURNED, PIECE,
) = range(11)
# fmt: on
(RATE, BETA1, BETA2, EPSILON, MAX_NORM, GUARD, COUNT) = range(7)
"""Adam's numbers: float64. COUNT is the number of steps taken."""


@njit(nogil=True, error_model="numpy")
def pack_weights(table):
    """Copy all parameters to where kernels read them; TURNED or COPY of -1: no such copy."""
    pieces, weights = at(u64(table[t.PIECES]), i64), at(u64(table[t.WEIGHTS]), f32)
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, PIECE * k)
        source = at(u64(piece[SOURCE]), f32)
        rows, columns = piece[ROWS], piece[COLUMNS]
        if piece[TURNED] >= 0:
            turned = shifted(weights, piece[TURNED])
            for c in range(columns):
                for r in range(rows):
                    turned[c * piece[TURNED_ROW] + r] = source[r * columns + c]
        if piece[COPY] >= 0:
            copy = shifted(weights, piece[COPY])
            for r in range(rows):
                for c in range(columns):
                    copy[r * piece[COPY_ROW] + c] = source[r * columns + c]


@njit(nogil=True, error_model="numpy")
def add_gradients(gradients, size, count):
    """Add `count` gradients into the first, in pairs of pairs: an order that no thread changes."""
    prefer_wide_vectors()
    step = 1
    while step < count:
        for k in range(0, count - step, 2 * step):
            into, other = shifted(gradients, k * size), shifted(gradients, (k + step) * size)
            for i in range(size):
                into[i] += other[i]
        step *= 2


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _squares(x, count):
    prefer_wide_vectors()
    result = f64(0)
    for i in range(count):
        result += f64(x[i]) * f64(x[i])
    return result


@njit(nogil=True, error_model="numpy")
def apply_gradient(table, gradient):
    """Clip the gradient, take one step of Adam's (see `operant.ppo.adam`); the gradient's norm."""
    prefer_wide_vectors()
    pieces, flat = at(u64(table[t.PIECES]), i64), at(u64(table[t.FLAT]), f32)
    one, two = at(u64(table[t.EXP_AVG]), f32), at(u64(table[t.EXP_AVG_SQ]), f32)
    rates, size = at(u64(table[t.RATES]), f64), table[t.PARAMETER_COUNT]
    place = 0
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, PIECE * k)
        rows, columns, row = piece[ROWS], piece[COLUMNS], piece[GRADIENT_ROW]
        found = shifted(gradient, piece[GRADIENT])
        across, down = (row, 1) if piece[GRADIENT_TURNED] else (1, row)
        for r in range(rows):
            for c in range(columns):
                flat[place + r * columns + c] = found[c * across + r * down]
        place += rows * columns
    norm = math.sqrt(_squares(flat, size))
    scale = f32(1)
    if rates[MAX_NORM] > 0:
        scale = f32(min(1.0, rates[MAX_NORM] / (norm + 1e-6)))
    if rates[GUARD] != 0 and not math.isfinite(norm):
        for i in range(size):  # a bad gradient moves nothing; whoever reads the norm reports it
            flat[i] = f32(0)
        scale = f32(1)
    rates[COUNT] += 1
    beta1, beta2 = f32(1 - rates[BETA1]), f32(1 - rates[BETA2])
    unbias = f32(1 / (1 - rates[BETA2] ** rates[COUNT]))
    move = f32(-rates[RATE] / (1 - rates[BETA1] ** rates[COUNT]))
    epsilon = f32(rates[EPSILON])
    place = 0
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, PIECE * k)
        parameter = at(u64(piece[SOURCE]), f32)
        g, m, v = shifted(flat, place), shifted(one, place), shifted(two, place)
        for i in range(piece[ROWS] * piece[COLUMNS]):
            slope = g[i] * scale
            mean = m[i] + (slope - m[i]) * beta1
            square = v[i] + (slope * slope - v[i]) * beta2
            g[i], m[i], v[i] = slope, mean, square
            parameter[i] += move * mean / (sqrt(square * unbias) + epsilon)
        place += piece[ROWS] * piece[COLUMNS]
    return norm
