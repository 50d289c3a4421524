"""A multilayer perceptron on a tile of samples, backward."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.blocks import (
    PANEL,
    ROWS,
    backward_block,
    column_block,
    product_block,
    total,
)
from operant.ppo.kernels.cpu.simd import LANES
from operant.ppo.kernels.cpu.unit import Unit


@Unit
def backward(net_address, x_address, x_row, rows, scratch_address, gradient_address, table_address):
    """Add to a gradient what the network's ``D_OUT``, ``[outputs, TILE]``, implies.

    After `forward`, with its arguments. `x_row` and the rows of ``D_OUT`` are multiples of `ROWS`,
    at least in memory; beyond the inputs and outputs there have to be zeros.
    """
    prefer_wide_vectors()
    table, net = at(u64(table_address), i64), at(u64(net_address), i64)
    scratch, weights = at(u64(scratch_address), f32), at(u64(table[t.WEIGHTS]), f32)
    gradient, x = at(u64(gradient_address), f32), at(u64(x_address), f32)
    depth, outputs, tile = net[n.DEPTH], net[n.OUTPUTS], table[t.TILE]
    d_out = shifted(scratch, net[n.D_OUT])
    for o in range(outputs):
        gradient[net[n.HEAD_BIAS_GRADIENT] + o] += total(shifted(d_out, o * tile), rows)

    # From the outputs to the first layer. `d`: the gradient of what comes after layer k - 1. For
    # the outputs it is [outputs, TILE], for neurons [TILE, width]: number j of sample i is
    # d[i * d_row + j * d_step].
    layer = shifted(net, n.HEADER + n.LAYER * (depth - 1))
    d, d_row, d_step, neurons = d_out, i64(1), tile, outputs
    # Weights of a layer are panels, those of the head [outputs, width].
    w, w_row, panelled = shifted(weights, net[n.HEAD_W]), layer[n.WIDTH], False
    one, two = shifted(scratch, net[n.D_ONE]), shifted(scratch, net[n.D_TWO])
    # a @ b is the gradient of the weights in between.
    a, a_row, a_step = d_out, tile, i64(1)
    a_rows = (outputs + ROWS - 1) // ROWS * ROWS
    b, into = shifted(scratch, layer[n.ACTIVE]), shifted(gradient, net[n.HEAD_GRADIENT])
    width, row = layer[n.WIDTH], layer[n.ROW]
    for k in range(depth, -1, -1):
        for column in range(0, width, PANEL):
            vectors = min(PANEL, width - column) // LANES
            for i in range(0, a_rows, ROWS):
                product_block(
                    shifted(a, i * a_row), a_row, a_step, rows, shifted(b, column), row,
                    shifted(into, i * width + column), width, vectors,
                )  # fmt: skip
        if k == 0:
            break
        layer = shifted(net, n.HEADER + n.LAYER * (k - 1))
        width, row = layer[n.WIDTH], layer[n.ROW]
        for column in range(0, width, PANEL):
            columns = min(PANEL, width - column)
            w_part = shifted(w, column * (neurons if panelled else 1))
            for i in range(0, rows, ROWS):
                place = i * row + column
                backward_block(
                    shifted(d, i * d_row), d_row, d_step, neurons, w_part,
                    columns if panelled else w_row, table[t.ACTIVATION],
                    shifted(scratch, layer[n.KEPT] + place), shifted(one, place), row,
                    columns // LANES,
                )  # fmt: skip
            bias = shifted(gradient, layer[n.BIAS_GRADIENT] + column)
            column_block(shifted(one, column), row, rows, bias, columns // LANES)
        d, d_row, d_step, neurons = one, row, i64(1), layer[n.NEURONS]
        w, panelled = shifted(weights, layer[n.W_BACKWARD]), True
        a, a_row, a_step = x, i64(1), x_row
        if k > 1:
            before = shifted(net, n.HEADER + n.LAYER * (k - 2))
            a, a_step = shifted(scratch, before[n.ACTIVE]), before[n.ROW]
        a_rows = (layer[n.INPUTS] + ROWS - 1) // ROWS * ROWS
        b, into = one, shifted(gradient, layer[n.GRADIENT])
        one, two = two, one
    return 0
