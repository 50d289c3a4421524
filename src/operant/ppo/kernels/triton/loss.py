"""PPO's loss on a tile of samples: its gradient by the head's columns, and sums for the figures.

The same terms as `operant.ppo.loss.ppo_loss`, which is the reference; derivatives by hand. A tile
of heads is ``[samples, columns]``; columns that mean nothing have part -1. Gradients are of the sum
over samples, to be divided by their number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from operant.models.names import LOG_STD_RANGE

LOWEST, HIGHEST = (tl.constexpr(float(x)) for x in LOG_STD_RANGE)
HALF_LOG_2PI = tl.constexpr(0.9189385332046727)


@triton.jit
def objective(log_prob, old_log_prob, advantage, clip):
    """The clipped objective: its derivative by the log-probability, and loss, KL and whether the
    ratio was clipped, of each sample."""
    log_ratio = log_prob - old_log_prob
    ratio = tl.exp(log_ratio)
    near_one = tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip)
    plain, limited = ratio * advantage, near_one * advantage
    slope = tl.where(plain <= limited, -plain, 0.0)
    # What is left of a small log ratio is lost in ratio - 1.
    small = log_ratio * log_ratio * (0.5 + log_ratio * (1.0 / 6.0 + log_ratio * (1.0 / 24.0)))
    kl = tl.where(tl.abs(log_ratio) < 0.05, small, ratio - 1.0 - log_ratio)
    clipped = tl.where(tl.abs(ratio - 1.0) > clip, 1.0, 0.0)
    return slope, -tl.minimum(plain, limited), tl.maximum(kl, 0.0), clipped


@triton.jit
def value_error(value, target, old_value, VALUE_CLIP: tl.constexpr):  # noqa: N803
    """The derivative of half the squared error by the value, and that half; limited if asked."""
    error = value - target
    square = error * error
    slope = error
    if VALUE_CLIP > 0.0:
        moved = value - old_value
        near = old_value + tl.minimum(tl.maximum(moved, -VALUE_CLIP), VALUE_CLIP)
        other = (near - target) * (near - target)
        # Within the limit both are the same but for rounding, which must not decide.
        slope = tl.where((square >= other) | (tl.abs(moved) <= VALUE_CLIP), error, 0.0)
        square = tl.maximum(square, other)
    return slope, 0.5 * square


@triton.jit
def log_softmax(logits, part, PARTS: tl.constexpr):  # noqa: N803
    """Logarithms of probabilities, each part by itself; -inf in columns without a part. `part` is
    int32 ``[1, columns]``."""
    found = tl.where(part >= 0, logits, float("-inf"))
    for k in tl.static_range(PARTS):
        mine = (part == k) & (found > float("-inf"))
        largest = tl.max(tl.where(mine, logits, float("-inf")), 1)
        small = tl.where(mine, tl.exp(logits - largest[:, None]), 0.0)
        total = largest + tl.log(tl.sum(small, 1))
        found = tl.where(mine, logits - total[:, None], found)
    return found


@triton.jit
def categorical_terms(log_probs, chosen, part, PARTS: tl.constexpr):  # noqa: N803
    """Log-probability and entropy of each sample, both ``[samples]``; the entropy's derivative by
    the logits."""
    allowed = log_probs > float("-inf")
    probs = tl.where(allowed, tl.exp(log_probs), 0.0)
    finite = tl.where(allowed, log_probs, 0.0)
    log_prob = tl.sum(tl.where(chosen, log_probs, 0.0), 1)
    surprise = probs * finite
    entropy = -tl.sum(surprise, 1)
    slope = -surprise
    for k in tl.static_range(PARTS):
        mine = part == k
        own = -tl.sum(tl.where(mine, surprise, 0.0), 1)
        slope = tl.where(mine, slope - probs * own[:, None], slope)
    return log_prob, entropy, probs, slope


@triton.jit
def gaussian_terms(mean, log_std, action, here):
    """Log-probability and entropy of each sample, ``[samples]``; derivatives of the log-probability
    by mean and logarithm of the deviation, and whether the latter is within its limits. `here` are
    the columns that count."""
    inside = (log_std >= LOWEST) & (log_std <= HIGHEST) & here
    log_std = tl.minimum(tl.maximum(log_std, LOWEST), HIGHEST)
    inverse = tl.exp(-log_std)
    normal = (action - mean) * inverse
    each = -0.5 * normal * normal - HALF_LOG_2PI - log_std
    log_prob = tl.sum(tl.where(here, each, 0.0), 1)
    entropy = tl.sum(tl.where(here, log_std + (0.5 + HALF_LOG_2PI), 0.0), 1)
    by_mean = tl.where(here, normal * inverse, 0.0)
    by_log_std = tl.where(inside, normal * normal - 1.0, 0.0)
    return log_prob, entropy, by_mean, by_log_std, inside
