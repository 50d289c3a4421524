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
from torch import Tensor
from torch.nn import functional

from operant.models.names import LOG_STD_RANGE

_LOG_2PI = math.log(2 * math.pi)


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
        """Actions and log-probabilities ``[B]``, from `noise` in [0, 1), ``[B, noise_size]``.

        The log-probabilities are those that `evaluate` gives for the same head, to the bit.
        """

    @abstractmethod
    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of `action` and entropy of the distribution, each ``[B]``."""

    @abstractmethod
    def mode(self, head: Tensor) -> Tensor:
        """The action a deterministic policy takes."""

    @abstractmethod
    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it."""


def masked(head: Tensor, allowed: Tensor) -> Tensor:
    """Logits `head` ``[B, H]`` with -inf for actions that are not `allowed`, bool ``[B, H]``: they
    have probability 0, and no gradient."""
    return head.masked_fill(~allowed, -math.inf)


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
        cumulated = _cumulated(log_probs.exp())
        # Rounding may leave the sum below 1. Scaled by it, the number stays below the last entry,
        # so that what lies behind the sum, a masked action say, is never chosen.
        action = (cumulated <= noise * cumulated[..., -1:]).sum(-1)
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


def _cumulated(x: Tensor) -> Tensor:
    """Sums of the first 1, 2, ... columns, which grow where `x` is not 0 and only there. Few
    columns are added one after the other: a scan of 8192 rows of two took an H200 49 microseconds,
    longer than all the rest of a step."""
    if x.shape[-1] > 16:
        # A GPU adds in another order for each column: a sum may exceed its neighbour's by rounding
        # where nothing was added.
        return x.cumsum(-1).masked_fill(x == 0, 0.0).cummax(-1).values
    sums = list(x.unbind(-1))
    for k in range(1, len(sums)):
        sums[k] = sums[k - 1] + sums[k]
    return torch.stack(sums, -1)


