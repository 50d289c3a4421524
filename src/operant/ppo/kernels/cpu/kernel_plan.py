"""Where everything is that kernels work on: from a policy to offsets in memory.

Offsets are counted in float32 and begin at cache lines. Memory that every thread has for itself is
*scratch*; a *gradient* is that of all parameters, in the order and layout of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from operant.models.actor_critic import ActorCritic
from operant.models.layers import ACTIVATIONS
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.activations import NUMBERS
from operant.ppo.kernels.cpu.blocks import ROWS
from operant.ppo.kernels.cpu.network_layout import LAYER, NETWORK
from operant.ppo.kernels.cpu.parameter_layout import PARAMETER
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


class Allocator:
    """Hands out offsets, one after the other."""

    def __init__(self, stagger: int = 0) -> None:
        self.size, self._stagger = 0, stagger

    def take(self, count: int) -> int:
        """The offset of `count` numbers."""
        offset = self.size
        self.size += _up(count, _LINE) + self._stagger
        return offset


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class ParameterLayout:
    """One parameter: its shape, and offsets of its copies and its gradient; -1: no such copy."""

    parameter: torch.Tensor
    rows: int
    columns: int
    gradient: int
    gradient_row: int
    gradient_transposed: bool = False
    transposed: int = -1
    transposed_width: int = 0
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
        if not self.parameter.is_contiguous():  # someone gave it other memory
            self.parameter.data = self.parameter.data.contiguous()
        return PARAMETER.pack(
            source=self.parameter.data_ptr(),
            rows=self.rows,
            columns=self.columns,
            transposed=self.transposed,
            transposed_width=self.transposed_width,
            copy=self.copy,
            copy_width=self.copy_width,
            copy_panelled=self.copy_panelled,
            gradient=self.gradient,
            gradient_row=self.gradient_row,
            gradient_transposed=self.gradient_transposed,
        )


@dataclass
class KernelPlan:
    """The offsets of a policy's networks, for tiles of `tile` samples.

    ``nets`` are records as kernels read them: actor and critic, or the one they share.
    """

    policy: ActorCritic
    tile: int
    parts: int
    noise_blocks: int
    mask_rows: int
    weights: Allocator = field(default_factory=Allocator)
    gradient: Allocator = field(default_factory=Allocator)
    scratch: Allocator = field(default_factory=lambda: Allocator(_STAGGER))
    parameters: list[ParameterLayout] = field(default_factory=list)
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

    def sort_parameters(self, order: Sequence[torch.Tensor]) -> None:
        """Sort the parameters as an optimiser has them."""
        known = {id(layout.parameter): layout for layout in self.parameters}
        self.parameters = [known[id(parameter)] for parameter in order]

    def records(self) -> np.ndarray:
        """The parameters as kernels read them, int64; addresses are up to date only now."""
        return np.array([layout.record() for layout in self.parameters], np.int64)

    def _add_net(self, trunk: nn.Sequential, heads: list[nn.Linear]) -> None:
        layers = [layer for layer in trunk if isinstance(layer, nn.Linear)]
        tile, outputs = self.tile, sum(head.out_features for head in heads)
        records, width = [], 0
        for layer in layers:
            width = self._add_layer(records, layer, width)
        row = max(_up(layer.out_features, LANES) for layer in layers) + _LINE
        net = {
            "depth": len(layers),
            "outputs": outputs,
            "out": self.scratch.take(outputs * tile),
            "d_out": self.scratch.take(_up(outputs, ROWS) * tile),
            "d_one": self.scratch.take(tile * row),
            "d_two": self.scratch.take(tile * row),
            "head_w": self.weights.take(outputs * width),
            "head_bias": self.weights.take(outputs),
            "head_gradient": self.gradient.take(_up(outputs, ROWS) * width),
            "head_bias_gradient": self.gradient.take(outputs),
        }
        first = 0
        for head in heads:
            self.parameters.append(
                ParameterLayout(
                    head.weight,
                    head.out_features,
                    head.in_features,
                    gradient=net["head_gradient"] + first * width,
                    gradient_row=width,
                    copy=net["head_w"] + first * width,
                    copy_width=width,
                )
            )
            self._add_row(head.bias, net["head_bias"] + first, net["head_bias_gradient"] + first)
            first += head.out_features
        self.nets.append(np.array(NETWORK.pack(**net) + records, np.int64))

    def _add_layer(self, records: list[int], layer: nn.Linear, width_before: int) -> int:
        """Append a hidden layer's record; its width. `width_before` is 0 for the first layer."""
        inputs, neurons = layer.in_features, layer.out_features
        width = _up(neurons, LANES)
        row = width + _LINE
        w_forward = self.weights.take(inputs * width)
        w_backward = self.weights.take(neurons * width_before) if width_before else -1
        bias = self.weights.take(width)
        gradient = self.gradient.take(_up(inputs, ROWS) * width)
        bias_gradient = self.gradient.take(width)
        active = saved = self.scratch.take(self.tile * row)
        if self.activation == NUMBERS["silu"]:
            saved = self.scratch.take(self.tile * row)
        records += LAYER.pack(
            inputs=inputs,
            neurons=neurons,
            width=width,
            row=row,
            w_forward=w_forward,
            w_backward=w_backward,
            bias=bias,
            gradient=gradient,
            bias_gradient=bias_gradient,
            active=active,
            saved=saved,
        )
        self.parameters.append(
            ParameterLayout(
                layer.weight,
                neurons,
                inputs,
                gradient=gradient,
                gradient_row=width,
                gradient_transposed=True,
                transposed=w_forward,
                transposed_width=width,
                copy=w_backward,
                copy_width=width_before,
                copy_panelled=True,
            )
        )
        self._add_row(layer.bias, bias, bias_gradient)
        return width

    def _add_row(self, parameter: torch.Tensor, copy: int, gradient: int) -> None:
        self.parameters.append(
            ParameterLayout(
                parameter, 1, parameter.numel(), gradient, 0, copy=copy, is_matrix=False
            )
        )


def activation_name(policy: ActorCritic) -> str:
    """``"tanh"``, ``"relu"`` or ``"silu"``."""
    return next(name for name, kind in ACTIVATIONS.items() if type(policy.actor[1]) is kind)
