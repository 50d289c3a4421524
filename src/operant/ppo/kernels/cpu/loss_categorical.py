"""PPO's loss for discrete actions, and its gradient; a tile at a time.

Everything is ``[rows, TILE]``, as in `sample_categorical`; for the formulas see
`operant.ppo.closed_form`.
"""

from __future__ import annotations

from math import inf

from numba import float32 as f32
from numba import int32 as i32
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.categorical import log_sum_exp
from operant.ppo.kernels.cpu.closed_forms import choice, choice_slope
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.loss_terms import loss_terms
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.record import record_at


@compiled
def loss_categorical(count, rows, scratch_address, gradient_address, metrics_address, args_address):
    """Fill ``D_OUT`` of actor and critic with the gradient of the loss, after `forward`.

    Of `rows` samples, a multiple of LANES, the first `count` are real: the others get 0. Sums of
    the samples' metrics are added to the metrics, float64 ``[5]``.
    """
    prefer_wide_vectors()
    args, scratch = record_at(ARGUMENTS, args_address), at(u64(scratch_address), f32)
    actor, critic = record_at(NETWORK, args.actor), record_at(NETWORK, args.critic)
    tile, parts = args.tile, args.parts
    out, d_out = shifted(scratch, actor.out), shifted(scratch, actor.d_out)
    values = shifted(scratch, critic.out + args.value_row * tile)
    d_values = shifted(scratch, critic.d_out + args.value_row * tile)
    data, work = shifted(scratch, args.scratch_data), shifted(scratch, args.scratch_work)
    options = shifted(scratch, args.scratch_options)
    by_entropy = -options[n.ENTROPY_COEF] * options[n.SHARE]
    sizes = args.sizes
    for k in range(args.mask_size):
        bits = shifted(data, (parts + n.DATA_ROWS + k // n.MASK_BITS) * tile)
        logits, bit = shifted(out, k * tile), i32(1 << (k % n.MASK_BITS))
        for i in range(count):
            allowed = (i32(bits[i]) & bit) != 0
            logits[i] = select(allowed, logits[i], f32(-inf))
    log_prob, entropy = shifted(work, n.LOG_PROB * tile), shifted(work, n.ENTROPY * tile)
    for i in range(count):
        store(HEADS.log_prob, log_prob, i, f32(0))
        store(HEADS.entropy, entropy, i, f32(0))
    first = 0
    for part in range(parts):
        size = sizes[part]
        log_sum_exp(first, size, out, tile, count, work, part)
        totals = shifted(work, (n.WORK_ROWS + 2 * part) * tile)
        own, actions = shifted(totals, tile), shifted(data, part * tile)
        for i in range(count):
            store(HEADS.own_entropy, own, i, f32(0))
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            p = shifted(d_out, (first + k) * tile)
            for i in range(count):
                mine, logarithm, added = choice(
                    load(HEADS.outputs, logits, i), load(HEADS.log_total, totals, i)
                )
                store(HEADS.d_outputs, p, i, mine)
                store(HEADS.own_entropy, own, i, load(HEADS.own_entropy, own, i) + added)
                it = load(HEADS.old_action, actions, i) == f32(k)
                store(
                    HEADS.log_prob,
                    log_prob,
                    i,
                    load(HEADS.log_prob, log_prob, i) + select(it, logarithm, f32(0)),
                )
        for i in range(count):
            store(
                HEADS.entropy,
                entropy,
                i,
                load(HEADS.entropy, entropy, i) + load(HEADS.own_entropy, own, i),
            )
        first += size

    known = shifted(data, parts * tile)
    loss_terms(known, values, d_values, work, tile, count, rows, options, metrics_address)

    by_log_prob = shifted(work, n.BY_LOG_PROB * tile)
    first = 0
    for part in range(parts):
        totals = shifted(work, (n.WORK_ROWS + 2 * part) * tile)
        own, actions = shifted(totals, tile), shifted(data, part * tile)
        for k in range(sizes[part]):
            logits = shifted(out, (first + k) * tile)
            p = shifted(d_out, (first + k) * tile)
            for i in range(count):
                logarithm = load(HEADS.outputs, logits, i) - load(HEADS.log_total, totals, i)
                taken = select(load(HEADS.old_action, actions, i) == f32(k), f32(1), f32(0))
                slope = choice_slope(
                    load(HEADS.d_outputs, p, i), logarithm, load(HEADS.own_entropy, own, i), taken,
                    load(HEADS.by_log_prob, by_log_prob, i), by_entropy,
                )  # fmt: skip
                store(HEADS.d_outputs, p, i, slope[0])
        first += sizes[part]
    for i in range(count, rows):
        for o in range(args.actor_outputs):
            d_out[o * tile + i] = f32(0)
    return 0
