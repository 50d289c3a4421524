"""From a network's outputs to actions, and to the gradient of PPO's loss; a tile at a time.

Everything here is ``[rows, tile]``, samples in the lanes of a vector: the loops over samples `i` are
the inner ones, and `load` and `store` tell LLVM that the rows they touch do not overlap. `work` is
scratch memory of ``WORK_ROWS + 2 * parts`` rows, `data` what a rollout knows of the samples.

*Choices* are the parts of a (multi-)discrete action, `sizes` of them; each has that many outputs.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

from numba import float32 as f32
from numba import njit

from operant.lang.intrinsics import load, prefer_wide_vectors, select, shifted, store
from operant.ppo.kernels.numba.blocks import total
from operant.ppo.kernels.numba.words import (
    choice,
    choice_slope,
    exp,
    gaussian,
    gaussian_sample,
    log_total,
    surrogate,
    value_error,
)

CHOICES, GAUSSIAN, GAUSSIAN_BY_STATE = range(3)
"""What the outputs are: logits; means, with deviations as parameters; means, then log-deviations."""

(LOG_PROB, ENTROPY, BY_LOG_PROB, LARGEST, TOTAL, POLICY_LOSS, VALUE_LOSS, KL, CLIPPED, WORK_ROWS) = (
    range(10)
)
OLD_LOG_PROB, ADVANTAGE, TARGET, OLD_VALUE, DATA_ROWS = range(5)
"""Rows of `data`, after those of the action."""
FIGURES = (POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED)
"""Rows of `work` whose sums are reported."""

OPTIONS = 8
(
    CLIP,
    VALUE_CLIP,
    VALUE_COEF,
    ENTROPY_COEF,
    SHARE,
    MEAN,
    INVERSE_STD,
) = range(7)
"""Numbers the loss depends on: SHARE is 1 / samples of the minibatch; advantages are used minus
MEAN, times INVERSE_STD."""


@njit(nogil=True, error_model="numpy")
def _log_totals(first, size, out, tile, count, work, part):
    """Row ``WORK_ROWS + 2 * part`` of `work`: logarithm of the sum of exponentials of logits."""
    prefer_wide_vectors()
    largest, sums = shifted(work, LARGEST * tile), shifted(work, TOTAL * tile)
    result = shifted(work, (WORK_ROWS + 2 * part) * tile)
    logits = shifted(out, first * tile)
    for i in range(count):
        store(130, largest, i, load(128, logits, i))
        store(131, sums, i, f32(0))
    for k in range(1, size):
        logits = shifted(out, (first + k) * tile)
        for i in range(count):
            a, b = load(128, logits, i), load(130, largest, i)
            store(130, largest, i, select(a > b, a, b))
    for k in range(size):
        logits = shifted(out, (first + k) * tile)
        for i in range(count):
            power = exp(load(128, logits, i) - load(130, largest, i))
            store(131, sums, i, load(131, sums, i) + power)
    for i in range(count):
        store(132, result, i, log_total(load(130, largest, i), load(131, sums, i))[0])


@njit(nogil=True, error_model="numpy")
def sample_choices(sizes, parts, out, noise, action, work, probability, tile, count):
    """Draw `action` ``[parts, tile]`` by inversion from `noise` ``[parts, tile]``; LOG_PROB of it.

    `probability` is memory like `out`.
    """
    prefer_wide_vectors()
    log_prob, largest = shifted(work, LOG_PROB * tile), shifted(work, LARGEST * tile)
    sums = shifted(work, TOTAL * tile)
    for i in range(count):
        store(133, log_prob, i, f32(0))
    first = 0
    for part in range(parts):
        size = sizes[part]
        _log_totals(first, size, out, tile, count, work, part)
        totals = shifted(work, (WORK_ROWS + 2 * part) * tile)
        u, chosen = shifted(noise, part * tile), shifted(action, part * tile)
        for i in range(count):
            store(131, sums, i, f32(0))
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            p = shifted(probability, (first + k) * tile)
            for i in range(count):
                mine = choice(load(128, logits, i), load(132, totals, i))[0]
                store(134, p, i, mine)
                store(131, sums, i, load(131, sums, i) + mine)
        for i in range(count):  # rounding may leave the sum below 1: the number is scaled by it
            store(131, sums, i, load(131, sums, i) * load(135, u, i))
            store(130, largest, i, f32(0))
            store(136, chosen, i, f32(0))
        for k in range(size):
            p = shifted(probability, (first + k) * tile)
            for i in range(count):
                cumulated = load(130, largest, i) + load(134, p, i)
                store(130, largest, i, cumulated)
                beyond = select(cumulated <= load(131, sums, i), f32(1), f32(0))
                store(136, chosen, i, load(136, chosen, i) + beyond)
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            for i in range(count):
                mine = load(128, logits, i) - load(132, totals, i)
                it = load(136, chosen, i) == f32(k)
                store(133, log_prob, i, load(133, log_prob, i) + select(it, mine, f32(0)))
        first += size


@njit(nogil=True, error_model="numpy")
def sample_gaussian(kind, parts, out, log_std, noise, action, work, tile, count):
    """Draw `action` ``[parts, tile]`` from `noise` ``[2 * parts, tile]``; LOG_PROB of it."""
    prefer_wide_vectors()
    log_prob = shifted(work, LOG_PROB * tile)
    for i in range(count):
        store(133, log_prob, i, f32(0))
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        one, two = shifted(noise, part * tile), shifted(noise, (parts + part) * tile)
        drawn, constant = shifted(action, part * tile), log_std[part]
        for i in range(count):
            mean, deviation = load(128, means, i), constant
            if kind == GAUSSIAN_BY_STATE:
                deviation = load(137, deviations, i)
            x = gaussian_sample(load(135, one, i), load(138, two, i), mean, deviation)[0]
            store(136, drawn, i, x)
            # Of the action as rounded: it is what the update will look at.
            mine = gaussian(x, mean, deviation)[0]
            store(133, log_prob, i, load(133, log_prob, i) + mine)


@njit(nogil=True, error_model="numpy")
def _evaluate_choices(sizes, parts, out, d_out, data, work, tile, count):
    """LOG_PROB and ENTROPY of the actions in `data`; probabilities go to `d_out`, the entropy of
    each part to its second row of `work`."""
    prefer_wide_vectors()
    log_prob, entropy = shifted(work, LOG_PROB * tile), shifted(work, ENTROPY * tile)
    for i in range(count):
        store(133, log_prob, i, f32(0))
        store(139, entropy, i, f32(0))
    first = 0
    for part in range(parts):
        size = sizes[part]
        _log_totals(first, size, out, tile, count, work, part)
        totals = shifted(work, (WORK_ROWS + 2 * part) * tile)
        own, actions = shifted(totals, tile), shifted(data, part * tile)
        for i in range(count):
            store(140, own, i, f32(0))
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            p = shifted(d_out, (first + k) * tile)
            for i in range(count):
                mine, logarithm, added = choice(load(128, logits, i), load(132, totals, i))
                store(134, p, i, mine)
                store(140, own, i, load(140, own, i) + added)
                it = load(141, actions, i) == f32(k)
                store(133, log_prob, i, load(133, log_prob, i) + select(it, logarithm, f32(0)))
        for i in range(count):
            store(139, entropy, i, load(139, entropy, i) + load(140, own, i))
        first += size


@njit(nogil=True, error_model="numpy")
def _choices_gradient(sizes, parts, out, d_out, data, work, tile, count, by_entropy):
    """Turn the probabilities in `d_out` into the gradient of the loss."""
    prefer_wide_vectors()
    by_log_prob = shifted(work, BY_LOG_PROB * tile)
    first = 0
    for part in range(parts):
        totals = shifted(work, (WORK_ROWS + 2 * part) * tile)
        own, actions = shifted(totals, tile), shifted(data, part * tile)
        for k in range(sizes[part]):
            logits = shifted(out, (first + k) * tile)
            p = shifted(d_out, (first + k) * tile)
            for i in range(count):
                logarithm = load(128, logits, i) - load(132, totals, i)
                taken = select(load(141, actions, i) == f32(k), f32(1), f32(0))
                slope = choice_slope(
                    load(134, p, i), logarithm, load(140, own, i), taken,
                    load(142, by_log_prob, i), by_entropy,
                )  # fmt: skip
                store(134, p, i, slope[0])
        first += sizes[part]


@njit(nogil=True, error_model="numpy")
def _evaluate_gaussian(kind, parts, out, log_std, data, work, tile, count):
    """LOG_PROB and ENTROPY of the actions in `data`."""
    prefer_wide_vectors()
    log_prob, entropy = shifted(work, LOG_PROB * tile), shifted(work, ENTROPY * tile)
    for i in range(count):
        store(133, log_prob, i, f32(0))
        store(139, entropy, i, f32(0))
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        actions, constant = shifted(data, part * tile), log_std[part]
        for i in range(count):
            deviation = constant
            if kind == GAUSSIAN_BY_STATE:
                deviation = load(137, deviations, i)
            found = gaussian(load(141, actions, i), load(128, means, i), deviation)
            store(133, log_prob, i, load(133, log_prob, i) + found[0])
            store(139, entropy, i, load(139, entropy, i) + found[3])


@njit(nogil=True, error_model="numpy")
def _gaussian_gradient(
    kind, parts, out, log_std, d_out, d_log_std, data, work, tile, count, rows, by_entropy
):
    """The gradient of the means, and of the log-deviations: in `d_out` too, or added up."""
    prefer_wide_vectors()
    by_log_prob = shifted(work, BY_LOG_PROB * tile)
    for part in range(parts):
        means, deviations = shifted(out, part * tile), shifted(out, (parts + part) * tile)
        actions, constant = shifted(data, part * tile), log_std[part]
        d_means, d_deviations = shifted(d_out, part * tile), shifted(work, LARGEST * tile)
        if kind == GAUSSIAN_BY_STATE:
            d_deviations = shifted(d_out, (parts + part) * tile)
        for i in range(count):
            deviation = constant
            if kind == GAUSSIAN_BY_STATE:
                deviation = load(137, deviations, i)
            found = gaussian(load(141, actions, i), load(128, means, i), deviation)
            by = load(142, by_log_prob, i)
            store(134, d_means, i, by * found[1])
            store(143, d_deviations, i, by * found[2] + by_entropy * found[4])
        if kind == GAUSSIAN:
            for i in range(count, rows):
                d_deviations[i] = f32(0)
            d_log_std[part] += total(d_deviations, rows)


@njit(nogil=True, error_model="numpy")
def _loss_terms(data, values, d_values, work, tile, count, options):
    """Losses of the samples, and their derivatives by log-probability and value."""
    prefer_wide_vectors()
    clip, value_clip, share = options[CLIP], options[VALUE_CLIP], options[SHARE]
    by_value = options[VALUE_COEF] * share
    mean, inverse = options[MEAN], options[INVERSE_STD]
    log_prob, by_log_prob = shifted(work, LOG_PROB * tile), shifted(work, BY_LOG_PROB * tile)
    policy_loss, value_loss = shifted(work, POLICY_LOSS * tile), shifted(work, VALUE_LOSS * tile)
    kl, clipped = shifted(work, KL * tile), shifted(work, CLIPPED * tile)
    old_log_prob, advantages = data, shifted(data, ADVANTAGE * tile)
    targets, old_values = shifted(data, TARGET * tile), shifted(data, OLD_VALUE * tile)
    for i in range(count):
        advantage = (load(144, advantages, i) - mean) * inverse
        found = surrogate(load(133, log_prob, i), load(145, old_log_prob, i), advantage, clip)
        store(146, policy_loss, i, found[0])
        store(142, by_log_prob, i, found[1] * share)
        store(147, kl, i, found[2])
        store(148, clipped, i, found[3])
    for i in range(count):
        value, target = load(149, values, i), load(150, targets, i)
        error, slope = value_error(value, target, load(151, old_values, i), value_clip)
        store(152, value_loss, i, error)
        store(153, d_values, i, slope * by_value)


@njit(nogil=True, error_model="numpy")
def loss_gradient(
    kind, sizes, parts, out, d_out, outputs, values, d_values, log_std, d_log_std, data, work, tile,
    count, rows, options, figures,
):  # fmt: skip
    """Fill `d_out` ``[outputs, tile]`` and `d_values` ``[tile]`` with the gradient of the loss.

    Of `rows` samples, a multiple of LANES, the first `count` are real: the others get 0. Sums of
    the samples' figures are added to `figures`, float64 ``[5]``.
    """
    if kind == CHOICES:
        _evaluate_choices(sizes, parts, out, d_out, data, work, tile, count)
    else:
        _evaluate_gaussian(kind, parts, out, log_std, data, work, tile, count)
    _loss_terms(shifted(data, parts * tile), values, d_values, work, tile, count, options)
    by_entropy = -options[ENTROPY_COEF] * options[SHARE]
    if kind == CHOICES:
        _choices_gradient(sizes, parts, out, d_out, data, work, tile, count, by_entropy)
    else:
        _gaussian_gradient(
            kind, parts, out, log_std, d_out, d_log_std, data, work, tile, count, rows, by_entropy
        )
    for i in range(count, rows):
        d_values[i] = f32(0)
        for o in range(outputs):
            d_out[o * tile + i] = f32(0)
    for k in range(len(FIGURES)):
        row = shifted(work, FIGURES[k] * tile)
        for i in range(count, rows):
            row[i] = f32(0)
        figures[k] += total(row, rows)
