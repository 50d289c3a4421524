"""Where everything is that kernels work on: from a policy to places in memory.

Places are counted in float32 and begin at cache lines. Memory that every thread has for itself is
*scratch*; a *gradient* is that of all parameters, in the order and layout of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from operant.models.actor_critic import ACTIVATIONS, ActorCritic
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import pieces as p
from operant.ppo.kernels.cpu.activations import NUMBERS
from operant.ppo.kernels.cpu.blocks import ROWS
from operant.ppo.kernels.cpu.simd import LANES

_LINE = 16  # float32 in a cache line; rows are one apart from a power of two, or all of them would
# compete for the same few sets of a cache
_STAGGER = 5 * _LINE  # between arrays, so that the same row of two is not in the same cache set


def aligned(count: int, dtype: type) -> np.ndarray:
    """A zeroed array that begins at a cache line."""
    size = max(count, 1) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array: np.ndarray = memory[start : start + size].view(dtype)
    return array


class Space:
    """Hands out places, one after the other."""

    def __init__(self, stagger: int = 0) -> None:
        self.size, self._stagger = 0, stagger

    def take(self, count: int) -> int:
        """A place for `count` numbers."""
        place = self.size
        self.size += _up(count, _LINE) + self._stagger
        return place


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class Piece:
    """One parameter: its shape, and the places of its copies and its gradient; -1: no such copy."""

    parameter: torch.Tensor
    rows: int
    columns: int
    gradient: int
    gradient_row: int
    gradient_turned: bool = False
    turned: int = -1
    turned_width: int = 0
    copy: int = -1
    copy_width: int = 0
    copy_panelled: bool = False
    is_matrix: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the parameter: a matrix, or a vector."""
        return (self.rows, self.columns) if self.is_matrix else (self.columns,)

    def record(self) -> list[int]:
        """As kernels read it; the address is up to date only now."""
        record = [0] * p.PIECE
        if not self.parameter.is_contiguous():  # someone gave it other memory
            self.parameter.data = self.parameter.data.contiguous()
        record[p.SOURCE] = self.parameter.data_ptr()
        record[p.ROWS], record[p.COLUMNS] = self.rows, self.columns
        record[p.TURNED], record[p.TURNED_WIDTH] = self.turned, self.turned_width
        record[p.COPY], record[p.COPY_WIDTH] = self.copy, self.copy_width
        record[p.COPY_PANELLED] = self.copy_panelled
        record[p.GRADIENT], record[p.GRADIENT_ROW] = self.gradient, self.gradient_row
        record[p.GRADIENT_TURNED] = self.gradient_turned
        return record


