"""Which sample comes when: a permutation by arithmetic, with no array to shuffle.

A number of b bits is multiplied by an odd number, and its high half folded onto its low half; both
can be undone, so different numbers stay different. Four rounds with keys of their own. Of the 2**b
results those beyond the count are walked on from until one is not, which keeps it a permutation.
"""

from __future__ import annotations

import numpy as np
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.compiler.philox import philox

ROUNDS = 4


def shuffle_keys(seed: int, iteration: int, epochs: int, shard: int = 0) -> np.ndarray:
    """Keys of a permutation for each epoch, uint64 ``[epochs, 2 * ROUNDS]``: a multiplier and an
    addend for each round.

    `seed` has 64 bits at most, `iteration` 48 if there are shards, which have keys of their own.
    """
    found: np.ndarray = shuffle_keys_of_many(seed, iteration + (shard << 48), 1, epochs)[0]
    return found


def shuffle_keys_of_many(seed: int, iteration: int, count: int, epochs: int) -> np.ndarray:
    """The keys of `count` iterations from `iteration` on, uint64 ``[count, epochs, 2 * ROUNDS]``.

    Those of a hundred take about as long as those of one.
    """
    iterations = np.uint64(iteration) + np.arange(count, dtype=np.uint64)[:, None, None]
    counter = (
        iterations & np.uint64(0xFFFFFFFF),
        iterations >> np.uint64(32),
        np.arange(epochs)[:, None],
        np.arange(ROUNDS),
    )
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).astype(np.uint64)
    pairs = words[0::2] << np.uint64(32) | words[1::2]  # [2, count, epochs, ROUNDS]
    pairs[0] |= np.uint64(1)
    return np.ascontiguousarray(np.moveaxis(pairs, 0, -1)).reshape(count, epochs, 2 * ROUNDS)


@njit(nogil=True, error_model="numpy")
def bits_for(count):
    """The bits of a number below `count`; at least 1."""
    bits = 1
    while (1 << bits) < count:
        bits += 1
    return bits


@njit(nogil=True, error_model="numpy")
def shuffled_index(index, count, bits, keys):
    """Where `index` comes to in a permutation of ``0 .. count - 1``."""
    mask = (u64(1) << u64(bits)) - u64(1)
    fold = u64((bits + 1) // 2)
    x = u64(index)
    while True:
        for k in range(ROUNDS):
            x = (x * keys[2 * k] + keys[2 * k + 1]) & mask
            x ^= x >> fold
        if x < u64(count):
            return i64(x)
