"""Means and deviations, by sums in float64: of each minibatch's advantages, of a whole rollout."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from operant.ppo.kernels.triton.order import loaded_keys, permutation, undoing_keys, unshuffled
from operant.toolchain.gpus import interpreted

SPLIT = 1024
"""Programs that share the advantages, for each epoch."""
ROWS = 16
"""Minibatches that a program adds up at most; more are shared by several."""


def advantage_moments(
    advantage: Tensor, keys: Tensor, minibatches: int, parts: Tensor, out: Tensor
) -> None:
    """Write mean and 1 / (deviation + 1e-8) of the advantages of each minibatch to `out`.

    Advantages are read in their order, and each is added to the minibatch that it will be in:
    reading them in the order of the minibatches took 57 us for 2.1 million on an H200.

    Args:
        advantage: float32 ``[count]``, contiguous.
        keys: int64 ``[epochs, 8]``: the permutations, as for `fill_orders`.
        minibatches: of an epoch; sizes as `torch.tensor_split` makes them.
        parts: float64 ``[epochs * minibatches, 2, SPLIT]``: memory to work in.
        out: float32 ``[epochs * minibatches, 2]``.
    """
    count, epochs = advantage.numel(), len(keys)
    rows = min(triton.next_power_of_2(minibatches), ROWS)
    split, block = (1, 1 << 13) if interpreted() else (SPLIT, 32 * ROWS // rows)
    options = {} if interpreted() else {"num_warps": 1}
    _parts[(split, epochs, triton.cdiv(minibatches, rows))](
        advantage,
        keys,
        parts,
        count,
        MINIBATCHES=minibatches,
        TILES=triton.cdiv(count, split * block),
        ROWS=rows,
        BLOCK=block,
        **permutation(count),
        **options,
    )
    _merge[(len(out),)](parts, out, count, MINIBATCHES=minibatches, SPLIT=split)


def variances(one: Tensor, other: Tensor, parts: Tensor, out: Tensor) -> None:
    """Write the variances of all numbers of two tensors, float32 and contiguous, to `out`, float64
    ``[2]``. `parts`, float64 ``[2, 2, SPLIT]``, is memory to work in."""
    count = one.numel()
    split, block = (1, 1 << 13) if interpreted() else (SPLIT, 512)
    tiles = triton.cdiv(count, split * block)
    _added[(split, 2)](one, other, parts, count, TILES=tiles, BLOCK=block)
    _variance[(2,)](parts, out, count, SPLIT=split)


@triton.jit
def _added(
    one,
    other,
    parts,
    count,
    TILES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    mine, which, split = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    numbers = one if which == 0 else other
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    for k in range(TILES):
        i = (k * split + mine) * BLOCK + tl.arange(0, BLOCK)
        found = tl.load(numbers + i, mask=i < count, other=0.0).to(tl.float64)
        total += found
        squares += found * found
    tl.store(parts + 2 * split * which + mine, tl.sum(total, 0))
    tl.store(parts + 2 * split * which + split + mine, tl.sum(squares, 0))


@triton.jit
def _variance(parts, out, count, SPLIT: tl.constexpr):  # noqa: N803
    which = tl.program_id(0)
    part = parts + 2 * SPLIT * which + tl.arange(0, SPLIT)
    mean = tl.sum(tl.load(part), 0) / count
    square = tl.sum(tl.load(part + SPLIT), 0) / count
    tl.store(out + which, tl.maximum(square - mean * mean, 0.0))


@triton.jit
def minibatch(number, count, MINIBATCHES: tl.constexpr):  # noqa: N803
    """First position and size of a minibatch of ``count`` samples, as `torch.tensor_split` cuts."""
    size, larger = count // MINIBATCHES, count % MINIBATCHES
    first = number * size + tl.minimum(number, larger)
    return first, size + (number < larger).to(tl.int32)


@triton.jit
def _parts(
    advantage,
    keys,
    parts,
    count,
    MINIBATCHES: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    BITS: tl.constexpr,  # noqa: N803
    WALK: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    mine, epoch = tl.program_id(0), tl.program_id(1)
    split = tl.num_programs(0)
    own = undoing_keys(loaded_keys(keys, epoch))
    number = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    first, size = minibatch(number, count, MINIBATCHES)
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    squares = tl.zeros([ROWS, BLOCK], tl.float64)
    for k in range(TILES):
        i = (k * split + mine) * BLOCK + tl.arange(0, BLOCK)
        here = i < count
        found = tl.load(advantage + i, mask=here, other=0.0).to(tl.float64)
        if WALK:  # from elsewhere the walk may not end
            i = tl.where(here, i, 0)
        position = unshuffled(i, own, count, BITS, WALK)
        # As numbers without a sign, smaller positions are far away too.
        within = (position[None, :] - first[:, None]).to(tl.uint32) < size[:, None]
        added = tl.where(within, found[None, :], 0.0)
        total += added
        squares += added * added
    job = epoch * MINIBATCHES + number
    there = number < MINIBATCHES
    tl.store(parts + 2 * split * job + mine, tl.sum(total, 1), mask=there)
    tl.store(parts + 2 * split * job + split + mine, tl.sum(squares, 1), mask=there)


@triton.jit
def _merge(
    parts,
    out,
    count,
    MINIBATCHES: tl.constexpr,  # noqa: N803
    SPLIT: tl.constexpr,  # noqa: N803
):
    job = tl.program_id(0)
    _, size = minibatch(job % MINIBATCHES, count, MINIBATCHES)
    part = parts + 2 * SPLIT * job + tl.arange(0, SPLIT)
    mean = tl.sum(tl.load(part), 0) / size
    square = tl.sum(tl.load(part + SPLIT), 0) / size
    # In float64 the difference of the two keeps 16 digits less those of mean**2 / variance.
    variance = tl.maximum(square - mean * mean, 0.0)
    tl.store(out + 2 * job, mean.to(tl.float32))
    tl.store(out + 2 * job + 1, (1.0 / (tl.sqrt(variance) + 1e-8)).to(tl.float32))
