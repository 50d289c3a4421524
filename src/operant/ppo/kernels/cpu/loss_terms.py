"""The part of PPO's loss that is the same for all actions."""

from __future__ import annotations

from numba import float32 as f32
from numba import float64 as f64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.blocks import total
from operant.ppo.kernels.cpu.closed_forms import surrogate, value_error


@njit(nogil=True, error_model="numpy")
def loss_terms(data, values, d_values, work, tile, count, rows, options, metrics_address):
    """Losses of the samples, and their derivatives by log-probability and value.

    Of `rows` samples, a multiple of LANES, the first `count` are real. Sums of their metrics are
    added to those at an address, float64 ``[5]``.
    """
    prefer_wide_vectors()
    clip, value_clip, share = options[n.CLIP], options[n.VALUE_CLIP], options[n.SHARE]
    by_value = options[n.VALUE_COEF] * share
    mean, inverse = options[n.MEAN], options[n.INVERSE_STD]
    log_prob, by_log_prob = shifted(work, n.LOG_PROB * tile), shifted(work, n.BY_LOG_PROB * tile)
    policy_loss, value_loss = (
        shifted(work, n.POLICY_LOSS * tile),
        shifted(work, n.VALUE_LOSS * tile),
    )
    kl, clipped = shifted(work, n.KL * tile), shifted(work, n.CLIPPED * tile)
    old_log_prob, advantages = data, shifted(data, n.ADVANTAGE * tile)
    targets, old_values = shifted(data, n.TARGET * tile), shifted(data, n.OLD_VALUE * tile)
    for i in range(count):
        advantage = (load(HEADS.advantage, advantages, i) - mean) * inverse
        found = surrogate(
            load(HEADS.log_prob, log_prob, i),
            load(HEADS.old_log_prob, old_log_prob, i),
            advantage,
            clip,
        )
        store(HEADS.policy_loss, policy_loss, i, found[0])
        store(HEADS.by_log_prob, by_log_prob, i, found[1] * share)
        store(HEADS.kl, kl, i, found[2])
        store(HEADS.clipped, clipped, i, found[3])
    for i in range(count):
        value, target = load(HEADS.value, values, i), load(HEADS.target, targets, i)
        error, slope = value_error(value, target, load(HEADS.old_value, old_values, i), value_clip)
        store(HEADS.value_loss, value_loss, i, error)
        store(HEADS.d_value, d_values, i, slope * by_value)
    for i in range(count, rows):
        d_values[i] = f32(0)
    metrics = at(u64(metrics_address), f64)
    for k in range(n.METRIC_COUNT):
        row = shifted(work, n.METRICS[k] * tile)
        for i in range(count, rows):
            row[i] = f32(0)
        metrics[k] += total(row, rows)
