"""Parameters as kernels want them, and one optimiser step.

PyTorch keeps a layer's weights as ``[neurons, inputs]``. The forward pass wants them the other way
round, the backward pass as they are, both with rows padded to whole vectors, and panel by panel:
copies are packed after each step; `pieces` says where everything is.
"""

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted, sqrt
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import pieces as p
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.blocks import PANEL
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.unit import Unit


@njit(nogil=True, error_model="numpy")
def _pack_weights(table):
    """Copy all parameters to where kernels read them; TURNED or COPY of -1: no such copy."""
    pieces, weights = at(u64(table[t.PIECES]), i64), at(u64(table[t.WEIGHTS]), f32)
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, p.PIECE * k)
        source = at(u64(piece[p.SOURCE]), f32)
        rows, columns = piece[p.ROWS], piece[p.COLUMNS]
        if piece[p.TURNED] >= 0:
            turned, width = shifted(weights, piece[p.TURNED]), piece[p.TURNED_WIDTH]
            for c in range(columns):
                for r in range(rows):
                    turned[_panel_place(c, r, columns, width)] = source[r * columns + c]
        if piece[p.COPY] >= 0:
            copy, width = shifted(weights, piece[p.COPY]), piece[p.COPY_WIDTH]
            for r in range(rows):
                for c in range(columns):
                    place = r * width + c
                    if piece[p.COPY_PANELLED]:
                        place = _panel_place(r, c, rows, width)
                    copy[place] = source[r * columns + c]


@njit(nogil=True, error_model="numpy")
def _panel_place(row, column, rows, width):
    """Where a number of a matrix ``[rows, width]`` is that is kept panel by panel."""
    first = column // PANEL * PANEL
    return first * rows + row * min(PANEL, width - first) + column - first


@njit(nogil=True, error_model="numpy")
def _add_gradients(gradients, size, count):
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
def _apply_gradient(table, gradient):
    """Clip the gradient, take one step of Adam's (see `operant.ppo.adam`); the gradient's norm."""
    prefer_wide_vectors()
    pieces, flat = at(u64(table[t.PIECES]), i64), at(u64(table[t.FLAT]), f32)
    one, two = at(u64(table[t.EXP_AVG]), f32), at(u64(table[t.EXP_AVG_SQ]), f32)
    rates, size = at(u64(table[t.RATES]), f64), table[t.PARAMETER_COUNT]
    place = 0
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, p.PIECE * k)
        rows, columns, row = piece[p.ROWS], piece[p.COLUMNS], piece[p.GRADIENT_ROW]
        found = shifted(gradient, piece[p.GRADIENT])
        across, down = (row, 1) if piece[p.GRADIENT_TURNED] else (1, row)
        for r in range(rows):
            for c in range(columns):
                flat[place + r * columns + c] = found[c * across + r * down]
        place += rows * columns
    norm = math.sqrt(_squares(flat, size))
    scale = f32(1)
    if rates[p.MAX_NORM] > 0:
        scale = f32(min(1.0, rates[p.MAX_NORM] / (norm + 1e-6)))
    if rates[p.GUARD] != 0 and not math.isfinite(norm):
        for i in range(size):  # a bad gradient moves nothing; whoever reads the norm reports it
            flat[i] = f32(0)
        scale = f32(1)
    rates[p.COUNT] += 1
    beta1, beta2 = f32(1 - rates[p.BETA1]), f32(1 - rates[p.BETA2])
    unbias = f32(1 / (1 - rates[p.BETA2] ** rates[p.COUNT]))
    move = f32(-rates[p.RATE] / (1 - rates[p.BETA1] ** rates[p.COUNT]))
    epsilon = f32(rates[p.EPSILON])
    place = 0
    for k in range(table[t.PIECE_COUNT]):
        piece = shifted(pieces, p.PIECE * k)
        parameter = at(u64(piece[p.SOURCE]), f32)
        g, m, v = shifted(flat, place), shifted(one, place), shifted(two, place)
        for i in range(piece[p.ROWS] * piece[p.COLUMNS]):
            slope = g[i] * scale
            mean = m[i] + (slope - m[i]) * beta1
            square = v[i] + (slope * slope - v[i]) * beta2
            g[i], m[i], v[i] = slope, mean, square
            parameter[i] += move * mean / (sqrt(square * unbias) + epsilon)
        place += piece[p.ROWS] * piece[p.COLUMNS]
    return norm


@Unit
def pack(table_address):
    """Copy the parameters to where kernels read them."""
    _pack_weights(at(u64(table_address), i64))
    return 0


@Unit
def finish(minibatch, table_address):
    """Add up what the chunks found, move the parameters, note the figures."""
    table = at(u64(table_address), i64)
    chunks = table[t.CHUNKS]
    gradients = at(u64(table[t.GRADIENTS]), f32)
    _add_gradients(gradients, table[t.GRADIENT_SIZE], chunks)
    norm = _apply_gradient(table, gradients)
    _pack_weights(table)
    sums = at(u64(table[t.FIGURE_SUMS]), f64)
    _, size, _, _ = chunk_bounds(table, minibatch, 0)
    results = shifted(at(u64(table[t.RESULTS]), f64), minibatch * (n.NUMBERS + 1))
    for k in range(n.NUMBERS):
        result = f64(0)
        for chunk in range(chunks):
            result += sums[chunk * n.NUMBERS + k]
        results[k] = result / size
    results[n.NUMBERS] = norm
    return 0
