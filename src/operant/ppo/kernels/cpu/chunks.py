"""Minibatches, and the chunks that threads share them in."""

from __future__ import annotations

from numba import njit

from operant.ppo.kernels.cpu import table as t


@njit(nogil=True, error_model="numpy")
def chunk_bounds(table, minibatch, chunk):
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
