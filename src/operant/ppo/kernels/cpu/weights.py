"""Parameters as kernels want them, and one optimiser step.

PyTorch keeps a layer's weights as ``[neurons, inputs]``. The forward pass wants them transposed,
the backward pass as they are, both with rows padded to whole vectors, and panel by panel: copies
are packed after each step; `parameter_layout` says where everything is.
"""

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted, sqrt
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import parameter_layout as p
from operant.ppo.kernels.cpu.blocks import PANEL
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.parameter_layout import parameter_at
from operant.ppo.kernels.cpu.record import record_at


@njit(nogil=True, error_model="numpy")
def _pack_weights(args):
    """Copy all parameters to where kernels read them; an offset of -1: no such copy."""
    parameters, weights = args.parameters, args.weights
    for k in range(args.parameter_tensors):
        parameter = parameter_at(parameters, k)
        source = parameter.source
        rows, columns = parameter.rows, parameter.columns
        if parameter.transposed >= 0:
            transposed, width = shifted(weights, parameter.transposed), parameter.transposed_width
            for c in range(columns):
                for r in range(rows):
                    transposed[_panel_offset(c, r, columns, width)] = source[r * columns + c]
        if parameter.copy >= 0:
            copy, width = shifted(weights, parameter.copy), parameter.copy_width
            for r in range(rows):
                for c in range(columns):
                    offset = r * width + c
                    if parameter.copy_panelled:
                        offset = _panel_offset(r, c, rows, width)
                    copy[offset] = source[r * columns + c]


@njit(nogil=True, error_model="numpy")
def _panel_offset(row, column, rows, width):
    """Where a number of a matrix ``[rows, width]`` is that is stored panel by panel."""
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
def _apply_gradient(args, gradient):
    """Clip the gradient, take one step of Adam's (see `operant.training.adam`); the gradient's
    norm."""
    prefer_wide_vectors()
    parameters, flat = args.parameters, args.flat
    one, two = args.exp_avg, args.exp_avg_sq
    rates, size = args.rates, args.flat_size
    offset = 0
    for k in range(args.parameter_tensors):
        parameter = parameter_at(parameters, k)
        rows, columns, row = parameter.rows, parameter.columns, parameter.gradient_row
        found = shifted(gradient, parameter.gradient)
        across, down = (row, 1) if parameter.gradient_transposed else (1, row)
        for r in range(rows):
            for c in range(columns):
                flat[offset + r * columns + c] = found[c * across + r * down]
        offset += rows * columns
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
    offset = 0
    for k in range(args.parameter_tensors):
        parameter = parameter_at(parameters, k)
        values = parameter.source
        g, m, v = shifted(flat, offset), shifted(one, offset), shifted(two, offset)
        for i in range(parameter.rows * parameter.columns):
            slope = g[i] * scale
            mean = m[i] + (slope - m[i]) * beta1
            square = v[i] + (slope * slope - v[i]) * beta2
            g[i], m[i], v[i] = slope, mean, square
            values[i] += move * mean / (sqrt(square * unbias) + epsilon)
        offset += parameter.rows * parameter.columns
    return norm


@compiled
def pack(args_address):
    """Copy the parameters to where kernels read them."""
    _pack_weights(record_at(ARGUMENTS, args_address))
    return 0


@compiled
def add_up(args_address):
    """Add up what the chunks of a shard found: gradients and metrics into those of the first."""
    args = record_at(ARGUMENTS, args_address)
    chunks, sums = args.chunks, at(u64(args.metric_sums), f64)
    _add_gradients(at(u64(args.gradients), f32), args.gradient_size, chunks)
    for k in range(n.METRIC_COUNT):
        for chunk in range(1, chunks):
            sums[k] += sums[chunk * n.METRIC_COUNT + k]
    return 0


@compiled
def apply(args_address):
    """Move the parameters by the gradient that the host has put in the first chunk's place; note
    its norm."""
    args = record_at(ARGUMENTS, args_address)
    norm = _apply_gradient(args, at(u64(args.gradients), f32))
    _pack_weights(args)
    args.results[args.minibatch * (n.METRIC_COUNT + 1) + n.METRIC_COUNT] = norm
    return 0


@compiled
def finish(minibatch, args_address):
    """Add up what the chunks found, move the parameters, note the metrics."""
    args = record_at(ARGUMENTS, args_address)
    chunks = args.chunks
    gradients = at(u64(args.gradients), f32)
    _add_gradients(gradients, args.gradient_size, chunks)
    norm = _apply_gradient(args, gradients)
    _pack_weights(args)
    sums = at(u64(args.metric_sums), f64)
    _, size, _, _ = chunk_bounds(args, minibatch, 0)
    results = shifted(args.results, minibatch * (n.METRIC_COUNT + 1))
    for k in range(n.METRIC_COUNT):
        result = f64(0)
        for chunk in range(chunks):
            result += sums[chunk * n.METRIC_COUNT + k]
        results[k] = result / size
    results[n.METRIC_COUNT] = norm
    return 0
