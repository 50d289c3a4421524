"""Names for the places of the numbers that kernels find in their tables; see `plan`."""

from __future__ import annotations

# A network: a header, then a record for each hidden layer. W_*, BIAS and HEAD_*: places in the
# packed weights; *_GRADIENT in a gradient; the others in a thread's scratch memory. WIDTH: neurons
# in whole vectors; ROW: the distance of samples' activations.
(
    DEPTH,
    OUTPUTS,
    HEAD_W,
    HEAD_BIAS,
    HEAD_GRADIENT,
    HEAD_BIAS_GRADIENT,
    OUT,
    D_OUT,
    D_ONE,
    D_TWO,
    HEADER,
) = range(11)
(
    INPUTS,
    WIDTH,
    ROW,
    NEURONS,
    W_FORWARD,
    W_BACKWARD,
    BIAS,
    GRADIENT,
    BIAS_GRADIENT,
    ACTIVE,
    KEPT,
    LAYER,
) = range(12)

# The action: what the outputs are.
CHOICES, GAUSSIAN, GAUSSIAN_BY_STATE = range(3)
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

# How observations become inputs.
PLAIN, WHOLE, ONE_HOT = range(3)
"""Floats; int64 to be taken as floats; int64 to become one-hot vectors."""

# What an update counts.
MOMENTS = 2
"""Numbers that a chunk knows of its advantages, float64."""
NUMBERS = len(FIGURES)
NORMALIZE_ADVANTAGE = 7
"""A switch, among the loss's numbers."""

# Control words: counters, in cache lines of their own. From CLAIMS on, two for each minibatch:
# chunks claimed, chunks done.
LINE = 8
TILES_CLAIMED = 0
ORDER_CLAIMS, ORDER_DONE, APPLIED, CLAIMS = (LINE * k for k in range(4))
