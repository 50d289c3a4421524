"""An epoch: every sample once, in minibatches; what each training thread runs.

A minibatch is cut into chunks, a fixed number of them, and a chunk into tiles. Threads claim chunks;
the gradient of a chunk is added up tile by tile in memory of its own, and those of the chunks in a
fixed order by whoever finishes last, who also moves the parameters. So nobody waits but at the end
of a minibatch, nobody waits for a thread that does not run, and the result does not depend on how
many there are.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

import math

from numba import float32 as f32
from numba import float64 as f64
from numba import int32 as i32
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.lang.intrinsics import at, atomic_add, atomic_load, atomic_store, shifted
from operant.ppo.kernels.numba import layout as n
from operant.ppo.kernels.numba import table as t
from operant.ppo.kernels.numba.encode import ONE_HOT, spread_one_hot
from operant.ppo.kernels.numba.heads import (
    CLIP,
    DATA_ROWS,
    ENTROPY_COEF,
    FIGURES,
    INVERSE_STD,
    MEAN,
    SHARE,
    VALUE_CLIP,
    VALUE_COEF,
    loss_gradient,
)
from operant.ppo.kernels.numba.network import backward_network, forward_network
from operant.ppo.kernels.numba.shuffle import bits_for, shuffled_place
from operant.ppo.kernels.numba.simd import LANES
from operant.ppo.kernels.numba.waiting import wait_for
from operant.ppo.kernels.numba.weights import add_gradients, apply_gradient, pack_weights

ORDER_CLAIMS, ORDER_DONE, APPLIED, CLAIMS = (t.LINE * k for k in range(4))
"""Places in the control words: a counter each, in a cache line of its own. From CLAIMS on, two for
each minibatch: chunks claimed, chunks done."""
MOMENTS = 2
NUMBERS = len(FIGURES)
NORMALIZE = 5
"""Place among the option values, after those of the loss."""


@njit(nogil=True, error_model="numpy")
def _chunk(table, minibatch, chunk):
    """First sample of the minibatch, its size, and the part of it that belongs to a chunk."""
    samples, parts = table[t.STEPS] * table[t.ENVS], table[t.MINIBATCHES]
    size, rest = samples // parts, samples % parts
    start = minibatch * size + min(minibatch, rest)
    if minibatch < rest:
        size += 1
    tile, chunks = table[t.TILE], table[t.CHUNKS]
    tiles = (size + tile - 1) // tile
    lo = min(chunk * tiles // chunks * tile, size)
    return start, size, lo, min((chunk + 1) * tiles // chunks * tile, size)


@njit(nogil=True, error_model="numpy")
def _order_chunk(table, minibatch, chunk):
    """Decide which samples a chunk has; the moments of their advantages.

    The moments are of the differences from the minibatch's first advantage: equal ones have none.
    """
    order, keys = at(u64(table[t.ORDER]), i32), at(u64(table[t.KEYS]), u64)
    advantage = at(u64(table[t.ADVANTAGE]), f32)
    start, size, lo, hi = _chunk(table, minibatch, chunk)
    count = table[t.STEPS] * table[t.ENVS]
    bits = bits_for(count)
    shift = f64(advantage[shuffled_place(start, count, bits, keys)])
    first, second = f64(0), f64(0)
    for k in range(start + lo, start + hi):
        sample = shuffled_place(k, count, bits, keys)
        order[k] = sample
        difference = f64(advantage[sample]) - shift
        first += difference
        second += difference * difference
    place = MOMENTS * (minibatch * table[t.CHUNKS] + chunk)
    moments = shifted(at(u64(table[t.MOMENTS]), f64), place)
    moments[0], moments[1] = first, second


@njit(nogil=True, error_model="numpy")
def _set_options(table, minibatch, options):
    """The loss's numbers for a minibatch; advantages are normalised by its moments."""
    values, chunks = at(u64(table[t.OPTION_VALUES]), f32), table[t.CHUNKS]
    start, size, _, _ = _chunk(table, minibatch, 0)
    for k in (CLIP, VALUE_CLIP, VALUE_COEF, ENTROPY_COEF):
        options[k] = values[k]
    options[SHARE] = f32(1 / f64(size))
    options[MEAN], options[INVERSE_STD] = f32(0), f32(1)
    if values[NORMALIZE] != 0:
        moments = shifted(at(u64(table[t.MOMENTS]), f64), MOMENTS * minibatch * chunks)
        first, second = f64(0), f64(0)
        for k in range(chunks):
            first += moments[MOMENTS * k]
            second += moments[MOMENTS * k + 1]
        sample = at(u64(table[t.ORDER]), i32)[start]
        mean = first / size
        variance = max(second / size - mean * mean, 0.0)
        options[MEAN] = f32(f64(at(u64(table[t.ADVANTAGE]), f32)[sample]) + mean)
        options[INVERSE_STD] = f32(1 / (math.sqrt(variance) + 1e-8))


