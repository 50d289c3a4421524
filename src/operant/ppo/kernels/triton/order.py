"""Which sample comes when, on the GPU; the permutation of `operant.ppo.kernels.cpu.shuffle`."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from operant.toolchain.gpus import interpreted


def fill_orders(out: Tensor, keys: Tensor) -> None:
    """Write a permutation of ``0 .. count - 1`` for each epoch to `out`, int32 ``[epochs, count]``.

    `keys`, int64 ``[epochs, 2 * ROUNDS]``, are the bits that `shuffle_keys` gives.
    """
    epochs, count = out.shape
    block = 1 << 16 if interpreted() else 512
    grid = (triton.cdiv(count, block), epochs)
    _orders[grid](out, keys, count, BLOCK=block, **permutation(count))


def permutation(count: int) -> dict[str, Any]:
    """What kernels that shuffle `count` samples know when they are compiled."""
    bits = max(1, (count - 1).bit_length())
    return {"BITS": bits, "WALK": count != 1 << bits}


@triton.jit
def _orders(
    out,
    keys,
    count,
    BITS: tl.constexpr,  # noqa: N803
    WALK: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    epoch = tl.program_id(1)
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = position < count
    own = loaded_keys(keys, epoch)
    sample = shuffled(tl.where(here, position, 0), own, count, BITS, WALK)
    tl.store(out + epoch.to(tl.int64) * count + position, sample, mask=here)


@triton.jit
def loaded_keys(keys, epoch):
    """The keys of an epoch's permutation; of each only the low bits count."""
    own = keys + epoch * 8
    return (
        tl.load(own).to(tl.uint32),
        tl.load(own + 1).to(tl.uint32),
        tl.load(own + 2).to(tl.uint32),
        tl.load(own + 3).to(tl.uint32),
        tl.load(own + 4).to(tl.uint32),
        tl.load(own + 5).to(tl.uint32),
        tl.load(own + 6).to(tl.uint32),
        tl.load(own + 7).to(tl.uint32),
    )


@triton.jit
def shuffled(position, keys, count, BITS: tl.constexpr, WALK: tl.constexpr):  # noqa: N803
    """Which sample comes at each `position`, below `count`; both int32. WALK: `count` is not all
    that BITS bits can say."""
    x = _mixed(position.to(tl.uint32), keys, BITS)
    if WALK:
        beyond = x >= count
        while tl.max(beyond.to(tl.int32), 0) > 0:  # until the number is one of the count
            x = tl.where(beyond, _mixed(x, keys, BITS), x)
            beyond = x >= count
    return x.to(tl.int32)


@triton.jit
def _mixed(x, keys, BITS: tl.constexpr):  # noqa: N803
    """Another number of as many bits, 31 at most; different numbers stay different."""
    mask: tl.constexpr = (1 << BITS) - 1
    fold: tl.constexpr = (BITS + 1) // 2
    for k in tl.static_range(4):
        # Only the low bits of a product reach the low bits of the result.
        x = (x * keys[2 * k] + keys[2 * k + 1]) & mask
        x = x ^ (x >> fold)
    return x


@triton.jit
def undoing_keys(keys):
    """The keys by which `unshuffled` undoes what `shuffled` does with `keys`."""
    k0, k1 = _undoing(keys[0], keys[1])
    k2, k3 = _undoing(keys[2], keys[3])
    k4, k5 = _undoing(keys[4], keys[5])
    k6, k7 = _undoing(keys[6], keys[7])
    return k0, k1, k2, k3, k4, k5, k6, k7


@triton.jit
def _undoing(factor, addend):
    """Factor and addend that undo a multiplication by an odd `factor` and an addition."""
    inverse = factor  # right in 3 bits; each round doubles them
    for _ in tl.static_range(4):
        inverse = inverse * (2 - factor * inverse)
    return inverse, (0 - addend) * inverse


@triton.jit
def unshuffled(sample, keys, count, BITS: tl.constexpr, WALK: tl.constexpr):  # noqa: N803
    """At which position each `sample` comes: the inverse of `shuffled`, by `undoing_keys`."""
    x = _unmixed(sample.to(tl.uint32), keys, BITS)
    if WALK:
        beyond = x >= count
        while tl.max(beyond.to(tl.int32), 0) > 0:  # back over the numbers that were walked over
            x = tl.where(beyond, _unmixed(x, keys, BITS), x)
            beyond = x >= count
    return x.to(tl.int32)


@triton.jit
def _unmixed(x, keys, BITS: tl.constexpr):  # noqa: N803
    """The number that `_mixed` makes `x` of."""
    # In the upper BITS of a word a product needs no mask; the fold is undone by another one.
    empty: tl.constexpr = 32 - BITS
    mask: tl.constexpr = (1 << 32) - (1 << empty)
    fold: tl.constexpr = (BITS + 1) // 2
    x = x << empty
    for k in tl.static_range(3, -1, -1):
        x = x ^ ((x >> fold) & mask)
        x = x * keys[2 * k] + (keys[2 * k + 1] << empty)
    return x >> empty
