"""Compiled loops over environments that are the same for every environment class."""

# mypy: disable-error-code="no-untyped-def, call-arg"

from __future__ import annotations

from numba import float32 as f32
from numba import njit
from numba import uint32 as u32
from numba import uint64 as u64

from operant.lang.intrinsics import load, store, trailing_zeros
from operant.vector.numba_philox import philox


@njit(error_model="numpy", forceinline=True, fastmath=False)
def finished_lanes(done_words, lo, hi, num_envs, finished):
    """Collect the set lanes of lo..hi into finished[lo:]; how many.

    Eight flags a word; eight words are packed into one mask of 64 bits, since a loop that ends
    once per 64 lanes is mispredicted less often than one that ends once per 8.
    """
    count = 0
    for start in range(lo, hi, 64):
        mask = u64(0)
        for k in range(8):
            bits = (done_words[(start >> 3) + k] * u64(0x0102040810204080)) >> u64(56)
            mask |= bits << u64(8 * k)
        while mask != u64(0):
            lane = start + trailing_zeros(mask)
            mask &= mask - u64(1)
            if lane < num_envs:
                finished[lo + count] = lane
                count += 1
    return count


@njit(error_model="numpy", forceinline=True, fastmath=False)
def fill_draws(lo, hi, block, step, number, high, low, who, draw0, draw1, draw2, draw3):
    """Four uniform numbers for each of the random streams lo..hi."""
    step, number, high = step[lo:hi], number[lo:hi], high[lo:hi]
    low, who = low[lo:hi], who[lo:hi]
    draw0, draw1, draw2, draw3 = draw0[lo:hi], draw1[lo:hi], draw2[lo:hi], draw3[lo:hi]
    for j in range(hi - lo):
        counter = load(128, step, j), load(129, number, j), load(130, high, j), u32(block)
        words = philox(*counter, load(131, low, j), load(132, who, j))
        store(133, draw0, j, f32(words[0] >> u32(8)) * f32(2.0**-24))
        store(134, draw1, j, f32(words[1] >> u32(8)) * f32(2.0**-24))
        store(135, draw2, j, f32(words[2] >> u32(8)) * f32(2.0**-24))
        store(136, draw3, j, f32(words[3] >> u32(8)) * f32(2.0**-24))
