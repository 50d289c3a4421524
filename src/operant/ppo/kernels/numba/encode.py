"""Observations as a network's inputs."""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.lang.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.numba import table as t

PLAIN, WHOLE, ONE_HOT = range(3)
"""Floats; int64 to be taken as floats; int64 to become one-hot vectors."""


@njit(nogil=True, error_model="numpy")
def encode_numbers(table, obs, first, count, x, x_row):
    """Numbers `first` and on of the observations at address `obs`, as rows of `x`.

    Floats are normalised if asked; for one-hot vectors these are the places of the ones.
    """
    prefer_wide_vectors()
    size, kind = table[t.INPUT_SIZE], table[t.ENCODING]
    if kind == PLAIN:
        source = shifted(at(u64(obs), f32), first * size)
        for i in range(count):
            for k in range(size):
                x[i * x_row + k] = source[i * size + k]
    elif kind == WHOLE:
        whole = shifted(at(u64(obs), i64), first * size)
        for i in range(count):
            for k in range(size):
                x[i * x_row + k] = f32(whole[i * size + k])
    else:
        whole = shifted(at(u64(obs), i64), first * size)
        starts = at(u64(table[t.ONE_HOT_STARTS]), i64)
        for i in range(count):
            for k in range(size):
                x[i * x_row + k] = f32(whole[i * size + k] - starts[k])
    if table[t.NORMALIZE] != 0:
        mean, scale = at(u64(table[t.OBS_MEAN]), f32), at(u64(table[t.OBS_SCALE]), f32)
        limit = at(u64(table[t.OBS_LIMIT]), f32)[0]
        for i in range(count):
            for k in range(size):
                value = (x[i * x_row + k] - mean[k]) * scale[k]
                value = select(value > limit, limit, value)
                x[i * x_row + k] = select(value < -limit, -limit, value)


@njit(nogil=True, error_model="numpy")
def spread_one_hot(table, x, count):
    """Turn places of ones, at the start of the rows of `x`, into the vectors themselves."""
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
            row[first + one] = f32(1)


@njit(nogil=True, error_model="numpy")
def encode(table, obs, first, count, x):
    """Inputs ``x[count, X_ROW]`` of the observations `first` and on at address `obs`."""
    encode_numbers(table, obs, first, count, x, table[t.X_ROW])
    if table[t.ENCODING] == ONE_HOT:
        spread_one_hot(table, x, count)
