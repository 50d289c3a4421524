"""Observations as a network's inputs."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.unit import Unit


@Unit
def encode(obs, first, count, x_address, x_row, table_address):
    """Numbers of the observations `first` and on at address `obs`, as rows of `x`.

    Floats are normalised if asked; for one-hot vectors these are the places of the ones, which
    `spread` makes vectors of.
    """
    prefer_wide_vectors()
    table, x = at(u64(table_address), i64), at(u64(x_address), f32)
    size, kind = table[t.INPUT_SIZE], table[t.ENCODING]
    floats, whole = at(u64(obs), f32), at(u64(obs), i64)
    starts = at(u64(table[t.ONE_HOT_STARTS]), i64)
    for i in range(count):
        place = (first + i) * size
        if kind == n.PLAIN:
            for k in range(size):
                x[i * x_row + k] = floats[place + k]
        else:
            for k in range(size):
                start = starts[k] if kind == n.ONE_HOT else 0
                x[i * x_row + k] = f32(whole[place + k] - start)
    if table[t.NORMALIZE] != 0:
        mean, scale = at(u64(table[t.OBS_MEAN]), f32), at(u64(table[t.OBS_SCALE]), f32)
        limit = at(u64(table[t.OBS_LIMIT]), f32)[0]
        for i in range(count):
            for k in range(size):
                value = (x[i * x_row + k] - mean[k]) * scale[k]
                value = select(value > limit, limit, value)
                x[i * x_row + k] = select(value < -limit, -limit, value)
    return 0


@Unit
def spread(x_address, count, table_address):
    """Turn places of ones, at the start of the rows of `x`, into the vectors themselves."""
    table, x = at(u64(table_address), i64), at(u64(x_address), f32)
    parts, x_row = table[t.ONE_HOT_PARTS], table[t.X_ROW]
    sizes = at(u64(table[t.ONE_HOT_SIZES]), i64)
    for i in range(count):
        row = shifted(x, i * x_row)
        first = 0
        for k in range(parts):
            first += sizes[k]
        for k in range(first, x_row):
            row[k] = f32(0)
        for turn in range(parts):  # from the last on: the vector of part k begins at k or later
            k = parts - 1 - turn
            first -= sizes[k]
            one = i64(row[k])
            for j in range(first, first + sizes[k]):
                row[j] = f32(0)
            if 0 <= one < sizes[k]:  # else a number that the space does not have
                row[first + one] = f32(1)
    return 0
