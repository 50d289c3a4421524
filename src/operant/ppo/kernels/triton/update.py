"""One minibatch: forward, PPO's loss and backward, tile by tile, without activations in memory.

A program takes every so many-th tile and keeps the gradient of all weights of one network in
registers; at the end it writes it as one of the parts that `operant.ppo.kernels.triton.adam` adds
up. Actor and critic are two launches of the same kernel, a shared network is one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from operant.ppo.kernels.triton.inputs import normalize
from operant.ppo.kernels.triton.layers import (
    layer,
    matrix,
    product,
    product_of_columns,
    product_transposed,
    slope,
    vector,
)
from operant.ppo.kernels.triton.loss import (
    categorical_terms,
    gaussian_terms,
    log_softmax,
    objective,
    value_error,
)
from operant.ppo.kernels.triton.moments import minibatch
from operant.ppo.kernels.triton.order import loaded_keys, permutation, shuffled
from operant.toolchain.gpus import interpreted

SUMS = 8
"""Columns of the figures' parts: policy loss, value loss, entropy, KL, clipped; the rest 0."""
CATEGORICAL, GAUSSIAN, GAUSSIAN_BY_STATE = 0, 1, 2


class UpdateArrays(NamedTuple):
    """What an update reads and writes; all on one GPU."""

    samples: Tensor  # float32 [count, row], see `pack_samples`
    low: Tensor  # the weights, see `Networks`: bfloat16 or float32 [size]
    full: Tensor  # float32 [size]
    statistics: Tensor  # float32 [2, numbers]: of the observations
    one_hot: Tensor  # int32 [inputs, 2]: number of the observation, and its value, of each input
    parts: Tensor  # int32 [head]: which part a column belongs to
    firsts: Tensor  # int32 [head]: the first column of its part
    moments: Tensor  # float32 [jobs, 2], see `advantage_moments`
    keys: Tensor  # int64 [epochs, 8]
    clip: Tensor  # float64 [1]
    gradients: Tensor  # float32 [programs, size]
    sums: Tensor  # float32 [programs, SUMS]


