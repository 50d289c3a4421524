"""Where the kernels find a policy's weights: one vector, padded to the sizes that products want.

A network lies there as ``matrix | matrix | bias | ...``, its head last, then the logarithms of the
deviations if they are parameters. A matrix is ``[inputs, outputs]``, PyTorch's transposed. The
first layer's bias is a row of its matrix, for an input that is always 1. What is padding is 0 and
stays 0. Gradients have the same layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from operant.models.actor_critic import ActorCritic

LEAST = 16
"""Rows and columns of a matrix, at least: tensor cores know no smaller ones."""


def padded(size: int, least: int = LEAST) -> int:
    """The power of two that is not below `size`."""
    return max(least, 1 << max(size - 1, 0).bit_length())


@dataclass(frozen=True)
class Network:
    """Sizes and offsets of one network, as kernels are told at compile time."""

    base: int
    inputs: int
    widths: tuple[int, ...]
    head: int
    matrices: tuple[int, ...]
    """Offsets after `base`: of each hidden layer's matrix, then of the head's."""
    biases: tuple[int, ...]
    """The first layer's is a row of its matrix."""
    ones: int
    """The input that is always 1."""
    log_std: int
    size: int

    def constants(self) -> dict[str, Any]:
        """The kernels' arguments; layers that there are not repeat the last one."""
        depth = len(self.widths)
        wide = (*self.widths, *[self.widths[-1]] * (3 - depth))
        at = []
        for k in (*range(depth), *[depth - 1] * (3 - depth), depth):
            at += [self.matrices[k], self.biases[k]]
        return {
            "BASE": self.base,
            "DEPTH": depth,
            "IN": self.inputs,
            "ONES": self.ones,
            "W1": wide[0],
            "W2": wide[1],
            "W3": wide[2],
            "HEAD": self.head,
            "AT": (*at, self.log_std),
        }


class Networks:
    """The networks of a policy: actor and critic, or the one they share.

    ``places``, int32 ``[P]``, says where each number of the optimiser's flat vector lies;
    ``numbers``, int32 ``[size]``, which number lies at each offset, or -1.

    Args:
        policy: one that `why_not_fused` has no objection to.
        parameters: in the optimiser's order.
        least: rows and columns of a hidden layer's matrices, at least.
    """

    def __init__(self, policy: ActorCritic, parameters: list[nn.Parameter], least: int = LEAST):
        self._offsets: dict[int, np.ndarray] = {}
        self._least = least
        self.size = 0
        heads = [policy.actor_head, policy.critic_head]
        log_std = getattr(policy, "log_std", None)
        if policy.critic is None:
            self.actor = self.critic = self._add(policy.actor, heads, log_std)
        else:
            self.actor = self._add(policy.actor, heads[:1], log_std)
            self.critic = self._add(policy.critic, heads[1:], None)
        self.places = np.concatenate([self._offsets[id(p)].ravel() for p in parameters])
        self.numbers = np.full(self.size, -1, np.int32)
        self.numbers[self.places] = np.arange(len(self.places), dtype=np.int32)

    @property
    def shared(self) -> bool:
        """Whether actor and critic are one network."""
        return self.actor is self.critic

    def _add(self, trunk: nn.Sequential, heads: list[nn.Linear], log_std: Tensor | None) -> Network:
        layers = [layer for layer in trunk if isinstance(layer, nn.Linear)]
        ones = layers[0].in_features
        base, inputs = self.size, padded(ones + 1)
        widths = [padded(layer.out_features, self._least) for layer in layers]
        matrices = [self._matrix(layers[0].weight, inputs, widths[0])]
        biases = [matrices[0] + ones * widths[0]]
        self._at(layers[0].bias, biases[0])
        for layer, rows, width in zip(layers[1:], widths, widths[1:], strict=False):
            matrices.append(self._matrix(layer.weight, rows, width))
            biases.append(self._vector(layer.bias, width))
        head = padded(sum(one.out_features for one in heads))
        matrices.append(self._take(widths[-1] * head))
        biases.append(self._take(head))
        first = 0
        for one in heads:
            columns = first + np.arange(one.out_features)
            self._offsets[id(one.weight)] = (
                matrices[-1] + np.arange(one.in_features) * head + columns[:, None]
            ).astype(np.int32)
            self._at(one.bias, biases[-1] + first)
            first += one.out_features
        std = self._take(head) if log_std is None else self._vector(log_std, head)
        offsets = tuple(k - base for k in matrices), tuple(k - base for k in biases), ones
        return Network(base, inputs, tuple(widths), head, *offsets, std - base, self.size - base)

    def _take(self, count: int) -> int:
        offset = self.size
        self.size += count
        return offset

    def _matrix(self, weight: Tensor, rows: int, columns: int) -> int:
        at = self._take(rows * columns)
        outputs, inputs = weight.shape
        offsets = at + np.arange(inputs) * columns + np.arange(outputs)[:, None]
        self._offsets[id(weight)] = offsets.astype(np.int32)
        return at

    def _vector(self, vector: Tensor, size: int) -> int:
        at = self._take(size)
        self._at(vector, at)
        return at

    def _at(self, vector: Tensor, offset: int) -> None:
        self._offsets[id(vector)] = (offset + np.arange(len(vector))).astype(np.int32)


def addresses(parameters: list[nn.Parameter], device: torch.device) -> Tensor:
    """Where each number of the flat vector is in memory now, int64 ``[P]``."""
    found = [p.data_ptr() + 4 * np.arange(p.numel(), dtype=np.int64) for p in parameters]
    return torch.from_numpy(np.concatenate(found)).to(device)
