"""PPO's loss for continuous actions, and its gradient; a tile at a time. See `loss_categorical`."""

from __future__ import annotations

from numba import float32 as f32
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.blocks import total
from operant.ppo.kernels.cpu.closed_forms import gaussian
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.loss_terms import loss_terms
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.record import record_at


@compiled
def loss_gaussian(count, rows, scratch_address, gradient_address, metrics_address, args_address):
    """Fill ``D_OUT`` of actor and critic with the gradient of the loss, after `forward`.

    Of `rows` samples, a multiple of LANES, the first `count` are real: the others get 0. Sums of
    the samples' metrics are added to the metrics, float64 ``[5]``, gradients of deviations that are
    parameters to the gradient.
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
    log_std, kind = shifted(args.weights, args.log_std), args.action_kind
    d_log_std = shifted(at(u64(gradient_address), f32), args.d_log_std)
    log_prob, entropy = shifted(work, n.LOG_PROB * tile), shifted(work, n.ENTROPY * tile)
    for i in range(count):
        store(HEADS.log_prob, log_prob, i, f32(0))
        store(HEADS.entropy, entropy, i, f32(0))
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        actions, constant = shifted(data, part * tile), log_std[part]
        for i in range(count):
            deviation = constant
            if kind == n.GAUSSIAN_BY_STATE:
                deviation = load(HEADS.log_std, deviations, i)
            found = gaussian(
                load(HEADS.old_action, actions, i), load(HEADS.outputs, means, i), deviation
            )
            store(HEADS.log_prob, log_prob, i, load(HEADS.log_prob, log_prob, i) + found[0])
            store(HEADS.entropy, entropy, i, load(HEADS.entropy, entropy, i) + found[3])

    known = shifted(data, parts * tile)
    loss_terms(known, values, d_values, work, tile, count, rows, options, metrics_address)

    by_log_prob = shifted(work, n.BY_LOG_PROB * tile)
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        actions, constant = shifted(data, part * tile), log_std[part]
        d_means, d_deviations = shifted(d_out, part * tile), shifted(work, n.LARGEST * tile)
        if kind == n.GAUSSIAN_BY_STATE:
            d_deviations = shifted(d_out, (parts + part) * tile)
        for i in range(count):
            deviation = constant
            if kind == n.GAUSSIAN_BY_STATE:
                deviation = load(HEADS.log_std, deviations, i)
            found = gaussian(
                load(HEADS.old_action, actions, i), load(HEADS.outputs, means, i), deviation
            )
            by = load(HEADS.by_log_prob, by_log_prob, i)
            store(HEADS.d_outputs, d_means, i, by * found[1])
            store(HEADS.d_log_std, d_deviations, i, by * found[2] + by_entropy * found[4])
        if kind == n.GAUSSIAN:
            for i in range(count, rows):
                d_deviations[i] = f32(0)
            d_log_std[part] += total(d_deviations, rows)
    for i in range(count, rows):
        for o in range(args.actor_outputs):
            d_out[o * tile + i] = f32(0)
    return 0
