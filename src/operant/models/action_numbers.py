"""Actions as inputs and outputs of a network, whatever space they are of."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from operant.models.distributions import Categorical, Distribution, Gaussian, MultiCategorical
from operant.models.joint import Joint


class ActionNumbers:
    """Choices as one-hot vectors side by side, numbers of a Box as they are.

    A network predicts them as ``[B, size]``: a logit for each choice, a number for each number.

    Args:
        distribution: of the actions.

    Raises:
        ValueError: one of somebody's own.
    """

    def __init__(self, distribution: Distribution) -> None:
        self._parts = distribution.parts if isinstance(distribution, Joint) else (distribution,)
        self._choices = [_choices(part) for part in self._parts]
        self._columns = [max(1, math.prod(part.action_shape)) for part in self._parts]
        self._sizes = [
            sum(choices) or count
            for choices, count in zip(self._choices, self._columns, strict=True)
        ]
        self.size = sum(self._sizes)
        """Numbers of an action."""

    def __call__(self, action: Tensor) -> Tensor:
        """Actions ``[B, *action_shape]`` as float32 ``[B, size]``."""
        found: list[Tensor] = []
        for own, choices in zip(self._split(action), self._choices, strict=True):
            if not choices:
                found.append(own.float())
                continue
            columns = own.long().unbind(-1)
            found += [
                functional.one_hot(x, n).float() for x, n in zip(columns, choices, strict=True)
            ]
        return torch.cat(found, -1)

    def loss(self, predicted: Tensor, action: Tensor) -> Tensor:
        """How wrong a prediction ``[B, size]`` is, ``[B]``: cross-entropy of choices, half the
        squared error of numbers, summed."""
        parts = torch.split(predicted, self._sizes, -1)
        losses: list[Tensor] = []
        for guess, own, choices in zip(parts, self._split(action), self._choices, strict=True):
            if not choices:
                losses.append(0.5 * (guess - own.float()).square().sum(-1))
                continue
            logits, columns = torch.split(guess, choices, -1), own.long().unbind(-1)
            losses += [
                functional.cross_entropy(x, y, reduction="none")
                for x, y in zip(logits, columns, strict=True)
            ]
        return torch.stack(losses).sum(0)

    def _split(self, action: Tensor) -> tuple[Tensor, ...]:
        """Columns of the parts, ``[B, numbers]`` each."""
        return torch.split(action.reshape(len(action), -1), self._columns, -1)


def _choices(part: Distribution) -> list[int]:
    """How many actions each choice has; none of a Box."""
    if isinstance(part, Categorical):
        return [part.head_size]
    if isinstance(part, MultiCategorical):
        return list(part.sizes)
    if isinstance(part, Gaussian):
        return []
    raise ValueError(f"actions of {type(part).__name__} cannot be predicted")
