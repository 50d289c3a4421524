"""Minibatches, and the chunks that threads share them in."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, error_model="numpy")
def chunk_bounds(args, minibatch, chunk):
    """First sample of the minibatch, its size, and the part of it that belongs to a chunk."""
    samples, parts = args.steps * args.envs, args.minibatches
    size, rest = samples // parts, samples % parts
    start = minibatch * size + min(minibatch, rest)
    if minibatch < rest:
        size += 1
    tile, chunks = args.tile, args.chunks
    tiles = (size + tile - 1) // tile
    lo = min(chunk * tiles // chunks * tile, size)
    return start, size, lo, min((chunk + 1) * tiles // chunks * tile, size)