def train_tiles(
    arrays: UpdateArrays,
    net: dict[str, Any],
    options: dict[str, Any],
    launch: dict[str, Any],
    job: int,
) -> None:
    """Write the parts of the gradient of minibatch `job` by the weights of one network.

    Args:
        arrays: see there.
        net: what `Network.constants` gives.
        options: the other constants of the kernel.
        launch: ``BLOCK``, samples of a tile, and options of the compiler.
        job: ``epoch * minibatches + minibatch``.
    """
    a, count = arrays, len(arrays.samples)
    programs = len(a.gradients)
    largest = -(-count // options["MINIBATCHES"])
    _train[(programs,)](
        *a,
        job,
        count,
        a.gradients.stride(0),
        TILES=triton.cdiv(largest, launch["BLOCK"] * programs),
        PROGRAMS=programs,
        **permutation(count),
        **net,
        **options,
        **launch,
    )


def launch_options(widest: int) -> dict[str, Any]:
    """Samples of a tile and warps of a program."""
    if interpreted():
        return {"BLOCK": 64}
    return {"BLOCK": 64, "num_warps": 4 if widest <= 64 else 8, "num_stages": 1}


@triton.jit(do_not_specialize=["job"])
def _train(
    samples,
    low,
    full,
    statistics,
    one_hot,
    parts,
    firsts,
    moments,
    keys,
    clip,
    gradients,
    sums,
    job,
    count,
    stride,
    ACTOR: tl.constexpr,  # noqa: N803
    CRITIC: tl.constexpr,  # noqa: N803
    BASE: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    IN: tl.constexpr,  # noqa: N803
    ONES: tl.constexpr,  # noqa: N803
    W1: tl.constexpr,  # noqa: N803
    W2: tl.constexpr,  # noqa: N803
    W3: tl.constexpr,  # noqa: N803
    HEAD: tl.constexpr,  # noqa: N803
    AT: tl.constexpr,  # noqa: N803
    OUTPUTS: tl.constexpr,  # noqa: N803
    DISTRIBUTION: tl.constexpr,  # noqa: N803
    PARTS: tl.constexpr,  # noqa: N803
    OLD_VALUE: tl.constexpr,  # noqa: N803
    ACTION: tl.constexpr,  # noqa: N803
    ACTIONS: tl.constexpr,  # noqa: N803
    MASK: tl.constexpr,  # noqa: N803
    MASKS: tl.constexpr,  # noqa: N803
    OBS: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
    ROW: tl.constexpr,  # noqa: N803
    ONE_HOT: tl.constexpr,  # noqa: N803
    LIMIT: tl.constexpr,  # noqa: N803
    ACTIVATION: tl.constexpr,  # noqa: N803
    QUICK: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    NORMALIZE: tl.constexpr,  # noqa: N803
    VALUE_CLIP: tl.constexpr,  # noqa: N803
    VALUE_COEF: tl.constexpr,  # noqa: N803
    ENTROPY_COEF: tl.constexpr,  # noqa: N803
    MINIBATCHES: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
    PROGRAMS: tl.constexpr,  # noqa: N803
    BITS: tl.constexpr,  # noqa: N803
    WALK: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    kind: tl.constexpr = low.dtype.element_ty
    low += BASE
    full += BASE
    first, size = minibatch(job % MINIBATCHES, count, MINIBATCHES)
    own_keys = loaded_keys(keys, job // MINIBATCHES)
    share = 1.0 / size.to(tl.float32)
    near = tl.load(clip).to(tl.float32)
    mean, scale = 0.0, 1.0
    if NORMALIZE:
        mean, scale = tl.load(moments + 2 * job), tl.load(moments + 2 * job + 1)
    column = tl.arange(0, HEAD)
    part = tl.load(parts + column)[None, :]

    w1 = matrix(low, AT[0], IN, W1)
    d1 = tl.zeros([IN, W1], tl.float32)
    if DEPTH > 1:
        w2 = matrix(low, AT[2], W1, W2)
        b2 = vector(full, AT[3], W2)
        d2 = tl.zeros([W1, W2], tl.float32)
        e2 = tl.zeros([W2], tl.float32)
    if DEPTH > 2:
        w3 = matrix(low, AT[4], W2, W3)
        b3 = vector(full, AT[5], W3)
        d3 = tl.zeros([W2, W3], tl.float32)
        e3 = tl.zeros([W3], tl.float32)
    wh = matrix(low, AT[6], W3, HEAD)
    bh = vector(full, AT[7], HEAD)
    dh = tl.zeros([W3, HEAD], tl.float32)
    eh = tl.zeros([HEAD], tl.float32)
    d_log_std = tl.zeros([HEAD], tl.float32)
    policy_loss = tl.zeros([BLOCK], tl.float32)
    value_loss = tl.zeros([BLOCK], tl.float32)
    entropies = tl.zeros([BLOCK], tl.float32)
    kls = tl.zeros([BLOCK], tl.float32)
    clips = tl.zeros([BLOCK], tl.float32)

    for k in range(TILES):
        position = (k * PROGRAMS + tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
        here = position < size
        sample = shuffled(tl.where(here, first + position, 0), own_keys, count, BITS, WALK)
        row = samples + sample.to(tl.int64) * ROW
        x = inputs(row, here, statistics, one_hot, IN, ONES, OBS, NUMBERS, ONE_HOT, LIMIT)

        h1, k1 = layer(x, w1, None, ACTIVATION, QUICK, PRECISION)
        last = h1
        if DEPTH > 1:
            h2, k2 = layer(h1, w2, b2, ACTIVATION, QUICK, PRECISION)
            last = h2
        if DEPTH > 2:
            h3, k3 = layer(h2, w3, b3, ACTIVATION, QUICK, PRECISION)
            last = h3
        head = product(last, wh, PRECISION) + bh[None, :]

        g = tl.zeros([BLOCK, HEAD], tl.float32)
        if ACTOR:
            old_log_prob = tl.load(row, mask=here, other=0.0)
            advantage = (tl.load(row + 1, mask=here, other=0.0) - mean) * scale
            if DISTRIBUTION == 0:
                if MASK >= 0:
                    bits = tl.load(row + MASK, mask=here, other=0.0).to(tl.int32, bitcast=True)
                    allowed = (bits[:, None] >> tl.minimum(column, 31)[None, :]) & 1
                    allowed = (allowed != 0) | ~here[:, None]
                    logits = tl.where(allowed, head, float("-inf"))
                else:
                    logits = head
                offset = column[None, :] - tl.load(firsts + column)[None, :]
                chosen = tl.zeros([BLOCK, HEAD], tl.int1)
                for j in tl.static_range(ACTIONS):
                    taken = tl.load(row + ACTION + j, mask=here, other=0.0).to(tl.int32)
                    chosen = chosen | ((part == j) & (offset == taken[:, None]))
                log_probs = log_softmax(logits, part, PARTS)
                log_prob, entropy, probs, d_entropy = categorical_terms(
                    log_probs, chosen, part, PARTS
                )
                by_log_prob = tl.where(chosen, 1.0, 0.0) - probs
            else:
                counts = part >= 0
                if DISTRIBUTION == 1:
                    log_std = vector(full, AT[8], HEAD)[None, :] + tl.zeros(
                        [BLOCK, HEAD], tl.float32
                    )
                    means = head
                else:
                    means, log_std = halves(head, column, ACTIONS)
                action = tl.load(
                    row[:, None] + ACTION + column[None, :],
                    mask=here[:, None] & (column < ACTIONS)[None, :],
                    other=0.0,
                )
                log_prob, entropy, by_log_prob, by_log_std, inside = gaussian_terms(
                    means, log_std, action, counts
                )
            lean, loss, kl, clipped = objective(log_prob, old_log_prob, advantage, near)
            lean = tl.where(here, lean * share, 0.0)
            keep = tl.where(here, share, 0.0)
            g = lean[:, None] * by_log_prob
            if DISTRIBUTION == 0:
                g -= (ENTROPY_COEF * keep)[:, None] * d_entropy
            else:
                g_std = lean[:, None] * by_log_std
                g_std -= tl.where(inside, (ENTROPY_COEF * keep)[:, None], 0.0)
                if DISTRIBUTION == 1:
                    d_log_std += tl.sum(g_std, 0)
                else:
                    g += moved(g_std, column, ACTIONS)
            policy_loss += tl.where(here, loss, 0.0)
            entropies += tl.where(here, entropy, 0.0)
            kls += tl.where(here, kl, 0.0)
            clips += tl.where(here, clipped, 0.0)
        if CRITIC:
            target = tl.load(row + 2, mask=here, other=0.0)
            old_value = tl.zeros([BLOCK], tl.float32)
            if OLD_VALUE >= 0:
                old_value = tl.load(row + OLD_VALUE, mask=here, other=0.0)
            at: tl.constexpr = OUTPUTS if ACTOR else 0
            value = tl.sum(tl.where((column == at)[None, :], head, 0.0), 1)
            miss, error = value_error(value, target, old_value, VALUE_CLIP)
            miss = tl.where(here, miss * (VALUE_COEF * share), 0.0)
            g = tl.where((column == at)[None, :], miss[:, None], g)
            value_loss += tl.where(here, error, 0.0)

        eh += tl.sum(g, 0)
        dh += product_of_columns(last, g, kind, PRECISION)
        back = product_transposed(g, wh, PRECISION)
        if DEPTH > 2:
            back *= slope(k3, ACTIVATION)
            e3 += tl.sum(back, 0)
            d3 += product_of_columns(h2, back, kind, PRECISION)
            back = product_transposed(back, w3, PRECISION)
        if DEPTH > 1:
            back *= slope(k2, ACTIVATION)
            e2 += tl.sum(back, 0)
            d2 += product_of_columns(h1, back, kind, PRECISION)
            back = product_transposed(back, w2, PRECISION)
        back *= slope(k1, ACTIVATION)
        d1 += product_of_columns(x, back, kind, PRECISION)

    out = gradients + tl.program_id(0).to(tl.int64) * stride + BASE
    put(out, AT[0], d1, IN, W1)
    if DEPTH > 1:
        put(out, AT[2], d2, W1, W2)
        tl.store(out + AT[3] + tl.arange(0, W2), e2)
    if DEPTH > 2:
        put(out, AT[4], d3, W2, W3)
        tl.store(out + AT[5] + tl.arange(0, W3), e3)
    put(out, AT[6], dh, W3, HEAD)
    tl.store(out + AT[7] + column, eh)
    figures = sums + tl.program_id(0) * 8
    if ACTOR:
        tl.store(out + AT[8] + column, d_log_std)
        tl.store(figures, tl.sum(policy_loss, 0) * share)
        tl.store(figures + 2, tl.sum(entropies, 0) * share)
        tl.store(figures + 3, tl.sum(kls, 0) * share)
        tl.store(figures + 4, tl.sum(clips, 0) * share)
    if CRITIC:
        tl.store(figures + 1, tl.sum(value_loss, 0) * share)


@triton.jit
def inputs(
    row,
    here,
    statistics,
    one_hot,
    IN: tl.constexpr,  # noqa: N803
    ONES: tl.constexpr,  # noqa: N803
    OBS: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
    ONE_HOT: tl.constexpr,  # noqa: N803
    LIMIT: tl.constexpr,  # noqa: N803
):
    """What the network sees of the samples whose rows begin at `row`: float32 ``[rows, IN]``."""
    column = tl.arange(0, IN)
    if ONE_HOT:
        number = tl.load(one_hot + 2 * column)
        wanted = tl.load(one_hot + 2 * column + 1)
        there = here[:, None] & (number >= 0)[None, :]
        seen = tl.load(row[:, None] + OBS + number[None, :], mask=there, other=0.0)
        x = tl.where(there & (seen.to(tl.int32) == wanted[None, :]), 1.0, 0.0)
    else:
        there = here[:, None] & (column < NUMBERS)[None, :]
        x = tl.load(row[:, None] + OBS + column[None, :], mask=there, other=0.0)
        if LIMIT > 0.0:
            x = tl.where(there, normalize(x, column, statistics, NUMBERS, LIMIT), 0.0)
    return tl.where((column == ONES)[None, :], 1.0, x)


@triton.jit
def halves(head, column, ACTIONS: tl.constexpr):  # noqa: N803
    """Means, in the first columns, and what lies `ACTIONS` columns further, moved there."""
    means = tl.where((column < ACTIONS)[None, :], head, 0.0)
    log_std = tl.where((column < 0)[None, :], head, 0.0)
    for k in tl.static_range(ACTIONS):
        one = tl.sum(tl.where((column == ACTIONS + k)[None, :], head, 0.0), 1)
        log_std = tl.where((column == k)[None, :], one[:, None], log_std)
    return means, log_std


@triton.jit
def moved(g, column, ACTIONS: tl.constexpr):  # noqa: N803
    """The first columns, moved by `ACTIONS`."""
    found = tl.where((column < 0)[None, :], g, 0.0)
    for k in tl.static_range(ACTIONS):
        one = tl.sum(tl.where((column == k)[None, :], g, 0.0), 1)
        found = tl.where((column == ACTIONS + k)[None, :], one[:, None], found)
    return found


@triton.jit
def put(out, at, tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # noqa: N803
    """Write a matrix."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(out + at + rows[:, None] * COLUMNS + columns[None, :], tile)
