"""What is computed along time on the GPU, one Triton kernel each: advantages, discounted returns.

A program has a block of environments and walks through the steps; blocks are independent, so the
results do not depend on their number. The same sums in the same order as in
`operant.buffers.advantages`, which says what they mean. What is read does not depend on the sums:
a program fetches several steps at once, and so waits for memory once for all of them.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from operant.toolchain.gpus import interpreted


def gae_triton(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    last_value: Tensor,
    gamma: float,
    gae_lambda: float,
    out: tuple[Tensor, Tensor],
) -> None:
    """Write advantages and value targets to `out`, float32 ``[T, N]`` each.

    Args:
        reward, value, final_value: float32 ``[T, N]``, contiguous, on one GPU.
        terminated, truncated: bool ``[T, N]``; where both are set, terminated counts.
        last_value: float32 ``[N]``: value of the observation after the last step.
        gamma, gae_lambda: discount and trace decay, 0 to 1.
        out: contiguous, overlapping nothing else.
    """
    steps, envs = reward.shape
    block = _block(envs)
    _gae[(triton.cdiv(envs, block["BLOCK"]),)](
        reward,
        value,
        terminated,
        truncated,
        final_value,
        last_value,
        *out,
        gamma,
        gae_lambda,
        envs,
        STEPS=steps,
        **block,
    )


def discounted_triton(
    reward: Tensor, terminated: Tensor, truncated: Tensor, carry: Tensor, gamma: float, out: Tensor
) -> None:
    """Write the discounted sum of rewards up to each step to `out`, float32 ``[T, N]``.

    `carry`, float32 ``[N]``, holds the sums before the first step and is updated; an episode's end
    sets it to 0. The others are as for `gae_triton`.
    """
    steps, envs = reward.shape
    block = _block(envs)
    grid = (triton.cdiv(envs, block["BLOCK"]),)
    _discounted[grid](reward, terminated, truncated, carry, out, gamma, envs, STEPS=steps, **block)


def _block(envs: int) -> dict[str, Any]:
    """Environments of a program: one warp's, so that small batches use the whole GPU; and steps
    that it fetches at once, as many as its registers hold."""
    if interpreted():
        return {"BLOCK": min(1 << max(envs - 1, 1).bit_length(), 1 << 16), "CHUNK": 4}
    block, chunk = (32, 16) if envs < 1 << 17 else (128, 4)
    return {"BLOCK": block, "CHUNK": chunk, "num_warps": 1, "enable_fp_fusion": False}


@triton.jit(do_not_specialize=["gamma", "gae_lambda"])
def _gae(
    reward,
    value,
    terminated,
    truncated,
    final_value,
    last_value,
    advantage,
    target,
    gamma,
    gae_lambda,
    envs,
    STEPS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    CHUNK: tl.constexpr,  # noqa: N803
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < envs
    inputs = (reward, value, terminated, truncated, final_value)
    outputs, factors = (advantage, target), (gamma, gamma * gae_lambda)
    following = tl.load(last_value + i, mask=here, other=0)
    trace = tl.zeros([BLOCK], tl.float32)
    row = i + tl.cast(STEPS - 1, tl.int64) * envs
    for _ in range(STEPS // CHUNK):
        following, trace = _gae_chunk(
            inputs, outputs, factors, following, trace, row, here, envs, CHUNK
        )
        row -= tl.cast(CHUNK, tl.int64) * envs
    _gae_chunk(inputs, outputs, factors, following, trace, row, here, envs, STEPS % CHUNK)


@triton.jit
def _gae_chunk(
    inputs,
    outputs,
    factors,
    following,
    trace,
    row,
    here,
    envs,
    SIZE: tl.constexpr,  # noqa: N803
):
    """SIZE steps back from `row`; what follows the step before these, and its trace."""
    reward, value, terminated, truncated, final_value = inputs
    advantage, target = outputs
    gamma, decay = factors
    fetched = ()
    for k in tl.static_range(SIZE):
        at = row - tl.cast(k, tl.int64) * envs
        dead = tl.load(terminated + at, mask=here, other=0)
        cut = tl.load(truncated + at, mask=here, other=0)
        now = tl.load(value + at, mask=here, other=0)
        final = tl.load(final_value + at, mask=here, other=0)
        gained = tl.load(reward + at, mask=here, other=0)
        fetched += ((dead, cut, now, final, gained),)  # type: ignore[assignment]
    for k in tl.static_range(SIZE):
        at = row - tl.cast(k, tl.int64) * envs
        dead, cut, now, final, gained = fetched[k]
        after = tl.where(dead != 0, 0.0, tl.where(cut != 0, final, following))
        rest = tl.where(dead != 0, 0.0, tl.where(cut != 0, 0.0, trace))
        trace = gained + gamma * after - now + decay * rest
        tl.store(advantage + at, trace, mask=here)
        tl.store(target + at, trace + now, mask=here)
        following = now
    return following, trace


@triton.jit(do_not_specialize=["gamma"])
def _discounted(
    reward,
    terminated,
    truncated,
    carry,
    out,
    gamma,
    envs,
    STEPS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    CHUNK: tl.constexpr,  # noqa: N803
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < envs
    inputs = (reward, terminated, truncated)
    total = tl.load(carry + i, mask=here, other=0)
    row = i.to(tl.int64)
    for _ in range(STEPS // CHUNK):
        total = _discounted_chunk(inputs, out, gamma, total, row, here, envs, CHUNK)
        row += tl.cast(CHUNK, tl.int64) * envs
    total = _discounted_chunk(inputs, out, gamma, total, row, here, envs, STEPS % CHUNK)
    tl.store(carry + i, total, mask=here)


@triton.jit
def _discounted_chunk(inputs, out, gamma, total, row, here, envs, SIZE: tl.constexpr):  # noqa: N803
    """SIZE steps on from `row`; the sum before the step after these."""
    reward, terminated, truncated = inputs
    fetched = ()
    for k in tl.static_range(SIZE):
        at = row + tl.cast(k, tl.int64) * envs
        gained = tl.load(reward + at, mask=here, other=0)
        dead = tl.load(terminated + at, mask=here, other=0)
        cut = tl.load(truncated + at, mask=here, other=0)
        fetched += ((gained, dead, cut),)  # type: ignore[assignment]
    for k in tl.static_range(SIZE):
        gained, dead, cut = fetched[k]
        total = total * gamma + gained
        tl.store(out + row + tl.cast(k, tl.int64) * envs, total, mask=here)
        total = tl.where((dead != 0) | (cut != 0), 0.0, total)
    return total
