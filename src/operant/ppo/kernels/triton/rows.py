"""Samples of a rollout as rows of 16-byte pieces: `samples` for kernels that copy them as they are.

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
from operant.vector.cards import interpreted


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
        one_hot: int32 ``[inputs, 2]``, see `operant.ppo.kernels.triton.update.Arrays`.
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
    numbers: tl.constexpr = (OBS + 3) // 4
    for piece in tl.static_range(inputs):
        _put(
            out,
            i,
            here,
            WORDS,
            piece,
            _pair(obs, i, here, statistics, one_hot, 8 * piece, ONES, ONE_HOT, LIMIT, NUMBERS),
            _pair(obs, i, here, statistics, one_hot, 8 * piece + 2, ONES, ONE_HOT, LIMIT, NUMBERS),
            _pair(obs, i, here, statistics, one_hot, 8 * piece + 4, ONES, ONE_HOT, LIMIT, NUMBERS),
            _pair(obs, i, here, statistics, one_hot, 8 * piece + 6, ONES, ONE_HOT, LIMIT, NUMBERS),
        )
    bits = tl.zeros([BLOCK], tl.int32)
    if MASK >= 0:
        for k in tl.static_range(MASKS):
            allowed = tl.load(action_mask + i * MASKS + k, mask=here, other=0)
            bits = bits | (allowed.to(tl.int32) << k)
    known = (log_prob, advantage, target, value, action, bits)
    at: tl.constexpr = (OLD_VALUE, ACTION, ACTIONS, MASK)
    for piece in tl.static_range(numbers):
        _put(
            out,
            i,
            here,
            WORDS,
            inputs + piece,
            _number(known, i, here, 4 * piece, at),
            _number(known, i, here, 4 * piece + 1, at),
            _number(known, i, here, 4 * piece + 2, at),
            _number(known, i, here, 4 * piece + 3, at),
        )


@triton.jit
def _put(out, i, here, WORDS: tl.constexpr, piece: tl.constexpr, w0, w1, w2, w3):  # noqa: N803
    """Write a piece of each row."""
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    tile = tl.reshape(words, [i.shape[0], 4])
    place = out + i[:, None] * WORDS + 4 * piece + tl.arange(0, 4)[None, :]
    tl.store(place, tile, mask=here[:, None])


@triton.jit
def _pair(
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
    """Inputs `k` and ``k + 1`` as a word."""
    first = _input(obs, i, here, statistics, one_hot, k, ONES, ONE_HOT, LIMIT, NUMBERS)
    second = _input(obs, i, here, statistics, one_hot, k + 1, ONES, ONE_HOT, LIMIT, NUMBERS)
    return _bits(first) | (_bits(second) << 16)


@triton.jit
def _bits(x):
    """A number's bfloat16, in the low half of an int32."""
    return x.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def _input(
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
    """Input `k` of each sample, float32."""
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
        if LIMIT > 0.0:
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