@njit(nogil=True, error_model="numpy")
def _gather(table, order, count, rows, x, data):
    """Inputs ``x[rows, X_ROW]`` and ``data[:, TILE]`` of the samples ``order[:count]``."""
    samples, row = at(u64(table[t.SAMPLES]), f32), table[t.SAMPLE_ROW]
    x_row, tile, known = table[t.X_ROW], table[t.TILE], table[t.SAMPLE_DATA]
    entries = table[t.PARTS] + DATA_ROWS
    for i in range(count):
        sample = shifted(samples, i64(order[i]) * row)
        for k in range(known):
            x[i * x_row + k] = sample[k]
        for k in range(entries):
            data[k * tile + i] = sample[known + k]
    if table[t.ENCODING] == ONE_HOT:
        spread_one_hot(table, x, count)
    for i in range(count, rows):
        for k in range(x_row):
            x[i * x_row + k] = f32(0)


@njit(nogil=True, error_model="numpy")
def _train_chunk(table, minibatch, chunk, scratch):
    """The gradient of a chunk, and its figures, in memory of its own."""
    tile, activation, nets = table[t.TILE], table[t.ACTIVATION], table[t.NETS]
    actor, critic = at(u64(table[t.ACTOR]), i64), at(u64(table[t.CRITIC]), i64)
    weights, size = at(u64(table[t.WEIGHTS]), f32), table[t.GRADIENT_SIZE]
    gradient = shifted(at(u64(table[t.GRADIENTS]), f32), chunk * size)
    figures = shifted(at(u64(table[t.FIGURE_SUMS]), f64), chunk * NUMBERS)
    x, x_row = shifted(scratch, table[t.SCRATCH_X]), table[t.X_ROW]
    data, work = shifted(scratch, table[t.SCRATCH_DATA]), shifted(scratch, table[t.SCRATCH_WORK])
    options = shifted(scratch, table[t.SCRATCH_OPTIONS])
    sizes = at(u64(table[t.SIZES]), i64)
    value_place = critic[n.OUT] + table[t.VALUE_ROW] * tile
    d_value_place = critic[n.D_OUT] + table[t.VALUE_ROW] * tile
    for k in range(size):
        gradient[k] = f32(0)
    for k in range(NUMBERS):
        figures[k] = f64(0)
    _set_options(table, minibatch, options)
    start, _, lo, hi = _chunk(table, minibatch, chunk)
    for first in range(lo, hi, tile):
        count = min(tile, hi - first)
        rows = (count + LANES - 1) // LANES * LANES
        _gather(table, shifted(at(u64(table[t.ORDER]), i32), start + first), count, rows, x, data)
        net = actor
        for k in range(nets):
            forward_network(net, activation, x, x_row, rows, tile, weights, scratch)
            net = critic
        loss_gradient(
            table[t.KIND], sizes, table[t.PARTS],
            shifted(scratch, actor[n.OUT]), shifted(scratch, actor[n.D_OUT]),
            table[t.ACTOR_OUTPUTS], shifted(scratch, value_place), shifted(scratch, d_value_place),
            shifted(weights, table[t.LOG_STD]), shifted(gradient, table[t.D_LOG_STD]),
            data, work, tile, count, rows, options, figures,
        )  # fmt: skip
        net = actor
        for k in range(nets):
            backward_network(net, activation, x, x_row, rows, tile, weights, scratch, gradient)
            net = critic


@njit(nogil=True, error_model="numpy")
def _finish_minibatch(table, minibatch):
    """Add up what the chunks found, move the parameters, note the figures."""
    chunks = table[t.CHUNKS]
    gradients = at(u64(table[t.GRADIENTS]), f32)
    add_gradients(gradients, table[t.GRADIENT_SIZE], chunks)
    norm = apply_gradient(table, gradients)
    pack_weights(table)
    sums = at(u64(table[t.FIGURE_SUMS]), f64)
    _, size, _, _ = _chunk(table, minibatch, 0)
    results = shifted(at(u64(table[t.RESULTS]), f64), minibatch * (NUMBERS + 1))
    for k in range(NUMBERS):
        result = f64(0)
        for chunk in range(chunks):
            result += sums[chunk * NUMBERS + k]
        results[k] = result / size
    results[NUMBERS] = norm


@njit(cache=True, nogil=True, error_model="numpy")
def train_epoch(worker, table_address):
    """Work on an epoch until it is done; every thread of a team calls this."""
    table = at(u64(table_address), i64)
    control, chunks = at(u64(table[t.CONTROL]), i64), table[t.CHUNKS]
    minibatches = table[t.MINIBATCHES]
    scratch = shifted(at(u64(table[t.SCRATCH]), f32), worker * table[t.SCRATCH_SIZE])
    while True:
        claimed = atomic_add(control, ORDER_CLAIMS, 1)
        if claimed >= minibatches * chunks:
            break
        _order_chunk(table, claimed // chunks, claimed % chunks)
        atomic_add(control, ORDER_DONE, 1)
    wait_for(control, ORDER_DONE, minibatches * chunks)
    for minibatch in range(minibatches):
        claims = CLAIMS + 2 * t.LINE * minibatch
        while True:
            claimed = atomic_add(control, claims, 1)
            if claimed >= chunks:
                break
            _train_chunk(table, minibatch, claimed, scratch)
            if atomic_add(control, claims + t.LINE, 1) == chunks - 1:
                _finish_minibatch(table, minibatch)
                atomic_store(control, APPLIED, minibatch + 1)
        wait_for(control, APPLIED, minibatch + 1)
    return atomic_load(control, APPLIED)


@njit(cache=True, nogil=True, error_model="numpy")
def pack(table_address):
    """Copy the parameters to where kernels read them; see `weights`."""
    pack_weights(at(u64(table_address), i64))
