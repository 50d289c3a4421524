"""A multilayer perceptron on a tile of samples, forward."""

from __future__ import annotations

from numba import float32 as f32
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu.blocks import PANEL, ROWS, dot_block, forward_block
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.network_layout import NETWORK, layer_at
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.simd import LANES


@compiled
def forward(net_address, x_address, x_row, rows, scratch_address, args_address):
    """Fill the network's ``OUT``, ``[outputs, TILE]``, in a thread's scratch memory.

    Inputs are the rows of `x`, `x_row` apart, a multiple of LANES of them. The activations of all
    layers stay in the scratch memory.
    """
    prefer_wide_vectors()
    args, net = record_at(ARGUMENTS, args_address), record_at(NETWORK, net_address)
    scratch, weights = at(u64(scratch_address), f32), args.weights
    h, h_row = at(u64(x_address), f32), x_row
    for k in range(net.depth):
        layer = layer_at(net_address, k)
        inputs, width, row = layer.inputs, layer.width, layer.row
        for column in range(0, width, PANEL):
            columns = min(PANEL, width - column)
            w = shifted(weights, layer.w_forward + column * inputs)
            bias = shifted(weights, layer.bias + column)
            for i in range(0, rows, ROWS):
                offset = i * row + column
                saved = shifted(scratch, layer.saved + offset)
                out = shifted(scratch, layer.active + offset)
                forward_block(
                    shifted(h, i * h_row), h_row, inputs, w, columns, bias, args.activation,
                    saved, out, row, columns // LANES,
                )  # fmt: skip
        h, h_row = shifted(scratch, layer.active), row
    width = layer_at(net_address, net.depth - 1).width
    for o in range(net.outputs):
        w, bias = shifted(weights, net.head_w + o * width), weights[net.head_bias + o]
        out = shifted(scratch, net.out + o * args.tile)
        for i in range(0, rows, LANES):
            dot_block(shifted(h, i * h_row), h_row, width, w, bias, shifted(out, i))
    return 0
