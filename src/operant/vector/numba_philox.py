"""Philox4x32-10 for generated Numba code; the same words as `operant.vector.philox`."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit
from numba import uint32 as u32
from numba import uint64 as u64


@njit(forceinline=True)
def _round(c0, c1, c2, c3, k0, k1):
    # Numba widens uint32 arithmetic to 64 bits: cast after every operation.
    p0 = u64(c0) * u64(0xD2511F53)
    p1 = u64(c2) * u64(0xCD9E8D57)
    high0, high1 = u32(p0 >> u64(32)), u32(p1 >> u64(32))
    return u32(high1 ^ c1 ^ k0), u32(p1), u32(high0 ^ c3 ^ k1), u32(p0)


@njit(forceinline=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Four uint32 words from four counter words and two key words, all uint32."""
    for _ in range(10):
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
        k0 = u32(k0 + u32(0x9E3779B9))
        k1 = u32(k1 + u32(0xBB67AE85))
    return c0, c1, c2, c3
