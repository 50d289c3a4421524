"""The gradient of some of a minibatch's samples."""

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.simd import LANES


@njit(nogil=True, error_model="numpy")
def _set_options(args, minibatch, options):
    """The loss's numbers for a minibatch; advantages are normalised by its moments."""
    values, chunks = args.option_values, args.chunks
    start, size, _, _ = chunk_bounds(args, minibatch, 0)
    for k in (n.CLIP, n.VALUE_CLIP, n.VALUE_COEF, n.ENTROPY_COEF):
        options[k] = values[k]
    options[n.SHARE] = f32(1 / (f64(size) * args.shards))
    options[n.MEAN], options[n.INVERSE_STD] = f32(0), f32(1)
    if values[n.NORMALIZE_ADVANTAGE] != 0 and args.shards > 1:  # over all of them: the host knows
        options[n.MEAN] = args.spreads[2 * minibatch]
        options[n.INVERSE_STD] = args.spreads[2 * minibatch + 1]
    elif values[n.NORMALIZE_ADVANTAGE] != 0:
        moments = shifted(args.moments, n.MOMENTS * minibatch * chunks)
        first, second = f64(0), f64(0)
        for k in range(chunks):
            first += moments[n.MOMENTS * k]
            second += moments[n.MOMENTS * k + 1]
        sample = args.order[start]
        mean = first / size
        variance = max(second / size - mean * mean, 0.0)
        options[n.MEAN] = f32(f64(args.advantage[sample]) + mean)
        options[n.INVERSE_STD] = f32(1 / (math.sqrt(variance) + 1e-8))


@njit(nogil=True, error_model="numpy")
def _gather(args, order, count, rows, x, data):
    """Inputs ``x[rows, X_ROW]`` and ``data[:, TILE]`` of the samples ``order[:count]``."""
    samples, row = at(u64(args.samples), f32), args.sample_row
    x_row, tile, known = args.x_row, args.tile, args.sample_data
    entries = args.parts + n.DATA_ROWS + args.mask_rows
    for i in range(count):
        sample = shifted(samples, i64(order[i]) * row)
        for k in range(known):
            x[i * x_row + k] = sample[k]
        for k in range(entries):
            data[k * tile + i] = sample[known + k]
    for i in range(count, rows):
        for k in range(x_row):
            x[i * x_row + k] = f32(0)


@njit(nogil=True, error_model="numpy")
def train_chunk(args, minibatch, chunk, scratch_address, args_address):
    """The gradient of a chunk, and its metrics, in memory of its own."""
    tile, nets, size = args.tile, args.nets, args.gradient_size
    gradient_address = args.gradients + 4 * chunk * size
    metrics_address = args.metric_sums + 8 * chunk * n.METRIC_COUNT
    gradient, metrics = at(u64(gradient_address), f32), at(u64(metrics_address), f64)
    scratch = at(u64(scratch_address), f32)
    x, x_row = shifted(scratch, args.scratch_x), args.x_row
    x_address = scratch_address + 4 * args.scratch_x
    data = shifted(scratch, args.scratch_data)
    for k in range(size):
        gradient[k] = f32(0)
    for k in range(n.METRIC_COUNT):
        metrics[k] = f64(0)
    _set_options(args, minibatch, shifted(scratch, args.scratch_options))
    start, _, lo, hi = chunk_bounds(args, minibatch, chunk)
    for first in range(lo, hi, tile):
        count = min(tile, hi - first)
        rows = (count + LANES - 1) // LANES * LANES
        _gather(args, shifted(args.order, start + first), count, rows, x, data)
        if args.encoding == n.ONE_HOT:
            call_address(args.expand_one_hot, (x_address, count, args_address))
        for k in range(nets):
            net = args.actor if k == 0 else args.critic
            arguments = (net, x_address, x_row, rows, scratch_address, args_address)
            call_address(args.forward, arguments)
        call_address(
            args.loss,
            (count, rows, scratch_address, gradient_address, metrics_address, args_address),
        )
        for k in range(nets):
            net = args.actor if k == 0 else args.critic
            call_address(
                args.backward,
                (net, x_address, x_row, rows, scratch_address, gradient_address, args_address),
            )
