"""`PopArtValueHead`: values whose scale follows their targets (van Hasselt et al., 2016)."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.models.layers import orthogonal

LEAST_DEVIATION, LARGEST_DEVIATION = 1e-4, 1e6


class PopArtValueHead(nn.Linear):
    """A linear layer that learns normalised values, and returns them in the targets' own scale.

    ``mean`` and ``variance`` of the targets are running ones, float64 ``[tasks]``. When they
    change, weights and biases are changed too, so that what is returned stays the same. Statistics
    change in `update` alone.

    Args:
        inputs: features.
        tasks: of which each has statistics and a row of weights of its own (Hessel et al., 2018).
        rate: how far the statistics move towards those of a rollout, from the 1 / rate-th on; until
            then they are means of all.

    Raises:
        ValueError: no task, or a rate beyond 0 to 1.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, inputs: int, tasks: int = 1, rate: float = 0.1) -> None:
        if tasks < 1 or not 0 < rate <= 1:
            raise ValueError(f"tasks must be 1 or more and rate 0 to 1, got {tasks} and {rate}")
        super().__init__(inputs, tasks)
        orthogonal(self.weight)
        nn.init.zeros_(self.bias)
        self.tasks, self.rate = tasks, rate
        self.register_buffer("mean", torch.zeros(tasks, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(tasks, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(tasks, dtype=torch.float64))

    def forward(self, input: Tensor, task: Tensor | None = None) -> Tensor:
        """Values ``[B, 1]`` of features ``[B, inputs]``, of task `task`, int64 ``[B]``, each."""
        values = super().forward(input)
        if values.dtype.itemsize == 2:  # too coarse for a large mean
            values = values.float()
        values = self.deviation().to(values.dtype) * values + self.mean.to(values.dtype)
        return values if task is None else values.gather(-1, task.view(-1, 1))

    def deviation(self) -> Tensor:
        """Of the targets, float64 ``[tasks]``."""
        return self.variance.sqrt().clamp(LEAST_DEVIATION, LARGEST_DEVIATION)

    def normalized(self, value: Tensor, task: Tensor | None = None) -> Tensor:
        """Values or targets ``[B]`` as the layer learns them."""
        mean, deviation = self.mean, self.deviation()
        if task is not None:
            mean, deviation = mean[task], deviation[task]
        return ((value - mean) / deviation).to(value.dtype)

    @torch.no_grad()
    def update(self, target: Tensor, task: Tensor | None = None) -> None:
        """Take in the targets ``[K]`` of a rollout, and preserve what is returned.

        A task without a target stays as it is. Nothing here waits for a GPU.
        """
        values = target.double().unsqueeze(1)
        if task is None:
            share = torch.ones_like(values)
        else:
            share = nn.functional.one_hot(task, self.tasks).double()
        number = share.sum(0)
        known = number > 0
        mean = (share * values).sum(0) / number.clamp(min=1)
        variance = (share * (values - mean).square()).sum(0) / number.clamp(min=1)
        self.count.add_(known)
        rate = torch.where(known, (1 / self.count.clamp(min=1)).clamp(min=self.rate), 0.0)
        before, deviation = self.mean.clone(), self.deviation()
        moved = mean - self.mean
        self.variance.mul_(1 - rate).add_(rate * variance + rate * (1 - rate) * moved.square())
        self.mean.add_(rate * moved)
        now = self.deviation()
        weight, bias = self.weight.double(), self.bias.double()
        self.weight.copy_(weight * (deviation / now)[:, None])
        self.bias.copy_((deviation * bias + before - self.mean) / now)


def task_space(observation_space: spaces.Space[Any]) -> spaces.Discrete | None:
    """The leaf ``task`` of a Dict observation, if it is Discrete: how an environment reports which
    of several tasks an episode is."""
    if isinstance(observation_space, spaces.Dict):
        found = observation_space.spaces.get("task")
        if isinstance(found, spaces.Discrete):
            return found
    return None


def popart_head(policy: nn.Module) -> PopArtValueHead | None:
    """The head of a policy, if it has one of this kind."""
    return next((one for one in policy.modules() if isinstance(one, PopArtValueHead)), None)
