"""Distributions over actions, as pure functions of a network's output.

A policy network ends in a *head*, float32 ``[B, H]``. A distribution says what its columns mean.
Noise comes in as uniform numbers, so that whoever samples owns the random stream, and the same
numbers give the same actions on every engine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

_LOG_2PI = math.log(2 * math.pi)
_LOG_STD_RANGE = (-20.0, 2.0)


class Distribution(ABC):
    """What the columns of a head mean.

    An action here is what log-probabilities are computed from and what a rollout stores:
    ``action_dtype``, ``[B, *action_shape]``. `to_env` turns it into what the environment takes.
    """

    head_size: int
    """H: columns of the head."""
    noise_size: int
    """Uniform numbers that one sample uses up."""
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype

    @abstractmethod
    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and log-probabilities ``[B]``, from `noise` in [0, 1), ``[B, noise_size]``."""

    @abstractmethod
    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of `action` and entropy of the distribution, each ``[B]``."""

    @abstractmethod
    def mode(self, head: Tensor) -> Tensor:
        """The action a deterministic policy takes."""

    @abstractmethod
    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it."""


class Categorical(Distribution):
    """One of `n` actions, numbered from `start`; the head holds logits."""

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64
    noise_size = 1

    def __init__(self, n: int, start: int = 0) -> None:
        self.head_size, self.start = n, start

    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """By inversion: the first action whose cumulated probability exceeds the number."""
        log_probs = functional.log_softmax(head, -1)
        passed = log_probs.exp().cumsum(-1) <= noise
        action = passed.sum(-1).clamp_(max=self.head_size - 1)  # rounding: the sum may stay below 1
        return action, log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `Distribution`. A logit of -inf masks its action."""
        log_probs = functional.log_softmax(head, -1)
        log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        # An action with logit -inf (masked) has probability 0 and adds 0, not 0 * -inf.
        entropy = -(log_probs.exp() * log_probs.clamp(min=torch.finfo(head.dtype).min)).sum(-1)
        return log_prob, entropy

    def mode(self, head: Tensor) -> Tensor:
        """The largest logit."""
        return head.argmax(-1)

    def to_env(self, action: Tensor) -> Tensor:
        """Counted from `start`."""
        return action + self.start if self.start else action


class MultiCategorical(Distribution):
    """Several independent choices; the head holds the logits of one after those of another."""

    action_dtype = torch.int64

    def __init__(self, sizes: Sequence[int], start: Sequence[int] | None = None) -> None:
        self.parts = [Categorical(int(n)) for n in sizes]
        self.sizes = [part.head_size for part in self.parts]
        self.start = torch.tensor([0] * len(self.sizes) if start is None else list(start))
        self.head_size, self.noise_size = sum(self.sizes), len(self.sizes)
        self.action_shape = (len(self.sizes),)

    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Each choice with a number of its own."""
        drawn = [
            part.sample(logits, noise[..., k : k + 1])
            for k, (part, logits) in enumerate(zip(self.parts, self._split(head), strict=True))
        ]
        actions, log_probs = zip(*drawn, strict=True)
        return torch.stack(actions, -1), torch.stack(log_probs, -1).sum(-1)

    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the choices."""
        found = [
            part.evaluate(logits, action[..., k])
            for k, (part, logits) in enumerate(zip(self.parts, self._split(head), strict=True))
        ]
        log_probs, entropies = zip(*found, strict=True)
        return torch.stack(log_probs, -1).sum(-1), torch.stack(entropies, -1).sum(-1)

    def mode(self, head: Tensor) -> Tensor:
        """The largest logit of each choice."""
        return torch.stack([logits.argmax(-1) for logits in self._split(head)], -1)

    def to_env(self, action: Tensor) -> Tensor:
        """Counted from `start`."""
        return action + self.start.to(action.device) if self.start.any() else action

    def _split(self, head: Tensor) -> tuple[Tensor, ...]:
        return torch.split(head, self.sizes, -1)


class Gaussian(Distribution):
    """Independent normal numbers; the head holds the means, then the logarithms of the deviations.

    The environment gets the sample clipped to its bounds. The log-probability is that of the sample
    before clipping: clipping is the environment's affair, and what lies beyond a bound has no
    density.
    """

    action_dtype = torch.float32

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low = torch.as_tensor(low, dtype=torch.float32).flatten()
        self.high = torch.as_tensor(high, dtype=torch.float32).flatten()
        self.env_shape = tuple(np.shape(low))
        n = self.low.numel()
        self.head_size = self.noise_size = 2 * n
        self.action_shape = (n,)

    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """By Box and Muller's method, two numbers for each component."""
        mean, log_std = self._split(head)
        one, two = noise.chunk(2, -1)
        normal = torch.sqrt(-2 * torch.log1p(-one)) * torch.cos(2 * math.pi * two)  # Box and Muller
        action = mean + log_std.exp() * normal
        return action, self._log_prob(normal, log_std, action)

    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `Distribution`."""
        mean, log_std = self._split(head)
        log_prob = self._log_prob((action - mean) * (-log_std).exp(), log_std, action)
        return log_prob, self._entropy(mean, log_std)

    def mode(self, head: Tensor) -> Tensor:
        """The means."""
        return self._split(head)[0]

    def to_env(self, action: Tensor) -> Tensor:
        """Clipped to the bounds, in the space's own shape."""
        action = action.clamp(self.low.to(action.device), self.high.to(action.device))
        return action.reshape(*action.shape[:-1], *self.env_shape)

    def _split(self, head: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = head.chunk(2, -1)
        return mean, log_std.clamp(*_LOG_STD_RANGE)

    def _log_prob(self, normal: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        return (-0.5 * (normal * normal + _LOG_2PI) - log_std).sum(-1)

    def _entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        return (log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)


class SquashedGaussian(Gaussian):
    """Normal numbers through tanh onto a bounded Box: no probability is lost at the bounds.

    The action stored is the number before tanh, from which the log-probability follows without
    inverting tanh (which is impossible in float32 near the bounds).
    """

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__(low, high)
        if not (torch.isfinite(self.low).all() and torch.isfinite(self.high).all()):
            raise ValueError(
                f"squashing needs an action space with finite bounds, got {low} to {high}"
            )
        self._half = (self.high - self.low) / 2
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        self._nodes = torch.tensor(nodes, dtype=torch.float32)
        self._weights = torch.tensor(weights / weights.sum(), dtype=torch.float32)

    def to_env(self, action: Tensor) -> Tensor:
        """Through tanh onto the bounds, in the space's own shape."""
        half, low, high = (x.to(action.device) for x in (self._half, self.low, self.high))
        action = (low + half * (torch.tanh(action) + 1)).clamp(low, high)  # rounding
        return action.reshape(*action.shape[:-1], *self.env_shape)

    def _log_prob(self, normal: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        return super()._log_prob(normal, log_std, action) - self._log_slope(action).sum(-1)

    def _entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """The normal entropy plus the expected logarithm of the slope, by Gauss-Hermite quadrature:
        it has no closed form, and unlike a sample it adds no noise to the gradient."""
        nodes, weights = self._nodes.to(mean.device), self._weights.to(mean.device)
        points = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * nodes
        half = self._half.to(mean.device).log()
        slope = half + (self._log_tanh_slope(points) * weights).sum(-1)
        return super()._entropy(mean, log_std) + slope.sum(-1)

    def _log_slope(self, action: Tensor) -> Tensor:
        return self._half.to(action.device).log() + self._log_tanh_slope(action)

    @staticmethod
    def _log_tanh_slope(x: Tensor) -> Tensor:
        """log(1 - tanh(x)^2), also where tanh rounds to 1."""
        return 2 * (math.log(2) - x - functional.softplus(-2 * x))


def distribution_for(space: spaces.Space[object], squash: bool = False) -> Distribution:
    """The distribution over an action space.

    Raises:
        ValueError: a space no policy here can act in.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiCategorical(space.nvec.tolist(), space.start.tolist())
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiCategorical([2] * space.shape[0])
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        kind = SquashedGaussian if squash else Gaussian
        return kind(space.low, space.high)
    raise ValueError(
        f"no policy for the action space {space}; known are Discrete, MultiDiscrete and "
        "MultiBinary of one dimension, and Box of floats"
    )
