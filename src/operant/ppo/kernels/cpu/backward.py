"""A multilayer perceptron on a tile of samples, backward."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu.blocks import (
    PANEL,
    ROWS,
    backward_block,
    column_block,
    product_block,
    total,
)
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.network_layout import NETWORK, layer_at
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.simd import LANES


@compiled
def backward(net_address, x_address, x_row, rows, scratch_address, gradient_address, args_address):
    """Add to a gradient what the network's ``D_OUT``, ``[outputs, TILE]``, implies.

    After `forward`, with its arguments. `x_row` and the rows of ``D_OUT`` are multiples of `ROWS`,
    at least in memory; beyond the inputs and outputs there have to be zeros.
    """
    prefer_wide_vectors()
    args, net = record_at(ARGUMENTS, args_address), record_at(NETWORK, net_address)
    scratch, weights = at(u64(scratch_address), f32), args.weights
    gradient, x = at(u64(gradient_address), f32), at(u64(x_address), f32)
    depth, outputs, tile = net.depth, net.outputs, args.tile
    d_out = shifted(scratch, net.d_out)
    for o in range(outputs):
        gradient[net.head_bias_gradient + o] += total(shifted(d_out, o * tile), rows)

    # From the outputs to the first layer. `d`: the gradient of what comes after layer k - 1. For
    # the outputs it is [outputs, TILE], for neurons [TILE, width]: number j of sample i is
    # d[i * d_row + j * d_step].
    layer = layer_at(net_address, depth - 1)
    d, d_row, d_step, neurons = d_out, i64(1), tile, outputs
    # Weights of a layer are panels, those of the head [outputs, width].
    w, w_row, panelled = shifted(weights, net.head_w), layer.width, False
    one, two = shifted(scratch, net.d_one), shifted(scratch, net.d_two)
    # a @ b is the gradient of the weights in between.
    a, a_row, a_step = d_out, tile, i64(1)
    a_rows = (outputs + ROWS - 1) // ROWS * ROWS
    b, into = shifted(scratch, layer.active), shifted(gradient, net.head_gradient)
    width, row = layer.width, layer.row
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
        layer = layer_at(net_address, k - 1)
        width, row = layer.width, layer.row
        for column in range(0, width, PANEL):
            columns = min(PANEL, width - column)
            w_part = shifted(w, column * (neurons if panelled else 1))
            for i in range(0, rows, ROWS):
                offset = i * row + column
                backward_block(
                    shifted(d, i * d_row), d_row, d_step, neurons, w_part,
                    columns if panelled else w_row, args.activation,
                    shifted(scratch, layer.saved + offset), shifted(one, offset), row,
                    columns // LANES,
                )  # fmt: skip
            bias = shifted(gradient, layer.bias_gradient + column)
            column_block(shifted(one, column), row, rows, bias, columns // LANES)
        d, d_row, d_step, neurons = one, row, i64(1), layer.neurons
        w, panelled = shifted(weights, layer.w_backward), True
        a, a_row, a_step = x, i64(1), x_row
        if k > 1:
            before = layer_at(net_address, k - 2)
            a, a_step = shifted(scratch, before.active), before.row
        a_rows = (layer.inputs + ROWS - 1) // ROWS * ROWS
        b, into = one, shifted(gradient, layer.gradient)
        one, two = two, one
    return 0
