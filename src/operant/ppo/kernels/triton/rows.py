"""Samples of a rollout as rows of 16-byte vectors: `samples` for kernels that copy them whole.

The network's inputs come first, as it sees them (normalised, one-hot, the constant 1 at their end)
and in bfloat16; then the numbers that the loss needs, float32, in the order of `Columns`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.buffers.gpu import GpuBuffer
from operant.ppo.kernels.triton.samples import Columns
from operant.toolchain.gpus import interpreted


def row_words(inputs: int, columns: Columns) -> int:
    """32-bit words of a row with so many inputs, the constant one not counted."""
    return 4 * (-(-(inputs + 1) // 8) + -(-columns.obs // 4))


def pack_rows(
    buffer: GpuBuffer,
    columns: Columns,
    statistics: Tensor,
    one_hot: Tensor,
    options: dict[str, Any],
    out: Tensor,
) -> None:
    """Write the samples of a rollout.

    Args:
        buffer: the rollout.
        columns: which numbers there are.
        statistics: float32 ``[2, numbers]``, see `normalize`.
        one_hot: int32 ``[inputs, 2]``, see `operant.ppo.kernels.triton.update.UpdateArrays`.
        options: ``ONES``, how many inputs there are, ``ONE_HOT`` and ``LIMIT``.
        out: int32 ``[T * N, row_words]``.
    """
    count = len(buffer)
    block = min(1 << (count - 1).bit_length(), 1 << 14) if interpreted() else 128
    _pack[(triton.cdiv(count, block),)](
        buffer.log_prob,
        buffer.advantage,
        buffer.target,
        buffer.value,
        buffer.action,
        buffer.action_mask,
        buffer.obs,
        statistics,
        one_hot,
        out,
        count,
        WORDS=out.shape[1],
        BLOCK=block,
        **options,
        **{name: value for name, value in columns.constants().items() if name != "ROW"},
    )


def pack_rows_torch(inputs: Tensor, numbers: Tensor, out: Tensor) -> None:
    """The same by PyTorch, from inputs float32 ``[count, inputs]`` and the first columns of what
    `pack_samples` writes."""
    count, size = inputs.shape
    seen = torch.zeros(count, -(-(size + 1) // 8) * 8, dtype=torch.bfloat16, device=out.device)
    seen[:, :size], seen[:, size] = inputs.to(torch.bfloat16), 1.0
    words = seen.view(torch.int16).view(torch.int32)
    out.zero_()
    out[:, : words.shape[1]] = words
    out[:, words.shape[1] : words.shape[1] + numbers.shape[1]] = numbers.view(torch.int32)


@triton.jit
def _pack(
    log_prob,
    advantage,
    target,
    value,
    action,
    action_mask,
    obs,
    statistics,
    one_hot,
    out,
    count,
    WORDS: tl.constexpr,  # noqa: N803
    ONES: tl.constexpr,  # noqa: N803
    ONE_HOT: tl.constexpr,  # noqa: N803
    LIMIT: tl.constexpr,  # noqa: N803
    OLD_VALUE: tl.constexpr,  # noqa: N803
    ACTION: tl.constexpr,  # noqa: N803
    ACTIONS: tl.constexpr,  # noqa: N803
    MASK: tl.constexpr,  # noqa: N803
    MASKS: tl.constexpr,  # noqa: N803
    OBS: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < count
    inputs: tl.constexpr = (ONES + 8) // 8
    words = ()
    for k in tl.static_range(0, 8 * inputs, 4):
        x0, x1, x2, x3 = _four_inputs(
            obs, i, here, statistics, one_hot, k, ONES, ONE_HOT, LIMIT, NUMBERS
        )
        words += (_bits(x0) | (_bits(x1) << 16), _bits(x2) | (_bits(x3) << 16))  # type: ignore[assignment]
    bits = tl.zeros([BLOCK], tl.int32)
    if MASK >= 0:
        for k in tl.static_range(MASKS):
            allowed = tl.load(action_mask + i * MASKS + k, mask=here, other=0)
            bits = bits | (allowed.to(tl.int32) << k)
    known = (log_prob, advantage, target, value, action, bits)
    at: tl.constexpr = (OLD_VALUE, ACTION, ACTIONS, MASK)
    for k in tl.static_range(WORDS - 4 * inputs):
        words += (_number(known, i, here, k, at),)  # type: ignore[assignment]
    # 32 bytes by two lanes side by side: memory takes 16 bytes no faster.
    for k in tl.static_range(0, WORDS // 8 * 8, 8):
        even = tl.join(tl.join(words[k], words[k + 4]), tl.join(words[k + 2], words[k + 6]))
        odd = tl.join(tl.join(words[k + 1], words[k + 5]), tl.join(words[k + 3], words[k + 7]))
        _put(out + k, i, here, WORDS, tl.reshape(tl.join(even, odd), [BLOCK, 8]))
    if WORDS % 8 > 0:
        even, odd = tl.join(words[-4], words[-2]), tl.join(words[-3], words[-1])
        _put(out + WORDS - 4, i, here, WORDS, tl.reshape(tl.join(even, odd), [BLOCK, 4]))


@triton.jit
def _put(out, i, here, WORDS: tl.constexpr, tile):  # noqa: N803
    """Write words of each row, one after the other."""
    target = out + i[:, None] * WORDS + tl.arange(0, tile.shape[1])[None, :]
    tl.store(target, tile, mask=here[:, None])


@triton.jit
def _bits(x):
    """A number's bfloat16, in the low half of an int32."""
    return x.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def _four_inputs(
    obs,
    i,
    here,
    statistics,
    one_hot,
    k: tl.constexpr,
    ONES: tl.constexpr,  # noqa: N803
    ONE_HOT: tl.constexpr,  # noqa: N803
    LIMIT: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
):
    """Inputs `k` to ``k + 3`` of each sample, float32."""
    if (not ONE_HOT) and (NUMBERS % 4 == 0) and (k < ONES):  # by one read of 16 bytes
        source = obs + i[:, None] * NUMBERS + k + tl.arange(0, 4)[None, :]
        seen = tl.load(source, mask=here[:, None], other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(seen, [i.shape[0], 2, 2]))
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
    else:
        x0 = _input(obs, i, here, one_hot, k, ONES, ONE_HOT, NUMBERS)
        x1 = _input(obs, i, here, one_hot, k + 1, ONES, ONE_HOT, NUMBERS)
        x2 = _input(obs, i, here, one_hot, k + 2, ONES, ONE_HOT, NUMBERS)
        x3 = _input(obs, i, here, one_hot, k + 3, ONES, ONE_HOT, NUMBERS)
    if (not ONE_HOT) and (LIMIT > 0.0):
        x0 = _normalized(x0, statistics, k, LIMIT, NUMBERS)
        x1 = _normalized(x1, statistics, k + 1, LIMIT, NUMBERS)
        x2 = _normalized(x2, statistics, k + 2, LIMIT, NUMBERS)
        x3 = _normalized(x3, statistics, k + 3, LIMIT, NUMBERS)
    return x0, x1, x2, x3