@dataclass
class Plan:
    """The places of a policy's networks, for tiles of `tile` samples.

    ``nets`` are records as kernels read them: actor and critic, or the one they share.
    """

    policy: ActorCritic
    tile: int
    parts: int
    noise_blocks: int
    mask_rows: int
    weights: Space = field(default_factory=Space)
    gradient: Space = field(default_factory=Space)
    scratch: Space = field(default_factory=lambda: Space(_STAGGER))
    pieces: list[Piece] = field(default_factory=list)
    nets: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        policy, tile = self.policy, self.tile
        first = policy.actor[0]
        assert isinstance(first, nn.Linear)
        self.x_row = _up(first.in_features, ROWS)
        self.x = self.scratch.take(tile * self.x_row)
        self.noise = self.scratch.take(4 * self.noise_blocks * tile)
        self.action = self.scratch.take(self.parts * tile)
        self.data = self.scratch.take((self.parts + n.DATA_ROWS + self.mask_rows) * tile)
        self.work = self.scratch.take((n.WORK_ROWS + 2 * self.parts) * tile)
        self.options = self.scratch.take(n.OPTIONS)
        self.activation = NUMBERS[activation_name(policy)]
        heads = [policy.actor_head, policy.critic_head]
        if policy.critic is None:
            self._add_net(policy.actor, heads)
        else:
            self._add_net(policy.actor, heads[:1])
            self._add_net(policy.critic, heads[1:])
        self.log_std = self.d_log_std = 0
        log_std = getattr(policy, "log_std", None)
        if log_std is not None:
            self.log_std = self.weights.take(log_std.numel())
            self.d_log_std = self.gradient.take(log_std.numel())
            self._add_row(log_std, self.log_std, self.d_log_std)

    def in_order(self, parameters: Sequence[torch.Tensor]) -> None:
        """Sort the pieces as an optimiser has the parameters."""
        by_parameter = {id(piece.parameter): piece for piece in self.pieces}
        self.pieces = [by_parameter[id(parameter)] for parameter in parameters]

    def records(self) -> np.ndarray:
        """The pieces as kernels read them, int64; addresses are up to date only now."""
        return np.array([piece.record() for piece in self.pieces], np.int64)

    def _add_net(self, trunk: nn.Sequential, heads: list[nn.Linear]) -> None:
        layers = [layer for layer in trunk if isinstance(layer, nn.Linear)]
        tile, outputs = self.tile, sum(head.out_features for head in heads)
        net = np.zeros(n.HEADER + n.LAYER * len(layers), np.int64)
        net[n.DEPTH], net[n.OUTPUTS] = len(layers), outputs
        width = 0
        for k, layer in enumerate(layers):
            record = net[n.HEADER + n.LAYER * k :][: n.LAYER]
            width = self._add_layer(record, layer, width)
        widest = max(_up(layer.out_features, LANES) for layer in layers)
        net[n.OUT] = self.scratch.take(outputs * tile)
        net[n.D_OUT] = self.scratch.take(_up(outputs, ROWS) * tile)
        row = widest + _LINE
        net[n.D_ONE], net[n.D_TWO] = (self.scratch.take(tile * row) for _ in range(2))
        net[n.HEAD_W] = self.weights.take(outputs * width)
        net[n.HEAD_BIAS] = self.weights.take(outputs)
        net[n.HEAD_GRADIENT] = self.gradient.take(_up(outputs, ROWS) * width)
        net[n.HEAD_BIAS_GRADIENT] = self.gradient.take(outputs)
        first = 0
        for head in heads:
            self.pieces.append(
                Piece(
                    head.weight,
                    head.out_features,
                    head.in_features,
                    gradient=int(net[n.HEAD_GRADIENT]) + first * width,
                    gradient_row=width,
                    copy=int(net[n.HEAD_W]) + first * width,
                    copy_width=width,
                )
            )
            bias_places = net[n.HEAD_BIAS] + first, net[n.HEAD_BIAS_GRADIENT] + first
            self._add_row(head.bias, *map(int, bias_places))
            first += head.out_features
        self.nets.append(net)

    def _add_layer(self, record: np.ndarray, layer: nn.Linear, width_before: int) -> int:
        """Fill in a hidden layer's record; its width. `width_before` is 0 for the first layer."""
        inputs, neurons = layer.in_features, layer.out_features
        width = _up(neurons, LANES)
        record[n.INPUTS], record[n.WIDTH], record[n.NEURONS] = inputs, width, neurons
        record[n.ROW] = row = width + _LINE
        record[n.W_FORWARD] = self.weights.take(inputs * width)
        record[n.W_BACKWARD] = self.weights.take(neurons * width_before) if width_before else -1
        record[n.BIAS] = self.weights.take(width)
        record[n.GRADIENT] = self.gradient.take(_up(inputs, ROWS) * width)
        record[n.BIAS_GRADIENT] = self.gradient.take(width)
        record[n.ACTIVE] = record[n.KEPT] = self.scratch.take(self.tile * row)
        if self.activation == NUMBERS["silu"]:
            record[n.KEPT] = self.scratch.take(self.tile * row)
        self.pieces.append(
            Piece(
                layer.weight,
                neurons,
                inputs,
                gradient=int(record[n.GRADIENT]),
                gradient_row=width,
                gradient_turned=True,
                turned=int(record[n.W_FORWARD]),
                turned_width=width,
                copy=int(record[n.W_BACKWARD]),
                copy_width=width_before,
                copy_panelled=True,
            )
        )
        self._add_row(layer.bias, int(record[n.BIAS]), int(record[n.BIAS_GRADIENT]))
        return width

    def _add_row(self, parameter: torch.Tensor, copy: int, gradient: int) -> None:
        row = Piece(parameter, 1, parameter.numel(), gradient, 0, copy=copy, is_matrix=False)
        self.pieces.append(row)


def activation_name(policy: ActorCritic) -> str:
    """``"tanh"``, ``"relu"`` or ``"silu"``."""
    return next(name for name, kind in ACTIVATIONS.items() if type(policy.actor[1]) is kind)
