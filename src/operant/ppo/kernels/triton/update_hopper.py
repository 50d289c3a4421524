"""`update` for cards of compute capability 9: the same sums, with products that run by themselves.

A program is one or two groups of four warps. Weights and activations lie in shared memory, where
the tensor cores read them in either direction; what one product gives is the next one's operand in
registers. Gradients of weights are summed while the way back goes on. All hidden layers are padded
to the same width, 64 or 128. bfloat16 only.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from operant.ppo.kernels.triton.inputs import normalize
from operant.ppo.kernels.triton.layers import activate, slope
from operant.ppo.kernels.triton.loss import (
    choices_terms,
    gaussian_terms,
    log_softmax,
    objective,
    value_error,
)
from operant.ppo.kernels.triton.moments import minibatch
from operant.ppo.kernels.triton.order import loaded_keys, permutation, shuffled
from operant.ppo.kernels.triton.update import Arrays, halves, moved


def train_tiles_hopper(
    arrays: Arrays, net: dict[str, Any], options: dict[str, Any], launch: dict[str, Any], job: int
) -> None:
    """See `train_tiles`."""
    a, count = arrays, len(arrays.samples)
    programs = len(a.gradients)
    largest = -(-count // options["MINIBATCHES"])
    _train_hopper[(programs,)](
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


def programs_hopper(width: int) -> int:
    """Programs that a processor of the card has registers for."""
    return 3 if width <= 64 else 1


def launch_options_hopper(width: int) -> dict[str, Any]:
    """Samples of a tile and warps of a program, for networks of that width."""
    warps = 4 if width <= 64 else 8
    return {"BLOCK": 16 * warps, "num_warps": warps, "maxnreg": 168 if warps == 4 else 240}


@gluon.constexpr_function
def _mma(warps, columns):
    """How the tensor cores hand out a tile with so many columns."""
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, columns, 16])


@gluon.constexpr_function
def _blocked(warps, columns):
    """A tile whose rows are read by neighbouring threads, 4 numbers each."""
    across = min(columns // 4, 32)
    return gl.BlockedLayout([1, 4], [32 // across, across], [warps, 1], [1, 0])


@gluon.constexpr_function
def _shared(rows, columns):
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)


@gluon.jit
def _matrix(weights, at, ROWS: gl.constexpr, COLUMNS: gl.constexpr):  # noqa: N803
    """A matrix of weights, in shared memory."""
    layout: gl.constexpr = _blocked(gl.num_warps(), COLUMNS)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    tile = gl.load(weights + at + rows[:, None] * COLUMNS + columns[None, :])
    place = gl.allocate_shared_memory(gl.bfloat16, [ROWS, COLUMNS], _shared(ROWS, COLUMNS))
    place.store(tile)
    return place


@gluon.jit
def _room(ROWS: gl.constexpr, COLUMNS: gl.constexpr):  # noqa: N803
    return gl.allocate_shared_memory(gl.bfloat16, [ROWS, COLUMNS], _shared(ROWS, COLUMNS))


@gluon.jit
def _product(a, b, layout: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):  # noqa: N803
    """``a @ b`` of tiles in shared memory, waited for."""
    zero = gl.zeros([ROWS, COLUMNS], gl.float32, layout)
    return warpgroup_mma(a, b, zero, use_acc=False)


@gluon.jit
def _operand(tile, COLUMNS: gl.constexpr):  # noqa: N803
    """A tile as the first factor of a product with so many columns, in registers."""
    layout: gl.constexpr = gl.DotOperandLayout(0, _mma(gl.num_warps(), COLUMNS), 2)
    return gl.convert_layout(tile, layout)


@gluon.jit
def _layer(a, weights, bias, W: gl.constexpr, ROWS: gl.constexpr, KIND: gl.constexpr):  # noqa: N803
    """A hidden layer: its results, and what they came from, in bfloat16."""
    layout: gl.constexpr = _mma(gl.num_warps(), W)
    z = _product(a, weights, layout, ROWS, W)
    if bias is not None:
        z += gl.load(bias + gl.arange(0, W, gl.SliceLayout(0, layout)))[None, :]
    active = activate(z, KIND, True)
    return active.to(gl.bfloat16), z.to(gl.bfloat16)


@gluon.jit
def _slope(z, active, layout: gl.constexpr, KIND: gl.constexpr):  # noqa: N803
    """The activation's derivative, from what lies in shared memory if that will do."""
    if KIND == 2:
        found = slope(z.to(gl.float32), KIND)
    else:
        found = slope(active.load(layout).to(gl.float32), KIND)
    return found


