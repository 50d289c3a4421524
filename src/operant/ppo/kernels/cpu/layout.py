"""Rows and numbers that kernels and the host count alike."""

from __future__ import annotations

# The action: what the outputs are.
CATEGORICAL, GAUSSIAN, GAUSSIAN_BY_STATE = range(3)
"""Logits; means, with deviations as parameters; means, then logarithms of deviations."""

(
    LOG_PROB,
    ENTROPY,
    BY_LOG_PROB,
    LARGEST,
    TOTAL,
    POLICY_LOSS,
    VALUE_LOSS,
    KL,
    CLIPPED,
    WORK_ROWS,
) = range(10)
OLD_LOG_PROB, ADVANTAGE, TARGET, OLD_VALUE, DATA_ROWS = range(5)
"""Rows of `data`, after those of the action. After them come those of an action mask, if there is
one: MASK_BITS truth values as the bits of a whole number, which a float32 holds exactly."""
MASK_BITS = 24
METRICS = (POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED)
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

# How observations become inputs.
PLAIN, WHOLE, ONE_HOT = range(3)
"""Floats; int64 to be taken as floats; int64 to become one-hot vectors."""

# What an update counts.
MOMENTS = 2
"""Numbers that a chunk knows of its advantages, float64."""
METRIC_COUNT = len(METRICS)
NORMALIZE_ADVANTAGE = 7
"""A switch, among the loss's numbers."""

# Control words: counters, in cache lines of their own. From CLAIMS on, two for each minibatch:
# chunks claimed, chunks done.
LINE = 8
TILES_CLAIMED = 0
ORDER_CLAIMS, ORDER_DONE, APPLIED, CLAIMS = (LINE * k for k in range(4))
