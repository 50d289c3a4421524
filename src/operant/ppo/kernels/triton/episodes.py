"""The last episodes of a rollout, found on the card."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.vector.cards import interpreted


def last_episodes(
    terminated: Tensor, truncated: Tensor, report: Tensor, most: int, out: Tensor
) -> None:
    """Write the number of episodes that ended in a rollout, then return and length of the last
    `most` of them, to `out`, float64 ``[1 + 2 * most]``: the last first.

    Order is that of a rollout: by step, then by environment. `terminated` and `truncated` are bool
    ``[T, N]``, `report` float32 ``[T, N, 4]`` as `operant.vector.triton.Results` has it.
    """
    steps, envs = terminated.shape
    ended = torch.logical_or(terminated, truncated)
    counts = ended.sum(1, dtype=torch.int32)
    out.zero_()
    block = min(1 << max(envs - 1, 1).bit_length(), 1 << 16 if interpreted() else 1024)
    _last[(1,)](ended, counts, report, out, most, ENVS=envs, STEPS=steps, BLOCK=block)
    out[0] = counts.sum()


@triton.jit
def _last(
    ended,
    counts,
    report,
    out,
    most,
    ENVS: tl.constexpr,  # noqa: N803
    STEPS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """One program looks at the steps from the last to the first until it has found enough."""
    lane = tl.arange(0, BLOCK)
    found = tl.full([], 0, tl.int32)
    t = tl.full([], STEPS - 1, tl.int32)
    while (t >= 0) & (found < most):
        here = tl.load(counts + t)
        if here > 0:
            for start in range(0, ENVS, BLOCK):  # from the last environment to the first
                i = ENVS - 1 - start - lane
                row = t.to(tl.int64) * ENVS + i
                done = (tl.load(ended + row, mask=i >= 0, other=0) != 0) & (i >= 0)
                rank = found + tl.cumsum(done.to(tl.int32), 0) - 1
                wanted = done & (rank < most)
                gained = tl.load(report + row * 4, mask=wanted, other=0.0)
                length = tl.load(report + row * 4 + 1, mask=wanted, other=0.0)
                length = length.to(tl.int32, bitcast=True)
                tl.store(out + 1 + rank, gained.to(tl.float64), mask=wanted)
                tl.store(out + 1 + most + rank, length.to(tl.float64), mask=wanted)
                found += tl.sum(done.to(tl.int32), 0)
        t -= 1
