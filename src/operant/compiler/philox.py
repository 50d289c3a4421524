"""Philox4x32-10: the one random stream of every backend (Salmon et al., "Parallel random numbers:
as easy as 1, 2, 3", SC 2011).

A counter-based generator: 128 bits of counter and 64 bits of key in, four random words out, no
state. An environment's draws depend only on who it is and where it stands:

    key     = (low word of its seed, its index in the batch)
    counter = (step of the episode, 0 for the reset; episode; high word of the seed; block)

so the same seed gives the same episodes whatever the backend, the number of workers or the order
of computation. A block is four draws; blocks from `POLICY_BLOCK` up belong to policies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

POLICY_BLOCK = 1 << 16
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> np.ndarray:
    """Four words for each counter: uint32 ``[4, ...]`` from words that broadcast together."""
    words = np.broadcast_arrays(*[np.asarray(word, np.uint64) & _LOW for word in (*counter, *key)])
    c0, c1, c2, c3, k0, k1 = words
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def uniforms(seed: Any, index: Any, episode: Any, step: Any, count: int) -> list[np.ndarray]:
    """`count` float32 arrays in ``[0, 1)``: the draws of these environments at this step.

    `seed` is uint64, the others uint32 or int32, all of one shape. The numbers are multiples of
    2**-24, so they are exact in float32 on every backend.
    """
    seed = np.asarray(seed, np.uint64)
    draws: list[np.ndarray] = []
    for block in range((count + 3) // 4):
        words = philox((step, episode, seed >> _32, block), (seed & _LOW, index))
        draws.extend((words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24))
    return draws[:count]
