"""The policy's random numbers on a GPU; the same as `training.noise.fill_uniforms` gives."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from operant.compiler.philox import POLICY_BLOCK
from operant.compiler.runtime.triton_words import philox, unit
from operant.toolchain.gpus import interpreted


def fill_uniforms_triton(out: Tensor, seed: int, first_step: Tensor) -> None:
    """Fill `out`, float32 ``[T, N, K]``, with the numbers of T steps from `first_step` on.

    `seed` is 0 .. 2**64 - 1; `first_step`, int64 ``[1]``, is on the GPU, so that a graph can be
    replayed for another.
    """
    steps, envs, size = out.shape
    block = 4096 if interpreted() else 256
    _fill[(triton.cdiv(envs, block), steps)](
        out,
        first_step,
        seed & 0x7FFFFFFF | -(seed & 0x80000000),  # as an int32
        seed >> 32 & 0x7FFFFFFF | -(seed >> 32 & 0x80000000),
        envs,
        SIZE=size,
        FIRST=POLICY_BLOCK,
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["seed_low", "seed_high"])
def _fill(
    out,
    first_step,
    seed_low,
    seed_high,
    envs,
    SIZE: tl.constexpr,  # noqa: N803
    FIRST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    t = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = i < envs
    zero = tl.zeros([BLOCK], tl.uint32)
    step = tl.load(first_step) + t
    low, high = zero + step.to(tl.uint32), zero + (step >> 32).to(tl.uint32)
    key = zero + tl.cast(seed_low, tl.int32).to(tl.uint32, bitcast=True)
    salt = zero + tl.cast(seed_high, tl.int32).to(tl.uint32, bitcast=True)
    row = out + (t.to(tl.int64) * envs + i) * SIZE
    for block in tl.static_range((SIZE + 3) // 4):
        w0, w1, w2, w3 = philox(low, high, salt, FIRST + block, key, i.to(tl.uint32))
        tl.store(row + 4 * block, unit(w0), mask=here)
        if 4 * block + 1 < SIZE:
            tl.store(row + 4 * block + 1, unit(w1), mask=here)
        if 4 * block + 2 < SIZE:
            tl.store(row + 4 * block + 2, unit(w2), mask=here)
        if 4 * block + 3 < SIZE:
            tl.store(row + 4 * block + 3, unit(w3), mask=here)
