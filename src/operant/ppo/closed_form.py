"""PPO's loss and its gradient, sample by sample, in closed form.

Written in the language of environments (`operant.lang`), for one sample, so that every engine that
does not leave the gradient to autograd compiles the same formulas. The loss itself is
`operant.ppo.loss`, its distributions `operant.models.distributions`: these are what tests compare
with. Where a gradient jumps, this is the side that autograd takes.

Gradients are of one sample's loss: whoever adds them up divides by the number of samples.
"""

from __future__ import annotations

import math
from typing import Any

from operant.lang import abs, clip, exp, log, maximum, minimum, normal, to_float, where
from operant.models.names import LOG_STD_RANGE

_LOG_2PI = math.log(2 * math.pi)
_LOWEST = -3.4028234663852886e38


def surrogate(log_prob: Any, old_log_prob: Any, advantage: Any, clip_range: Any) -> Any:
    """Loss of the clipped objective, its derivative by `log_prob`, KL estimate, whether clipped."""
    log_ratio = log_prob - old_log_prob
    ratio = exp(log_ratio)
    gain = ratio * advantage
    limited = clip(ratio, 1.0 - clip_range, 1.0 + clip_range) * advantage
    slope = where(gain <= limited, gain, 0.0)
    # ratio - 1 - log ratio loses all digits where the ratio is near 1: there, its series.
    x = log_ratio
    series = x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720)))))
    kl = where(abs(x) < 0.3, series, ratio - 1.0 - x)
    return -minimum(gain, limited), -slope, kl, to_float(abs(ratio - 1.0) > clip_range)


def value_error(value: Any, target: Any, old_value: Any, value_clip: Any) -> Any:
    """Half the squared error, limited to `value_clip` (0: not at all), and its derivative."""
    moved = value - old_value
    near = where(value_clip > 0.0, old_value + clip(moved, -value_clip, value_clip), value)
    error, near_error = value - target, near - target
    plain = error * error >= near_error * near_error
    slope = where(plain, error, where(abs(moved) <= value_clip, near_error, 0.0))
    return 0.5 * maximum(error * error, near_error * near_error), slope


def choice(logit: Any, log_total: Any) -> Any:
    """Probability of one of several actions, its logarithm, and what it adds to the entropy.

    `log_total` is the logarithm of the sum of the exponentials of all logits. A logit of -inf masks
    its action: probability 0, and nothing added.
    """
    log_prob = logit - log_total
    probability = exp(log_prob)
    return probability, log_prob, -probability * maximum(log_prob, _LOWEST)


def choice_slope(
    probability: Any, log_prob: Any, entropy: Any, taken: Any, by_log_prob: Any, by_entropy: Any
) -> Any:
    """Derivative of the loss by a logit, from its derivatives by log-probability and entropy.

    `taken` is 1.0 for the action taken, else 0.0; `entropy` is that of all actions.
    """
    by_this = probability * (maximum(log_prob, _LOWEST) + entropy)
    return (by_log_prob * (taken - probability) - by_entropy * by_this,)


def gaussian(action: Any, mean: Any, log_std: Any) -> Any:
    """Log-probability of a normal number, its derivatives by mean and by the logarithm of the
    deviation; then the entropy, and its derivative by the latter."""
    limited = clip(log_std, *LOG_STD_RANGE)
    inside = to_float(limited == log_std)
    inverse = exp(-limited)
    z = (action - mean) * inverse
    log_prob = -0.5 * (z * z + _LOG_2PI) - limited
    entropy = limited + 0.5 * (1 + _LOG_2PI)
    return log_prob, z * inverse, (z * z - 1.0) * inside, entropy, inside


def gaussian_sample(u1: Any, u2: Any, mean: Any, log_std: Any) -> Any:
    """A normal number from two uniform ones."""
    return (mean + exp(clip(log_std, *LOG_STD_RANGE)) * normal(u1, u2),)


def log_total(largest: Any, total: Any) -> Any:
    """Logarithm of a sum of exponentials, from `total`, their sum after division by the largest."""
    return (log(total) + largest,)


FORMULAS = (surrogate, value_error, choice, choice_slope, gaussian, gaussian_sample, log_total)