@triton.jit
def _input(
    obs,
    i,
    here,
    one_hot,
    k: tl.constexpr,
    ONES: tl.constexpr,  # noqa: N803
    ONE_HOT: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
):
    """Input `k` of each sample, not normalised, float32."""
    if k == ONES:
        x = tl.full([i.shape[0]], 1.0, tl.float32)
    elif k > ONES:
        x = tl.zeros([i.shape[0]], tl.float32)
    elif ONE_HOT:
        number = tl.load(one_hot + 2 * k)
        seen = tl.load(obs + i * NUMBERS + number, mask=here, other=0)
        x = tl.where(seen.to(tl.int32) == tl.load(one_hot + 2 * k + 1), 1.0, 0.0)
    else:
        x = tl.load(obs + i * NUMBERS + k, mask=here, other=0.0).to(tl.float32)
    return x


@triton.jit
def _normalized(x, statistics, k: tl.constexpr, LIMIT: tl.constexpr, NUMBERS: tl.constexpr):  # noqa: N803
    """Number `k` of each observation as the network sees it; other inputs as they are."""
    if k < NUMBERS:
        x = (x - tl.load(statistics + k)) * tl.load(statistics + NUMBERS + k)
        x = tl.minimum(tl.maximum(x, -LIMIT), LIMIT)
    return x


@triton.jit
def _number(known, i, here, k: tl.constexpr, at: tl.constexpr):
    """Number `k` of the loss, its bits as an int32; see `_pack` for what is `known` and where."""
    log_prob, advantage, target, value, action, bits = known
    if k == at[3]:
        found = bits
    else:
        if k == 0:
            x = tl.load(log_prob + i, mask=here, other=0.0)
        elif k == 1:
            x = tl.load(advantage + i, mask=here, other=0.0)
        elif k == 2:
            x = tl.load(target + i, mask=here, other=0.0)
        elif k == at[0]:
            x = tl.load(value + i, mask=here, other=0.0)
        elif (k >= at[1]) and (k < at[1] + at[2]):
            x = tl.load(action + i * at[2] + (k - at[1]), mask=here, other=0).to(tl.float32)
        else:
            x = tl.zeros([i.shape[0]], tl.float32)
        found = x.to(tl.int32, bitcast=True)
    return found
