"""A multilayer perceptron on a tile of samples: forward, and backward.

`net` says what it is and where its parts are, see `layout`; `tile` is the distance of the rows of
``OUT`` and ``D_OUT``, ``[outputs, tile]``; `rows` are the samples that count, a multiple of LANES.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

from numba import njit

from operant.lang.intrinsics import prefer_wide_vectors, shifted
from operant.ppo.kernels.numba.blocks import (
    ROWS,
    add_outer,
    add_rows,
    add_sums,
    backward_layer,
    forward_layer,
    head,
)
from operant.ppo.kernels.numba.layout import (
    ACTIVE,
    BIAS,
    BIAS_GRADIENT,
    D_ONE,
    D_OUT,
    D_TWO,
    DEPTH,
    GRADIENT,
    HEAD_BIAS,
    HEAD_BIAS_GRADIENT,
    HEAD_GRADIENT,
    HEAD_W,
    HEADER,
    INPUTS,
    KEPT,
    LAYER,
    NEURONS,
    OUT,
    OUTPUTS,
    W_BACKWARD,
    W_FORWARD,
    WIDTH,
)


@njit(nogil=True, error_model="numpy")
def forward_network(net, activation, x, x_row, rows, tile, weights, scratch):
    """Fill ``OUT`` of `scratch` from inputs ``x[rows, x_row]``; activations stay in `scratch`."""
    prefer_wide_vectors()
    h, h_row = x, x_row
    for k in range(net[DEPTH]):
        layer = shifted(net, HEADER + LAYER * k)
        out, kept = shifted(scratch, layer[ACTIVE]), shifted(scratch, layer[KEPT])
        w, bias = shifted(weights, layer[W_FORWARD]), shifted(weights, layer[BIAS])
        forward_layer(h, h_row, layer[INPUTS], w, bias, activation, kept, out, layer[WIDTH], rows)
        h, h_row = out, layer[WIDTH]
    w, bias = shifted(weights, net[HEAD_W]), shifted(weights, net[HEAD_BIAS])
    head(h, h_row, w, bias, net[OUTPUTS], shifted(scratch, net[OUT]), tile, rows)


@njit(nogil=True, error_model="numpy")
def backward_network(net, activation, x, x_row, rows, tile, weights, scratch, gradient):
    """Add to `gradient` what ``D_OUT`` of `scratch` implies, after a forward pass.

    `x_row`, and the rows that ``D_OUT`` has memory for, are multiples of `ROWS`; what is beyond the
    inputs or outputs has to be 0.
    """
    prefer_wide_vectors()
    depth, outputs = net[DEPTH], net[OUTPUTS]
    last = shifted(net, HEADER + LAYER * (depth - 1))
    d_out, width = shifted(scratch, net[D_OUT]), last[WIDTH]
    add_sums(d_out, tile, outputs, rows, shifted(gradient, net[HEAD_BIAS_GRADIENT]))
    # The gradient of the outputs is [outputs, tile], that of the neurons [tile, neurons].
    d, d_row, d_step, neurons = d_out, 1, tile, outputs
    w = shifted(weights, net[HEAD_W])
    one, two = shifted(scratch, net[D_ONE]), shifted(scratch, net[D_TWO])
    a, a_row, a_step, a_rows = d_out, tile, 1, (outputs + ROWS - 1) // ROWS * ROWS
    b, into = shifted(scratch, last[ACTIVE]), shifted(gradient, net[HEAD_GRADIENT])
    for k in range(depth, -1, -1):
        add_outer(a, a_row, a_step, a_rows, b, width, rows, into)
        if k == 0:
            break
        layer = shifted(net, HEADER + LAYER * (k - 1))
        width = layer[WIDTH]
        kept = shifted(scratch, layer[KEPT])
        backward_layer(d, d_row, d_step, neurons, w, activation, kept, one, width, rows)
        add_rows(one, width, rows, shifted(gradient, layer[BIAS_GRADIENT]))
        d, d_row, d_step, neurons = one, width, 1, layer[NEURONS]
        w = shifted(weights, layer[W_BACKWARD])
        # The layer's own weights: its inputs, by the gradient of its neurons.
        a, a_row, a_step = x, 1, x_row
        if k > 1:
            before = shifted(net, HEADER + LAYER * (k - 2))
            a, a_step = shifted(scratch, before[ACTIVE]), before[WIDTH]
        a_rows = (layer[INPUTS] + ROWS - 1) // ROWS * ROWS
        b, into = one, shifted(gradient, layer[GRADIENT])
        one, two = two, one
