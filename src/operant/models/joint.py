"""`Joint`: independent distributions over the leaves of a Dict or Tuple action."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from operant.models.distributions import Distribution
from operant.spaces.rows import ObsLayout


class Joint(Distribution):
    """One distribution for each leaf of an action. The head holds the columns of one after those of
    another, so does the noise; log-probabilities and entropies are sums.

    An action is a vector of all leaves' numbers: int64 if all are choices, else float32, which has
    all integers up to 2**24. The environment takes rows of the action space's memory, see
    `operant.spaces.layout`.

    Args:
        layout: of the action space.
        parts: a distribution for each of its leaves, in their order.
    """

    def __init__(self, layout: ObsLayout, parts: Sequence[Distribution]) -> None:
        self.layout, self.parts = layout, tuple(parts)
        self.head_size = sum(part.head_size for part in self.parts)
        self.noise_size = sum(part.noise_size for part in self.parts)
        self._heads = [part.head_size for part in self.parts]
        self._noises = [part.noise_size for part in self.parts]
        self._numbers = [math.prod(part.action_shape) for part in self.parts]
        self.action_shape = (sum(self._numbers),)
        floats = any(part.action_dtype.is_floating_point for part in self.parts)
        self.action_dtype = torch.float32 if floats else torch.int64

    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Each leaf with numbers of its own."""
        noises = torch.split(noise, self._noises, -1)
        inputs = zip(self.parts, torch.split(head, self._heads, -1), noises, strict=True)
        drawn = [part.sample(own_head, own_noise) for part, own_head, own_noise in inputs]
        actions, log_probs = zip(*drawn, strict=True)
        return self._joined(actions), torch.stack(log_probs, -1).sum(-1)

    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the leaves."""
        inputs = zip(
            self.parts, torch.split(head, self._heads, -1), self._split(action), strict=True
        )
        found = [part.evaluate(own_head, own_action) for part, own_head, own_action in inputs]
        log_probs, entropies = zip(*found, strict=True)
        return torch.stack(log_probs, -1).sum(-1), torch.stack(entropies, -1).sum(-1)

    def mode(self, head: Tensor) -> Tensor:
        """Of each leaf its own."""
        pairs = zip(self.parts, torch.split(head, self._heads, -1), strict=True)
        return self._joined([part.mode(own_head) for part, own_head in pairs])

    def to_env(self, action: Tensor) -> Tensor:
        """Rows of the action space's memory, uint8 ``[B, nbytes]``."""
        rows = torch.zeros(
            (*action.shape[:-1], self.layout.nbytes), dtype=torch.uint8, device=action.device
        )
        views = self.layout.views(rows)
        for path, leaf in self.leaves(action).items():
            views[path].copy_(leaf)
        return rows

    def leaves(self, action: Tensor) -> dict[str, Tensor]:
        """What the environment takes, by path: ``[B, *leaf.shape]`` of float32 or int64."""
        actions = self._split(action)
        return {
            leaf.path: part.to_env(own)
            for leaf, part, own in zip(self.layout.leaves, self.parts, actions, strict=True)
        }

    def _joined(self, actions: Sequence[Tensor]) -> Tensor:
        """The vector ``[B, numbers]`` of the parts' actions."""
        flat = [
            one.unsqueeze(-1) if part.action_shape == () else one
            for part, one in zip(self.parts, actions, strict=True)
        ]
        return torch.cat([one.to(self.action_dtype) for one in flat], -1)

    def _split(self, action: Tensor) -> list[Tensor]:
        """The parts' actions of a vector ``[B, numbers]``."""
        return [
            (own.squeeze(-1) if part.action_shape == () else own).to(part.action_dtype)
            for part, own in zip(self.parts, torch.split(action, self._numbers, -1), strict=True)
        ]
