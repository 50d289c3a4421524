"""Functions that generated Triton kernels call."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def minimum(a, b):
    """The smaller of two; NaN if either is."""
    return tl.where(a < b, a, tl.where(a != a, a, b))


@triton.jit
def maximum(a, b):
    """The larger of two; NaN if either is."""
    return tl.where(a > b, a, tl.where(a != a, a, b))


@triton.jit
def floor(x):
    """The largest whole number not above `x`; the GPU's own takes the tiniest numbers for 0."""
    found = tl.floor(x)
    return tl.where(found > x, found - 1.0, found)


@triton.jit
def ceil(x):
    """The smallest whole number not below `x`."""
    found = tl.ceil(x)
    return tl.where(found < x, found + 1.0, found)


@triton.jit
def exact_float(BITS: tl.constexpr):  # noqa: N803
    """The float32 with these bits: a literal -0.0 is 0.0, and a tiny one a float64."""
    return tl.full([], BITS, tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def whole32(x):
    """A float rounded towards zero; beyond 32 bits, and for NaN, the least int."""
    return tl.where(tl.abs(x) < 2147483648.0, x.to(tl.int32), -2147483648)


@triton.jit
def floor_divide(a, b):
    """Integers divided and rounded down, as Python does; 0 for a division by 0."""
    divisor = tl.where((b == 0) | (b == -1), 1, b)  # the least int by -1 does not fit
    quotient = a // divisor  # rounded towards zero
    lower = (quotient * divisor != a) & ((a < 0) != (divisor < 0))
    return tl.where(b == 0, 0, tl.where(b == -1, 0 - a, tl.where(lower, quotient - 1, quotient)))


@triton.jit
def mod(a, b):
    """What is left of such a division, with the sign of `b`; 0 for a division by 0."""
    return tl.where(b == 0, 0, a - floor_divide(a, b) * b)


@triton.jit
def uniforms(step, episode, seed_high, block, seed_low, index):
    """Four numbers in [0, 1), multiples of 2**-24, as in `compiler.philox`; all are int32."""
    w0, w1, w2, w3 = philox(
        step.to(tl.uint32, bitcast=True),
        episode.to(tl.uint32, bitcast=True),
        seed_high.to(tl.uint32, bitcast=True),
        block,
        seed_low.to(tl.uint32, bitcast=True),
        index.to(tl.uint32, bitcast=True),
    )
    return unit(w0), unit(w1), unit(w2), unit(w3)


@triton.jit
def unit(word):
    """A random word as a number in [0, 1)."""
    return (word >> 8).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four uint32 words from four counter words and two key words."""
    c3 = tl.zeros_like(c0) + tl.cast(c3, tl.uint32)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def ticks(host_ns, HOST_CLOCK: tl.constexpr):  # noqa: N803
    """The GPU's clock in ticks of 2**14 ns, int32; the host's where there is no GPU.

    It wraps around after 19 hours, which a difference of two readings survives.
    """
    if HOST_CLOCK:
        return (tl.cast(host_ns, tl.int64) >> 14).to(tl.int32)
    return (tl.extra.cuda.globaltimer() >> 14).to(tl.int32)


@triton.jit
def seconds(now, began):
    """Between two readings of the clock."""
    return (now - began).to(tl.float32) * 16.384e-6
