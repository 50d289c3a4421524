"""Layers with the initial weights that policies here have: orthogonal, no bias."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from operant.toolchain.torch_threads import one_thread_an_operation

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


def mlp(size: int, hidden: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers, each followed by the activation."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [linear(size, width, math.sqrt(2)), activation()]
        size = width
    return nn.Sequential(*layers)


def orthogonal(weight: Tensor, gain: float = 1.0) -> None:
    """Fill a weight with an orthogonal matrix times `gain`, from PyTorch's generator.

    On one thread: the decomposition rounds in another way with each number of threads, and a seed
    is to give the same weights on a machine with other cores.
    """
    with one_thread_an_operation():
        nn.init.orthogonal_(weight, gain)


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    orthogonal(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def conv(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    gain: float = math.sqrt(2),
) -> nn.Conv2d:
    """A convolution with orthogonal weights and no bias to begin with."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    orthogonal(layer.weight, gain)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # it has one
    return layer
