"""Add up the parts of a gradient, limit it, and let Adam step: every number stays on the GPU."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from operant.backends.cuda.launch import can_overlap
from operant.toolchain.gpus import interpreted

BLOCK = 128
"""Weights of a program that steps."""
ADDED, ROWS = 32, 64
"""Offsets of a program that adds, which lie side by side in every part, and parts at a time."""


class State(NamedTuple):
    """What a step reads and writes; P weights, all on one GPU."""

    addresses: Tensor  # int64 [P]: where each weight is
    places: Tensor  # int32 [P]: and its copy, see `Networks`
    numbers: Tensor  # int32 [size]: which weight is at each offset; -1: none
    full: Tensor  # float32: the copies
    low: Tensor  # the same in the precision of products
    gradient: Tensor  # float32 [P]
    squares: Tensor  # float32 [adding_programs]
    exp_avg: Tensor  # float32 [P]
    exp_avg_sq: Tensor  # float32 [P]
    rate: Tensor  # float64 [1]
    taken: Tensor  # float64 [1]: steps so far
    active: Tensor  # float32 [1]: 0 for a step that moves nothing


def adding_programs(size: int) -> int:
    """Programs that share `size` offsets."""
    return 1 if interpreted() else -(-size // ADDED)


def adam_step(
    state: State,
    gradients: Tensor,
    sums: Tensor,
    figures: Tensor,
    *,
    eps: float,
    betas: tuple[float, float],
    max_norm: float,
    guard: bool,
    early: bool = False,
) -> None:
    """One step, and the figures of the minibatch.

    Args:
        state: see there.
        gradients: float32 ``[parts, size]``: added up in their order.
        sums: float32 ``[parts, 8]``: those of the figures.
        figures: float64 ``[6]``: written, the gradient's norm last.
        eps, betas: Adam's.
        max_norm: how long the gradient may be; 0: any length.
        guard: whether a number that is not finite moves nothing.
        early: whether it may begin while the kernel before it ends, which is what wrote `gradients`
            and `sums`, and writes nothing else that is read here.
    """
    count, size = len(state.places), len(state.numbers)
    adding = adding_programs(size)
    block, added, overlap = BLOCK, ADDED, can_overlap(gradients.device)
    if interpreted():
        block, added = (1 << (x - 1).bit_length() for x in (count, size))
    _add[(adding + 1,)](
        gradients,
        sums,
        state.numbers,
        state.gradient,
        state.squares,
        state.taken,
        state.active,
        figures,
        size,
        gradients.stride(0),
        PARTS=len(gradients),
        ROWS=ROWS,
        BLOCK=added,
        OVERLAP=overlap,
        EARLY=overlap and early,
        **({"launch_pdl": True} if overlap and early else {}),
    )
    _step[(triton.cdiv(count, block),)](
        *state,
        figures,
        count,
        EPS=eps,
        BETA1=betas[0],
        BETA2=betas[1],
        MAX_NORM=max_norm,
        GUARD=guard,
        PROGRAMS=adding,
        SQUARES=1 << (adding - 1).bit_length(),
        BLOCK=block,
        OVERLAP=overlap,
        **({"launch_pdl": True} if overlap else {}),
    )


@triton.jit
def _add(
    gradients,
    sums,
    numbers,
    gradient,
    squares,
    steps,
    active,
    figures,
    size,
    stride,
    PARTS: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
    EARLY: tl.constexpr,  # noqa: N803
):
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    rows = tl.arange(0, ROWS)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(numbers + offset, mask=offset < size, other=-1)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    if tl.program_id(0) == tl.num_programs(0) - 1:  # beside those that have offsets
        kinds = tl.arange(0, 8)
        figure = tl.zeros([ROWS, 8], tl.float32)
        for first in tl.static_range(0, PARTS, ROWS):
            own = sums + (first + rows)[:, None] * 8 + kinds[None, :]
            figure += tl.load(own, mask=(first + rows < PARTS)[:, None], other=0.0)
        tl.store(figures + kinds, tl.sum(figure, 0), mask=kinds < 5)
        tl.store(steps, tl.load(steps) + tl.load(active).to(tl.float64))
    else:
        here = number >= 0
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in tl.static_range(0, PARTS, ROWS):  # so that all are being fetched at once
            there = (first + rows < PARTS)[:, None] & (offset < size)[None, :]
            part = gradients + (first + rows)[:, None].to(tl.int64) * stride + offset[None, :]
            total += tl.load(part, mask=there, other=0.0)
        found = tl.sum(total, 0)
        tl.store(gradient + number, found, mask=here)
        tl.store(squares + tl.program_id(0), tl.sum(tl.where(here, found * found, 0.0), 0))


@triton.jit
def _step(
    addresses,
    places,
    numbers,
    full,
    low,
    gradient,
    squares,
    exp_avg,
    exp_avg_sq,
    rate,
    steps,
    active,
    figures,
    count,
    EPS: tl.constexpr,  # noqa: N803
    BETA1: tl.constexpr,  # noqa: N803
    BETA2: tl.constexpr,  # noqa: N803
    MAX_NORM: tl.constexpr,  # noqa: N803
    GUARD: tl.constexpr,  # noqa: N803
    PROGRAMS: tl.constexpr,  # noqa: N803
    SQUARES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = j < count
    # Fetched while `_add`, and perhaps what ran before it, are still running: they write none of
    # it. What wrote it ended before those began.
    going = tl.load(active + tl.zeros([BLOCK], tl.int32)) > 0.0
    step = tl.load(rate).to(tl.float32)
    mean = tl.load(exp_avg + j, mask=here, other=0.0)
    square = tl.load(exp_avg_sq + j, mask=here, other=0.0)
    offset = tl.load(places + j, mask=here, other=0)
    weight = tl.load(addresses + j, mask=here, other=0).to(tl.pointer_type(tl.float32))
    value = tl.load(weight, mask=here, other=0.0)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    g = tl.load(gradient + j, mask=here, other=0.0)
    taken = tl.maximum(tl.load(steps), 1.0)
    each = tl.arange(0, SQUARES)
    norm = tl.sqrt(tl.sum(tl.load(squares + each, mask=each < PROGRAMS, other=0.0), 0))
    if MAX_NORM > 0.0:
        g = g * tl.minimum(MAX_NORM / (norm + 1e-6), 1.0)
    if GUARD:
        # Not g - g == 0: where g is a product, that may be computed as its rounding error.
        g = tl.where(tl.abs(g) < float("inf"), g, 0.0)
    mean += (g - mean) * (1.0 - BETA1)
    square += (g * g - square) * (1.0 - BETA2)
    left1 = (1.0 - tl.exp2(taken * tl.log2(tl.full([], BETA1, tl.float64)))).to(tl.float32)
    left2 = (1.0 - tl.exp2(taken * tl.log2(tl.full([], BETA2, tl.float64)))).to(tl.float32)
    root = tl.sqrt(square / left2) + EPS
    moving = here & going
    value -= mean / root * (step / left1)
    tl.store(exp_avg + j, mean, mask=moving)
    tl.store(exp_avg_sq + j, square, mask=moving)
    tl.store(weight, value, mask=moving)
    tl.store(full + offset, value, mask=moving)
    tl.store(low + offset, value.to(low.dtype.element_ty), mask=moving)
    if tl.program_id(0) == 0:
        tl.store(figures + 5, norm)
