"""Names for the places of the numbers that kernels find in their tables; see `plan`."""

from __future__ import annotations

# A network: a header, then a record for each hidden layer. W_*, BIAS and HEAD_*: places in the
# packed weights; *_GRADIENT in a gradient; the others in a thread's scratch memory.
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
    NEURONS,
    W_FORWARD,
    W_BACKWARD,
    BIAS,
    GRADIENT,
    BIAS_GRADIENT,
    ACTIVE,
    KEPT,
    LAYER,
) = range(11)
