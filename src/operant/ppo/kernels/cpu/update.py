"""An epoch: every sample once, in minibatches; what each training thread runs.

A minibatch is cut into chunks, a fixed number of them, and a chunk into tiles. Threads claim
chunks; the gradient of a chunk is added up tile by tile in memory of its own, and those of the
chunks in a fixed order by whoever finishes last, who also moves the parameters. So nobody waits but
at the end of a minibatch, nobody waits for a thread that does not run, and the result does not
depend on how many there are.
"""

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import int32 as i32
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, atomic_add, atomic_store, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.simd import LANES
from operant.ppo.kernels.cpu.unit import Unit
from operant.ppo.kernels.cpu.waiting import wait_for


@njit(nogil=True, error_model="numpy")
def _set_options(table, minibatch, options):
    """The loss's numbers for a minibatch; advantages are normalised by its moments."""
    values, chunks = at(u64(table[t.OPTION_VALUES]), f32), table[t.CHUNKS]
    start, size, _, _ = chunk_bounds(table, minibatch, 0)
    for k in (n.CLIP, n.VALUE_CLIP, n.VALUE_COEF, n.ENTROPY_COEF):
        options[k] = values[k]
    options[n.SHARE] = f32(1 / f64(size))
    options[n.MEAN], options[n.INVERSE_STD] = f32(0), f32(1)
    if values[n.NORMALIZE_ADVANTAGE] != 0:
        moments = shifted(at(u64(table[t.MOMENTS]), f64), n.MOMENTS * minibatch * chunks)
        first, second = f64(0), f64(0)
        for k in range(chunks):
            first += moments[n.MOMENTS * k]
            second += moments[n.MOMENTS * k + 1]
        sample = at(u64(table[t.ORDER]), i32)[start]
        mean = first / size
        variance = max(second / size - mean * mean, 0.0)
        options[n.MEAN] = f32(f64(at(u64(table[t.ADVANTAGE]), f32)[sample]) + mean)
        options[n.INVERSE_STD] = f32(1 / (math.sqrt(variance) + 1e-8))


@njit(nogil=True, error_model="numpy")
def _gather(table, order, count, rows, x, data):
    """Inputs ``x[rows, X_ROW]`` and ``data[:, TILE]`` of the samples ``order[:count]``."""
    samples, row = at(u64(table[t.SAMPLES]), f32), table[t.SAMPLE_ROW]
    x_row, tile, known = table[t.X_ROW], table[t.TILE], table[t.SAMPLE_DATA]
    entries = table[t.PARTS] + n.DATA_ROWS + table[t.MASK_ROWS]
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
def _train_chunk(table, minibatch, chunk, scratch_address, table_address):
    """The gradient of a chunk, and its figures, in memory of its own."""
    tile, nets, size = table[t.TILE], table[t.NETS], table[t.GRADIENT_SIZE]
    gradient_address = table[t.GRADIENTS] + 4 * chunk * size
    figures_address = table[t.FIGURE_SUMS] + 8 * chunk * n.NUMBERS
    gradient, figures = at(u64(gradient_address), f32), at(u64(figures_address), f64)
    scratch = at(u64(scratch_address), f32)
    x, x_row = shifted(scratch, table[t.SCRATCH_X]), table[t.X_ROW]
    x_address = scratch_address + 4 * table[t.SCRATCH_X]
    data = shifted(scratch, table[t.SCRATCH_DATA])
    for k in range(size):
        gradient[k] = f32(0)
    for k in range(n.NUMBERS):
        figures[k] = f64(0)
    _set_options(table, minibatch, shifted(scratch, table[t.SCRATCH_OPTIONS]))
    start, _, lo, hi = chunk_bounds(table, minibatch, chunk)
    for first in range(lo, hi, tile):
        count = min(tile, hi - first)
        rows = (count + LANES - 1) // LANES * LANES
        _gather(table, shifted(at(u64(table[t.ORDER]), i32), start + first), count, rows, x, data)
        if table[t.ENCODING] == n.ONE_HOT:
            call_address(u64(table[t.SPREAD]), (x_address, count, table_address))
        for k in range(nets):
            net = table[t.ACTOR] if k == 0 else table[t.CRITIC]
            arguments = (net, x_address, x_row, rows, scratch_address, table_address)
            call_address(u64(table[t.FORWARD]), arguments)
        call_address(
            u64(table[t.LOSS]),
            (count, rows, scratch_address, gradient_address, figures_address, table_address),
        )
        for k in range(nets):
            net = table[t.ACTOR] if k == 0 else table[t.CRITIC]
            call_address(
                u64(table[t.BACKWARD]),
                (net, x_address, x_row, rows, scratch_address, gradient_address, table_address),
            )


@Unit
def train_epoch(worker, table_address):
    """Work on an epoch until it is done; every thread of a team calls this."""
    table = at(u64(table_address), i64)
    control, chunks = at(u64(table[t.CONTROL]), i64), table[t.CHUNKS]
    minibatches = table[t.MINIBATCHES]
    scratch = table[t.SCRATCH] + 4 * worker * table[t.SCRATCH_SIZE]
    while True:
        claimed = atomic_add(control, n.ORDER_CLAIMS, 1)
        if claimed >= minibatches * chunks:
            break
        call_address(
            u64(table[t.ORDER_CHUNK]), (claimed // chunks, claimed % chunks, table_address)
        )
        atomic_add(control, n.ORDER_DONE, 1)
    wait_for(control, n.ORDER_DONE, minibatches * chunks)
    for minibatch in range(minibatches):
        claims = n.CLAIMS + 2 * n.LINE * minibatch
        while True:
            claimed = atomic_add(control, claims, 1)
            if claimed >= chunks:
                break
            _train_chunk(table, minibatch, claimed, scratch, table_address)
            if atomic_add(control, claims + n.LINE, 1) == chunks - 1:
                call_address(u64(table[t.FINISH]), (minibatch, table_address))
                atomic_store(control, n.APPLIED, minibatch + 1)
        wait_for(control, n.APPLIED, minibatch + 1)
    return 0
