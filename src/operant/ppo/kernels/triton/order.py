"""Which sample comes when, on the card; the permutation of `operant.ppo.kernels.numba.shuffle`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from operant.ppo.kernels.numba.shuffle import ROUNDS
from operant.vector.cards import interpreted


def fill_orders(out: Tensor, keys: Tensor) -> None:
    """Write a permutation of ``0 .. count - 1`` for each epoch to `out`, int32 ``[epochs, count]``.

    `keys`, int64 ``[epochs, 2 * ROUNDS]``, are the bits that `shuffle_keys` gives.
    """
    epochs, count = out.shape
    block = 1 << 16 if interpreted() else 512
    bits = max(1, (count - 1).bit_length())
    grid = (triton.cdiv(count, block), epochs)
    _orders[grid](out, keys, count, BITS=bits, ROUNDS=ROUNDS, BLOCK=block)


@triton.jit
def _orders(
    out,
    keys,
    count,
    BITS: tl.constexpr,  # noqa: N803
    ROUNDS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    epoch = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = place < count
    mine = keys + epoch * 2 * ROUNDS
    sample = shuffled(tl.where(here, place, 0), mine, count, BITS, ROUNDS)
    tl.store(out + epoch.to(tl.int64) * count + place, sample, mask=here)


@triton.jit
def shuffled(place, keys, count, BITS: tl.constexpr, ROUNDS: tl.constexpr):  # noqa: N803
    """Which sample comes at each `place`, int32 below `count`; int32."""
    x = _mixed(place.to(tl.uint32), keys, BITS, ROUNDS)
    beyond = x >= count
    while tl.max(beyond.to(tl.int32), 0) > 0:  # walk on until the number is one of the count
        x = tl.where(beyond, _mixed(x, keys, BITS, ROUNDS), x)
        beyond = x >= count
    return x.to(tl.int32)


@triton.jit
def _mixed(x, keys, BITS: tl.constexpr, ROUNDS: tl.constexpr):  # noqa: N803
    """Another number of as many bits, 31 at most; different numbers stay different."""
    mask: tl.constexpr = (1 << BITS) - 1
    fold: tl.constexpr = (BITS + 1) // 2
    for k in tl.static_range(ROUNDS):
        # Only the low bits of a product reach the low bits of the result.
        factor = tl.load(keys + 2 * k).to(tl.uint32)
        addend = tl.load(keys + 2 * k + 1).to(tl.uint32)
        x = (x * factor + addend) & mask
        x = x ^ (x >> fold)
    return x
