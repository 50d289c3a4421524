"""`ICM`: the intrinsic curiosity module (Pathak et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from operant.models.action_numbers import ActionNumbers
from operant.models.bonus import Bonus, Setting, Transitions, flat, in_parts
from operant.models.features import Features, Inputs, mean_square, part_size
from operant.models.layers import linear, mlp


class ICM(Bonus):
    """How badly the features of the next observation are predicted from those of this one and the
    action. The features are what helps to tell, of two observations, which action led from one to
    the other: what actions have no influence on is not in them.

    One encoder for both observations. Choices are told apart by cross-entropy, numbers of a Box by
    the squared error.

    Args:
        hidden: sizes of the encoder's hidden layers; the two models have one layer of as many
            neurons as the last.
        features: numbers of a feature vector.
        beta: weight of the forward model's loss, 0 to 1; the inverse model's has the rest.
        random_steps: environment steps of a random policy before training, for the statistics of
            observations.

    Raises:
        ValueError: no features, or a weight beyond 0 to 1.
    """

    name = "icm"
    figures = ("loss", "forward_loss", "inverse_loss")

    def __init__(
        self,
        hidden: Sequence[int] = (64, 64),
        features: int = 64,
        beta: float = 0.2,
        random_steps: int = 4096,
    ) -> None:
        super().__init__()
        if features < 1:
            raise ValueError(f"features must be at least 1, got {features}")
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be 0 to 1, got {beta}")
        self.hidden, self.features, self.beta = tuple(hidden), features, beta
        self.random_steps = random_steps

    def build(self, setting: Setting) -> None:
        """See `Bonus`."""
        self.inputs = Inputs(setting.layout, setting.encoders)
        self.numbers = ActionNumbers(setting.distribution)
        self.encoder = Features(setting, self.hidden, self.features)
        width = self.hidden[-1] if self.hidden else self.features
        self.inverse = _model(2 * self.features, width, self.numbers.size)
        self.forward_model = _model(self.features + self.numbers.size, width, self.features)
        self._part = part_size(self.encoder)

    def observe(self, obs: Any) -> None:
        """See `Bonus`."""
        self.inputs.update(obs)

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        """Half the squared error of the forward model, a mean over the features."""
        flattened = (flat(obs), action.flatten(0, 1), flat(next_obs))
        found = in_parts(self._surprise, self._part, *flattened)
        return found.view(action.shape[:2])

    def loss(self, batch: Transitions) -> dict[str, Tensor]:
        """Those of both models, and their weighted sum; all ``[B]``."""
        now, following = self._both(batch.obs, batch.next_obs)
        guess = self.inverse(torch.cat([now, following], -1))
        inverse = self.numbers.loss(guess, batch.action)
        forward = self._error(now, batch.action, following)
        total = (1 - self.beta) * inverse + self.beta * forward
        return {"loss": total, "forward_loss": forward, "inverse_loss": inverse}

    def _surprise(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        now, following = self._both(obs, next_obs)
        return self._error(now, action, following)

    def _both(self, obs: Any, next_obs: Any) -> tuple[Tensor, Tensor]:
        """Features of both observations."""
        return self.encoder(self.inputs(obs)), self.encoder(self.inputs(next_obs))

    def _error(self, now: Tensor, action: Tensor, following: Tensor) -> Tensor:
        predicted = self.forward_model(torch.cat([now, self.numbers(action)], -1))
        return 0.5 * mean_square(predicted - following)


def _model(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return mlp(inputs, (width,), nn.ReLU).append(linear(width, outputs, 1.0))
