"""Observations as a network's inputs."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.record import record_at


@compiled
def encode(obs, first, count, x_address, x_row, args_address):
    """Numbers of the observations `first` and on at address `obs`, as rows of `x`.

    Floats are normalised if asked; for one-hot vectors these are the indices of the ones, which
    `expand_one_hot` makes vectors of.
    """
    prefer_wide_vectors()
    args, x = record_at(ARGUMENTS, args_address), at(u64(x_address), f32)
    size, kind = args.input_size, args.encoding
    floats, whole = at(u64(obs), f32), at(u64(obs), i64)
    starts = args.one_hot_starts
    for i in range(count):
        offset = (first + i) * size
        if kind == n.PLAIN:
            for k in range(size):
                x[i * x_row + k] = floats[offset + k]
        else:
            for k in range(size):
                start = starts[k] if kind == n.ONE_HOT else 0
                x[i * x_row + k] = f32(whole[offset + k] - start)
    if args.normalize != 0:
        mean, scale = args.obs_mean, args.obs_scale
        limit = args.obs_limit[0]
        for i in range(count):
            for k in range(size):
                value = (x[i * x_row + k] - mean[k]) * scale[k]
                value = select(value > limit, limit, value)
                x[i * x_row + k] = select(value < -limit, -limit, value)
    return 0


@compiled
def expand_one_hot(x_address, count, args_address):
    """Turn indices of ones, at the start of the rows of `x`, into the vectors themselves."""
    args, x = record_at(ARGUMENTS, args_address), at(u64(x_address), f32)
    parts, x_row = args.one_hot_parts, args.x_row
    sizes = args.one_hot_sizes
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
