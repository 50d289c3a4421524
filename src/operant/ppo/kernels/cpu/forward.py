"""A multilayer perceptron on a tile of samples, forward."""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.blocks import PANEL, ROWS, dot_block, forward_block
from operant.ppo.kernels.cpu.simd import LANES
from operant.ppo.kernels.cpu.unit import Unit


@Unit
def forward(net_address, x_address, x_row, rows, scratch_address, table_address):
    """Fill the network's ``OUT``, ``[outputs, TILE]``, in a thread's scratch memory.

    Inputs are the rows of `x`, `x_row` apart, a multiple of LANES of them. The activations of all
    layers stay in the scratch memory.
    """
    prefer_wide_vectors()
    table, net = at(u64(table_address), i64), at(u64(net_address), i64)
    scratch, weights = at(u64(scratch_address), f32), at(u64(table[t.WEIGHTS]), f32)
    h, h_row = at(u64(x_address), f32), x_row
    for k in range(net[n.DEPTH]):
        layer = shifted(net, n.HEADER + n.LAYER * k)
        inputs, width, row = layer[n.INPUTS], layer[n.WIDTH], layer[n.ROW]
        for column in range(0, width, PANEL):
            columns = min(PANEL, width - column)
            w = shifted(weights, layer[n.W_FORWARD] + column * inputs)
            bias = shifted(weights, layer[n.BIAS] + column)
            for i in range(0, rows, ROWS):
                place = i * row + column
                kept = shifted(scratch, layer[n.KEPT] + place)
                out = shifted(scratch, layer[n.ACTIVE] + place)
                forward_block(
                    shifted(h, i * h_row), h_row, inputs, w, columns, bias, table[t.ACTIVATION],
                    kept, out, row, columns // LANES,
                )  # fmt: skip
        h, h_row = shifted(scratch, layer[n.ACTIVE]), row
    width = shifted(net, n.HEADER + n.LAYER * (net[n.DEPTH] - 1))[n.WIDTH]
    for o in range(net[n.OUTPUTS]):
        w, bias = shifted(weights, net[n.HEAD_W] + o * width), weights[net[n.HEAD_BIAS] + o]
        out = shifted(scratch, net[n.OUT] + o * table[t.TILE])
        for i in range(0, rows, LANES):
            dot_block(shifted(h, i * h_row), h_row, width, w, bias, shifted(out, i))
    return 0