@gluon.jit
def _fetched(
    tile,
    first,
    size,
    samples,
    keys,
    count,
    statistics,
    one_hot,
    IN: gl.constexpr,  # noqa: N803
    ONES: gl.constexpr,  # noqa: N803
    OBS: gl.constexpr,  # noqa: N803
    NUMBERS: gl.constexpr,  # noqa: N803
    ROW: gl.constexpr,  # noqa: N803
    ONE_HOT: gl.constexpr,  # noqa: N803
    LIMIT: gl.constexpr,  # noqa: N803
    BITS: gl.constexpr,  # noqa: N803
    WALK: gl.constexpr,  # noqa: N803
    BLOCK: gl.constexpr,  # noqa: N803
):
    """What the network sees of the samples from place `tile` on; see `update.inputs`."""
    layout: gl.constexpr = _blocked(gl.num_warps(), IN)
    place = tile + gl.arange(0, BLOCK, gl.SliceLayout(1, layout))
    here = place < size
    sample = shuffled(gl.where(here, first + place, 0), keys, count, BITS, WALK)
    column = gl.arange(0, IN, gl.SliceLayout(0, layout))
    row = samples + sample.to(gl.int64) * ROW + OBS
    if ONE_HOT:
        number = gl.load(one_hot + 2 * column)
        wanted = gl.load(one_hot + 2 * column + 1)
        there = here[:, None] & (number >= 0)[None, :]
        seen = gl.load(row[:, None] + number[None, :], mask=there, other=0.0)
        x = gl.where(there & (seen.to(gl.int32) == wanted[None, :]), 1.0, 0.0)
    else:
        there = here[:, None] & (column < NUMBERS)[None, :]
        x = gl.load(row[:, None] + column[None, :], mask=there, other=0.0)
        if LIMIT > 0.0:
            x = gl.where(there, normalize(x, column, statistics, NUMBERS, LIMIT), 0.0)
    return gl.where((column == ONES)[None, :], 1.0, x)


