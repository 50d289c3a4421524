"""The last episodes of a rollout, found on the card."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.vector.cards import interpreted

CHUNK = 1 << 10
"""Steps that a program counts at once."""


def last_episodes(
    terminated: Tensor, truncated: Tensor, report: Tensor, most: int, out: Tensor
) -> None:
    """Write the number of episodes that ended in a rollout, then return and length of the last
    `most` of them, to `out`, float64 ``[1 + 2 * most]``: the last first.

    Order is that of a rollout: by step, then by environment. `terminated` and `truncated` are bool
    ``[T, N]``, `report` float32 ``[T, N, 4]`` as `operant.vector.triton.Results` has it.
    """
    steps, envs = terminated.shape
    counts = torch.empty(steps, dtype=torch.int32, device=terminated.device)
    out.zero_()
    chunk = min(triton.next_power_of_2(steps), CHUNK)
    block = min(1 << max(envs - 1, 1).bit_length(), 1 << 16 if interpreted() else 1 << 12)
    _count[(steps,)](terminated, truncated, counts, ENVS=envs, BLOCK=block)
    _last[(steps,)](
        terminated,
        truncated,
        counts,
        report,
        out,
        most,
        ENVS=envs,
        STEPS=steps,
        CHUNK=chunk,
        BLOCK=block,
    )


@triton.jit
def _ended(terminated, truncated, row, here):
    """Which episodes ended."""
    over = tl.load(terminated + row, mask=here, other=0) != 0
    return over | (tl.load(truncated + row, mask=here, other=0) != 0)


@triton.jit
def _count(
    terminated,
    truncated,
    counts,
    ENVS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """How many episodes ended at each step."""
    t = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.int32)
    for start in range(0, ENVS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += _ended(terminated, truncated, t * ENVS + i, i < ENVS).to(tl.int32)
    tl.store(counts + t, tl.sum(total, 0))


@triton.jit
def _last(
    terminated,
    truncated,
    counts,
    report,
    out,
    most,
    ENVS: tl.constexpr,  # noqa: N803
    STEPS: tl.constexpr,  # noqa: N803
    CHUNK: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """A program has a step, and knows how many episodes ended after it."""
    t = tl.program_id(0)
    found = tl.full([], 0, tl.int32)
    total = tl.full([], 0, tl.int32)
    for first in range(0, STEPS, CHUNK):
        each = first + tl.arange(0, CHUNK)
        ended = tl.load(counts + each, mask=each < STEPS, other=0)
        found += tl.sum(tl.where(each > t, ended, 0), 0)
        total += tl.sum(ended, 0)
    if t == 0:
        tl.store(out, total.to(tl.float64))
    enough = tl.minimum(most, found + tl.load(counts + t))
    start = tl.full([], 0, tl.int32)
    while found < enough:
        i = ENVS - 1 - start - tl.arange(0, BLOCK)  # from the last environment to the first
        row = t.to(tl.int64) * ENVS + i
        done = _ended(terminated, truncated, row, i >= 0)
        rank = found + tl.cumsum(done.to(tl.int32), 0) - 1
        wanted = done & (rank < most)
        gained = tl.load(report + row * 4, mask=wanted, other=0.0)
        length = tl.load(report + row * 4 + 1, mask=wanted, other=0.0)
        length = length.to(tl.int32, bitcast=True)
        tl.store(out + 1 + rank, gained.to(tl.float64), mask=wanted)
        tl.store(out + 1 + most + rank, length.to(tl.float64), mask=wanted)
        found += tl.sum(done.to(tl.int32), 0)
        start += BLOCK
