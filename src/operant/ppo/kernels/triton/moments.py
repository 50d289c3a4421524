"""Mean and deviation of each minibatch's advantages, before any of them is trained on."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from operant.ppo.kernels.triton.order import loaded_keys, permutation, shuffled
from operant.vector.cards import interpreted

SPLIT = 16
"""Programs that share a minibatch."""


def advantage_moments(
    advantage: Tensor, keys: Tensor, minibatches: int, parts: Tensor, out: Tensor
) -> None:
    """Write mean and 1 / (deviation + 1e-8) of the advantages of each minibatch to `out`.

    Args:
        advantage: float32 ``[count]``, contiguous.
        keys: int64 ``[epochs, 8]``: the permutations, as for `fill_orders`.
        minibatches: of an epoch; sizes as `torch.tensor_split` makes them.
        parts: float64 ``[epochs * minibatches, SPLIT, 2]``: memory to work in.
        out: float32 ``[epochs * minibatches, 2]``.
    """
    count, jobs = advantage.numel(), len(out)
    block = 1 << 13 if interpreted() else 1024
    largest = -(-count // minibatches)
    sizes = {"SPLIT": SPLIT, "BLOCK": block, **permutation(count)}
    tiles = triton.cdiv(largest, SPLIT * block)
    _parts[(jobs, SPLIT)](
        advantage, keys, parts, count, MINIBATCHES=minibatches, TILES=tiles, **sizes
    )
    _merge[(jobs,)](parts, out, count, MINIBATCHES=minibatches, SPLIT=SPLIT)


@triton.jit
def minibatch(number, count, MINIBATCHES: tl.constexpr):  # noqa: N803
    """First place and size of a minibatch of ``count`` samples, as `torch.tensor_split` has it."""
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
    BITS: tl.constexpr,  # noqa: N803
    WALK: tl.constexpr,  # noqa: N803
    SPLIT: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    job, mine = tl.program_id(0), tl.program_id(1)
    first, size = minibatch(job % MINIBATCHES, count, MINIBATCHES)
    own = loaded_keys(keys, job // MINIBATCHES)
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    for k in range(TILES):
        place = (k * SPLIT + mine) * BLOCK + tl.arange(0, BLOCK)
        here = place < size
        sample = shuffled(tl.where(here, first + place, 0), own, count, BITS, WALK)
        found = tl.load(advantage + sample, mask=here, other=0.0).to(tl.float64)
        total += found
        squares += found * found
    tl.store(parts + (job * SPLIT + mine) * 2, tl.sum(total, 0))
    tl.store(parts + (job * SPLIT + mine) * 2 + 1, tl.sum(squares, 0))


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
    each = tl.arange(0, SPLIT)
    mean = tl.sum(tl.load(parts + (job * SPLIT + each) * 2), 0) / size
    square = tl.sum(tl.load(parts + (job * SPLIT + each) * 2 + 1), 0) / size
    # In float64 the difference of the two keeps 16 digits less those of mean**2 / variance.
    variance = tl.maximum(square - mean * mean, 0.0)
    tl.store(out + 2 * job, mean.to(tl.float32))
    tl.store(out + 2 * job + 1, (1.0 / (tl.sqrt(variance) + 1e-8)).to(tl.float32))