@gluon.jit(do_not_specialize=["job"])
def _train_hopper(
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
    ACTOR: gl.constexpr,  # noqa: N803
    CRITIC: gl.constexpr,  # noqa: N803
    BASE: gl.constexpr,  # noqa: N803
    DEPTH: gl.constexpr,  # noqa: N803
    IN: gl.constexpr,  # noqa: N803
    ONES: gl.constexpr,  # noqa: N803
    W1: gl.constexpr,  # noqa: N803
    W2: gl.constexpr,  # noqa: N803
    W3: gl.constexpr,  # noqa: N803
    HEAD: gl.constexpr,  # noqa: N803
    AT: gl.constexpr,  # noqa: N803
    OUTPUTS: gl.constexpr,  # noqa: N803
    DISTRIBUTION: gl.constexpr,  # noqa: N803
    PARTS: gl.constexpr,  # noqa: N803
    OLD_VALUE: gl.constexpr,  # noqa: N803
    ACTION: gl.constexpr,  # noqa: N803
    ACTIONS: gl.constexpr,  # noqa: N803
    MASK: gl.constexpr,  # noqa: N803
    MASKS: gl.constexpr,  # noqa: N803
    OBS: gl.constexpr,  # noqa: N803
    NUMBERS: gl.constexpr,  # noqa: N803
    ROW: gl.constexpr,  # noqa: N803
    ONE_HOT: gl.constexpr,  # noqa: N803
    LIMIT: gl.constexpr,  # noqa: N803
    ACTIVATION: gl.constexpr,  # noqa: N803
    QUICK: gl.constexpr,  # noqa: N803
    PRECISION: gl.constexpr,  # noqa: N803
    NORMALIZE: gl.constexpr,  # noqa: N803
    VALUE_CLIP: gl.constexpr,  # noqa: N803
    VALUE_COEF: gl.constexpr,  # noqa: N803
    ENTROPY_COEF: gl.constexpr,  # noqa: N803
    MINIBATCHES: gl.constexpr,  # noqa: N803
    TILES: gl.constexpr,  # noqa: N803
    PROGRAMS: gl.constexpr,  # noqa: N803
    BITS: gl.constexpr,  # noqa: N803
    WALK: gl.constexpr,  # noqa: N803
    BLOCK: gl.constexpr,  # noqa: N803
):
    wide: gl.constexpr = _mma(gl.num_warps(), W1)
    narrow: gl.constexpr = _mma(gl.num_warps(), HEAD)
    thin: gl.constexpr = _mma(gl.num_warps(), IN)
    by_sample: gl.constexpr = gl.SliceLayout(1, narrow)
    low += BASE
    full += BASE
    first, size = minibatch(job % MINIBATCHES, count, MINIBATCHES)
    own_keys = loaded_keys(keys, job // MINIBATCHES)
    share = 1.0 / size.to(gl.float32)
    near = gl.load(clip).to(gl.float32)
    mean, scale = 0.0, 1.0
    if NORMALIZE:
        mean, scale = gl.load(moments + 2 * job), gl.load(moments + 2 * job + 1)
    column = gl.arange(0, HEAD, gl.SliceLayout(0, narrow))
    part = gl.load(parts + column)[None, :]

    w1 = _matrix(low, AT[0], IN, W1)
    wh = _matrix(low, AT[6], W3, HEAD)
    xs = _room(BLOCK, IN)
    h1s = _room(BLOCK, W1)
    gs = _room(BLOCK, HEAD)
    spare = _room(BLOCK, W1)
    last_s = h1s
    if DEPTH > 1:
        w2 = _matrix(low, AT[2], W1, W2)
        h2s = _room(BLOCK, W2)
        last_s = h2s
        d2 = gl.zeros([W1, W2], gl.float32, wide)
        e2 = gl.zeros([W2, IN], gl.float32, thin)
    if DEPTH > 2:
        w3 = _matrix(low, AT[4], W2, W3)
        h3s = _room(BLOCK, W3)
        last_s = h3s
        d3 = gl.zeros([W2, W3], gl.float32, wide)
        e3 = gl.zeros([W3, IN], gl.float32, thin)
    d1 = gl.zeros([W1, IN], gl.float32, thin)
    dh = gl.zeros([W3, HEAD], gl.float32, narrow)
    eh = gl.zeros([BLOCK, HEAD], gl.float32, narrow)
    d_log_std = gl.zeros([BLOCK, HEAD], gl.float32, narrow)
    policy_loss = gl.zeros([BLOCK], gl.float32, by_sample)
    value_loss = gl.zeros([BLOCK], gl.float32, by_sample)
    entropies = gl.zeros([BLOCK], gl.float32, by_sample)
    kls = gl.zeros([BLOCK], gl.float32, by_sample)
    clips = gl.zeros([BLOCK], gl.float32, by_sample)

    tile = gl.program_id(0) * BLOCK
    x = _fetched(
        tile, first, size, samples, own_keys, count, statistics, one_hot,
        IN, ONES, OBS, NUMBERS, ROW, ONE_HOT, LIMIT, BITS, WALK, BLOCK,
    )  # fmt: skip
    for _ in range(TILES):
        xs.store(x.to(gl.bfloat16))
        fence_async_shared()
        place = tile + gl.arange(0, BLOCK, by_sample)
        here = place < size
        sample = shuffled(gl.where(here, first + place, 0), own_keys, count, BITS, WALK)
        row = samples + sample.to(gl.int64) * ROW
        if ACTOR:
            old_log_prob = gl.load(row, mask=here, other=0.0)
            advantage = gl.load(row + 1, mask=here, other=0.0)
        if CRITIC:
            target = gl.load(row + 2, mask=here, other=0.0)
        tile += PROGRAMS * BLOCK
        x = _fetched(
            tile, first, size, samples, own_keys, count, statistics, one_hot,
            IN, ONES, OBS, NUMBERS, ROW, ONE_HOT, LIMIT, BITS, WALK, BLOCK,
        )  # fmt: skip

        h1, z1 = _layer(xs, w1, None, W1, BLOCK, ACTIVATION)
        h1s.store(h1)
        last = h1
        if DEPTH > 1:
            h2, z2 = _layer(_operand(h1, W2), w2, full + AT[3], W2, BLOCK, ACTIVATION)
            h2s.store(h2)
            last = h2
        if DEPTH > 2:
            h3, z3 = _layer(_operand(h2, W3), w3, full + AT[5], W3, BLOCK, ACTIVATION)
            h3s.store(h3)
            last = h3
        head = _product(_operand(last, HEAD), wh, narrow, BLOCK, HEAD)
        head += gl.load(full + AT[7] + column)[None, :]

        g = gl.zeros([BLOCK, HEAD], gl.float32, narrow)
        if ACTOR:
            advantage = (advantage - mean) * scale
            if DISTRIBUTION == 0:
                logits = head
                if MASK >= 0:
                    bits = gl.load(row + MASK, mask=here, other=0.0).to(gl.int32, bitcast=True)
                    allowed = (bits[:, None] >> gl.minimum(column, 31)[None, :]) & 1
                    allowed = (allowed != 0) | (here == 0)[:, None]
                    logits = gl.where(allowed, head, float("-inf"))
                offset = column[None, :] - gl.load(firsts + column)[None, :]
                taken = gl.load(row + ACTION, mask=here, other=0.0).to(gl.int32)
                chosen = (part == 0) & (offset == taken[:, None])
                for j in gl.static_range(1, ACTIONS):
                    taken = gl.load(row + ACTION + j, mask=here, other=0.0).to(gl.int32)
                    chosen = chosen | ((part == j) & (offset == taken[:, None]))
                log_probs = log_softmax(logits, part, PARTS)
                log_prob, entropy, probs, d_entropy = choices_terms(log_probs, chosen, part, PARTS)
                by_log_prob = gl.where(chosen, 1.0, 0.0) - probs
            else:
                counts = part >= 0
                if DISTRIBUTION == 1:
                    means = head
                    log_std = gl.load(full + AT[8] + column)[None, :] + gl.where(counts, 0.0, 0.0)
                    log_std = log_std + gl.zeros([BLOCK, HEAD], gl.float32, narrow)
                else:
                    means, log_std = halves(head, column, ACTIONS)
                action = gl.load(
                    row[:, None] + ACTION + column[None, :],
                    mask=here[:, None] & (column < ACTIONS)[None, :],
                    other=0.0,
                )
                log_prob, entropy, by_log_prob, by_log_std, limits = gaussian_terms(
                    means, log_std, action, counts
                )
            lean, loss, kl, clipped = objective(log_prob, old_log_prob, advantage, near)
            lean = gl.where(here, lean * share, 0.0)
            keep = gl.where(here, share, 0.0)
            g = lean[:, None] * by_log_prob
            if DISTRIBUTION == 0:
                g -= (ENTROPY_COEF * keep)[:, None] * d_entropy
            else:
                g_std = lean[:, None] * by_log_std
                g_std -= gl.where(limits, (ENTROPY_COEF * keep)[:, None], 0.0)
                if DISTRIBUTION == 1:
                    d_log_std += g_std
                else:
                    g += moved(g_std, column, ACTIONS)
            policy_loss += gl.where(here, loss, 0.0)
            entropies += gl.where(here, entropy, 0.0)
            kls += gl.where(here, kl, 0.0)
            clips += gl.where(here, clipped, 0.0)
        if CRITIC:
            old_value = target
            if OLD_VALUE >= 0:
                old_value = gl.load(row + OLD_VALUE, mask=here, other=0.0)
            at: gl.constexpr = OUTPUTS if ACTOR else 0
            value = gl.sum(gl.where((column == at)[None, :], head, 0.0), 1)
            miss, error = value_error(value, target, old_value, VALUE_CLIP)
            miss = gl.where(here, miss * (VALUE_COEF * share), 0.0)
            g = gl.where((column == at)[None, :], miss[:, None], g)
            value_loss += gl.where(here, error, 0.0)

        eh += g
        low_g = g.to(gl.bfloat16)
        gs.store(low_g)
        fence_async_shared()
        zero = gl.zeros([BLOCK, W1], gl.float32, wide)
        back = warpgroup_mma(
            _operand(low_g, W3), wh.permute((1, 0)), zero, use_acc=False, is_async=True
        )
        dh = warpgroup_mma(last_s.permute((1, 0)), gs, dh, is_async=True)
        back = warpgroup_mma_wait(1, deps=[back])
        free = spare
        if DEPTH > 2:
            low_g = (back * _slope(z3, h3s, wide, ACTIVATION)).to(gl.bfloat16)
            free.store(low_g)
            fence_async_shared()
            back = warpgroup_mma(
                _operand(low_g, W2), w3.permute((1, 0)), zero, use_acc=False, is_async=True
            )
            d3 = warpgroup_mma(h2s.permute((1, 0)), free, d3, is_async=True)
            e3 = warpgroup_mma(free.permute((1, 0)), xs, e3, is_async=True)
            back = warpgroup_mma_wait(2, deps=[back])
            free = h3s
        if DEPTH > 1:
            low_g = (back * _slope(z2, h2s, wide, ACTIVATION)).to(gl.bfloat16)
            free.store(low_g)
            fence_async_shared()
            back = warpgroup_mma(
                _operand(low_g, W1), w2.permute((1, 0)), zero, use_acc=False, is_async=True
            )
            d2 = warpgroup_mma(h1s.permute((1, 0)), free, d2, is_async=True)
            e2 = warpgroup_mma(free.permute((1, 0)), xs, e2, is_async=True)
            back = warpgroup_mma_wait(2, deps=[back])
            free = h2s
        low_g = (back * _slope(z1, h1s, wide, ACTIVATION)).to(gl.bfloat16)
        free.store(low_g)
        fence_async_shared()
        d1 = warpgroup_mma(free.permute((1, 0)), xs, d1, is_async=True)
        if DEPTH > 2:
            d1, d2, d3, dh, e2, e3 = warpgroup_mma_wait(0, deps=[d1, d2, d3, dh, e2, e3])
        elif DEPTH > 1:
            d1, d2, dh, e2 = warpgroup_mma_wait(0, deps=[d1, d2, dh, e2])
        else:
            d1, dh = warpgroup_mma_wait(0, deps=[d1, dh])

    out = gradients + gl.program_id(0).to(gl.int64) * stride + BASE
    rows_t = gl.arange(0, W1, gl.SliceLayout(1, thin))
    columns_t = gl.arange(0, IN, gl.SliceLayout(0, thin))
    gl.store(out + AT[0] + columns_t[None, :] * W1 + rows_t[:, None], d1)
    ones = (columns_t == ONES)[None, :]
    if DEPTH > 1:
        rows = gl.arange(0, W1, gl.SliceLayout(1, wide))
        columns = gl.arange(0, W2, gl.SliceLayout(0, wide))
        gl.store(out + AT[2] + rows[:, None] * W2 + columns[None, :], d2)
        gl.store(out + AT[3] + rows_t, gl.sum(gl.where(ones, e2, 0.0), 1))
    if DEPTH > 2:
        gl.store(out + AT[4] + rows[:, None] * W3 + columns[None, :], d3)
        gl.store(out + AT[5] + rows_t, gl.sum(gl.where(ones, e3, 0.0), 1))
    rows_h = gl.arange(0, W3, gl.SliceLayout(1, narrow))
    gl.store(out + AT[6] + rows_h[:, None] * HEAD + column[None, :], dh)
    gl.store(out + AT[7] + column, gl.sum(eh, 0))
    figures = sums + gl.program_id(0) * 8
    if ACTOR:
        gl.store(out + AT[8] + column, gl.sum(d_log_std, 0))
        gl.store(figures, gl.sum(policy_loss, 0) * share)
        gl.store(figures + 2, gl.sum(entropies, 0) * share)
        gl.store(figures + 3, gl.sum(kls, 0) * share)
        gl.store(figures + 4, gl.sum(clips, 0) * share)
    if CRITIC:
        gl.store(figures + 1, gl.sum(value_loss, 0) * share)