class MultiCategorical(Distribution):
    """Several independent choices; the head holds the logits of one after those of another.

    Args:
        sizes: how many actions each choice has.
        start: what each choice is numbered from; by default 0.
        env_shape: how the environment arranges the choices; by default in a row.
    """

    action_dtype = torch.int64

    def __init__(
        self,
        sizes: Sequence[int],
        start: Sequence[int] | None = None,
        env_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.parts = [Categorical(int(n)) for n in sizes]
        self.sizes = [part.head_size for part in self.parts]
        self.head_size, self.noise_size = sum(self.sizes), len(self.sizes)
        self.action_shape = (len(self.sizes),)
        self.env_shape = self.action_shape if env_shape is None else env_shape
        self.start = [0] * len(self.sizes) if start is None else list(start)
        self._start = _Constants(torch.tensor(self.start)) if any(self.start) else None

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
        """Counted from `start`, in the space's own shape."""
        if self._start is not None:
            action = action + self._start.on(action.device)[0]
        return action.reshape(*action.shape[:-1], *self.env_shape)

    def _split(self, head: Tensor) -> tuple[Tensor, ...]:
        return torch.split(head, self.sizes, -1)


class Gaussian(Distribution):
    """Independent normal numbers; the head holds the means, then the logarithms of the deviations.

    The environment gets the sample clipped to its bounds. The log-probability is that of the sample
    before clipping: clipping is the environment's affair, and what lies beyond a bound has no
    density. Logarithms of deviations are limited to `LOG_STD_RANGE`.

    Args:
        low, high: bounds of the Box, ``[*env_shape]``; may be infinite.
    """

    action_dtype = torch.float32

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = _rounded_up(low).flatten(), -_rounded_up(-np.asarray(high)).flatten()
        self.env_shape = tuple(np.shape(low))
        n = self.low.size
        self.head_size = self.noise_size = 2 * n
        self.action_shape = (n,)
        self._bounds = _Constants(torch.from_numpy(self.low), torch.from_numpy(self.high))

    def sample(self, head: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """By Box and Muller's method, two numbers for each component."""
        mean, log_std = self._split(head)
        one, two = noise.chunk(2, -1)
        normal = torch.sqrt(-2 * torch.log1p(-one)) * torch.cos(2 * math.pi * two)
        action = mean + log_std.exp() * normal
        # Not from `normal`: the action is rounded, and it is what the update will look at.
        return action, self._log_prob(mean, log_std, action)

    def evaluate(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See `Distribution`."""
        mean, log_std = self._split(head)
        return self._log_prob(mean, log_std, action), self._entropy(mean, log_std)

    def mode(self, head: Tensor) -> Tensor:
        """The means."""
        return self._split(head)[0]

    def to_env(self, action: Tensor) -> Tensor:
        """Clipped to the bounds, in the space's own shape."""
        action = action.clamp(*self._bounds.on(action.device))
        return action.reshape(*action.shape[:-1], *self.env_shape)

    def _split(self, head: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = head.chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def _log_prob(self, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        normal = (action - mean) * (-log_std).exp()
        return (-0.5 * (normal * normal + _LOG_2PI) - log_std).sum(-1)

    def _entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        return (log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)


class SquashedGaussian(Gaussian):
    """Normal numbers through tanh onto a bounded Box: no probability is lost at the bounds.

    The action stored is the number before tanh, from which the log-probability follows without
    inverting tanh (which is impossible in float32 near the bounds). Log-probability and entropy are
    those of the number after tanh, as the environment takes it.

    Args:
        low, high: bounds of the Box, ``[*env_shape]``.

    Raises:
        ValueError: a bound is infinite, or leaves no room.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__(low, high)
        half = self.high / 2 - self.low / 2  # not of the difference, which may overflow
        if not (np.isfinite(half).all() and (half > 0).all()):
            raise ValueError(
                "squashing needs an action space with finite bounds, the lower below the upper, "
                f"got {low} to {high}"
            )
        middle = self.high / 2 + self.low / 2
        self._line = _Constants(torch.from_numpy(middle), torch.from_numpy(half))
        self._log_half = float(np.log(half.astype(np.float64)).sum())
        self._mixture = _Constants(*torch.tensor(_LOGISTIC).unbind(-1))

    def to_env(self, action: Tensor) -> Tensor:
        """Through tanh onto the bounds, in the space's own shape."""
        middle, half = self._line.on(action.device)
        return super().to_env(middle + half * torch.tanh(action))  # which clips: rounding

    def _log_prob(self, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        log_slope = 2 * (math.log(2) - action - functional.softplus(-2 * action))
        return super()._log_prob(mean, log_std, action) - log_slope.sum(-1) - self._log_half

    def _entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """The normal entropy plus the expected logarithm of tanh's slope; no sample, so no noise in
        the gradient.

        That logarithm is 2 log 2 - 2 log(2 cosh x), and log(2 cosh x) is the mean of ``|x + y|``
        over a logistic y of scale 1/2. With y as the mixture below and x normal, ``x + y`` is a
        mixture of normals, whose mean distance from 0 has a closed form.
        """
        share, deviation = self._mixture.on(mean.device)
        spread = (torch.exp(2 * log_std).unsqueeze(-1) + deviation.square()).sqrt()
        z = mean.unsqueeze(-1) / (spread * math.sqrt(2))
        distance = spread * math.sqrt(2 / math.pi) * (-z * z).exp() + mean.unsqueeze(-1) * z.erf()
        log_slope = 2 * (math.log(2) - (distance * share).sum(-1))
        return super()._entropy(mean, log_std) + log_slope.sum(-1) + self._log_half


_LOGISTIC = (
    (0.04972368222, 0.45031975426),
    (0.31336569103, 0.63192347837),
    (0.42835825249, 0.88552434160),
    (0.18985454238, 1.24429148448),
    (0.01869783188, 1.75209012660),
)
"""The logistic distribution of scale 1/2 as a mixture of normals around 0: shares and deviations.

Fitted by least squares, reweighted towards the largest error, to log(2 cosh x) and its slope tanh x
on 0 <= x <= 12. Both are met to 2e-6, and so are entropy and gradient, for all means and
deviations; Gauss-Hermite quadrature with 20 nodes is off by 1e-3 at a deviation of 2, by 0.17 at 7.
"""


class _Constants:
    """Tensors that are wanted where the data are; copied once to each device."""

    def __init__(self, *tensors: Tensor) -> None:
        self._by_device = {torch.device("cpu"): tensors}

    def on(self, device: torch.device) -> tuple[Tensor, ...]:
        if device not in self._by_device:
            # Whoever asks first may be in inference mode, whose tensors cannot be trained with.
            with torch.inference_mode(False):
                home = self._by_device[torch.device("cpu")]
                self._by_device[device] = tuple(tensor.to(device) for tensor in home)
        return self._by_device[device]


def _rounded_up(bound: np.ndarray) -> np.ndarray:
    """float32, and not below `bound`: rounding must not lead out of a space. A copy."""
    bound = np.asarray(bound)
    with np.errstate(over="ignore"):
        rounded = bound.astype(np.float32)
        return np.where(rounded < bound, np.nextafter(rounded, np.float32(np.inf)), rounded)
