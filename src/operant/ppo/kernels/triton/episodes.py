"""The last episodes of a rollout, found on the GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.toolchain.gpus import interpreted

SEGMENTS = 1 << 11
"""Segments that a rollout is cut into, where they are not small: a program has one, and looks at
how many episodes ended in each of the others."""
LEAST = 1 << 10
"""Environments of a segment, at least."""
CHUNK = 1 << 10
"""Segments that a program counts at once."""
MOST = 1 << 13
"""Environments of a segment, at most."""


def last_episodes(
    terminated: Tensor, truncated: Tensor, report: Tensor, most: int, out: Tensor
) -> None:
    """Write the number of episodes that ended in a rollout, then return and length of the last
    `most` of them, to `out`, float64 ``[1 + 2 * most]``: the last first.

    Order is that of a rollout: by step, then by environment. `terminated` and `truncated` are bool
    ``[T, N]``, `report` float32 ``[T, N, 4]`` as `operant.vector.gpu_numbers.Results` has it.
    """
    steps, envs = terminated.shape
    block = 1 << 16 if interpreted() else max(LEAST, steps * envs // SEGMENTS)
    block = min(triton.next_power_of_2(block), triton.next_power_of_2(max(envs, 2)), MOST)
    segments = triton.cdiv(envs, block)
    counts = torch.empty(steps * segments, dtype=torch.int32, device=terminated.device)
    out.zero_()
    chunk = min(triton.next_power_of_2(len(counts)), CHUNK)
    _count[(len(counts),)](terminated, truncated, counts, segments, ENVS=envs, BLOCK=block)
    _last[(len(counts),)](
        terminated,
        truncated,
        counts,
        report,
        out,
        most,
        segments,
        ENVS=envs,
        COUNT=len(counts),
        CHUNK=chunk,
        BLOCK=block,
    )


@triton.jit
def _ended(terminated, truncated, segments, ENVS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Rows of a segment, from the last environment to the first, and where episodes ended."""
    t, segment = tl.program_id(0) // segments, tl.program_id(0) % segments
    i = (segment + 1) * BLOCK - 1 - tl.arange(0, BLOCK)
    row = t.to(tl.int64) * ENVS + i
    over = tl.load(terminated + row, mask=i < ENVS, other=0) != 0
    return row, over | (tl.load(truncated + row, mask=i < ENVS, other=0) != 0)


@triton.jit
def _count(
    terminated,
    truncated,
    counts,
    segments,
    ENVS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """How many episodes ended in each segment."""
    _, done = _ended(terminated, truncated, segments, ENVS, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(done.to(tl.int32), 0))


@triton.jit
def _last(
    terminated,
    truncated,
    counts,
    report,
    out,
    most,
    segments,
    ENVS: tl.constexpr,  # noqa: N803
    COUNT: tl.constexpr,  # noqa: N803
    CHUNK: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Those of a segment, which knows how many episodes ended after it."""
    own = tl.program_id(0)
    found = tl.full([], 0, tl.int32)
    total = tl.full([], 0, tl.int32)
    for first in range(0, COUNT, CHUNK):
        each = first + tl.arange(0, CHUNK)
        ended = tl.load(counts + each, mask=each < COUNT, other=0)
        found += tl.sum(tl.where(each > own, ended, 0), 0)
        total += tl.sum(ended, 0)
    if own == 0:
        tl.store(out, total.to(tl.float64))
    if (found < most) & (tl.load(counts + own) > 0):
        row, done = _ended(terminated, truncated, segments, ENVS, BLOCK)
        rank = found + tl.cumsum(done.to(tl.int32), 0) - 1
        wanted = done & (rank < most)
        gained = tl.load(report + row * 4, mask=wanted, other=0.0)
        length = tl.load(report + row * 4 + 1, mask=wanted, other=0.0)
        length = length.to(tl.int32, bitcast=True)
        tl.store(out + 1 + rank, gained.to(tl.float64), mask=wanted)
        tl.store(out + 1 + most + rank, length.to(tl.float64), mask=wanted)
