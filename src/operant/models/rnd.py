"""`RND`: random network distillation (Burda et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from operant.models.bonus import Bonus, Setting, Transitions, flat, in_parts
from operant.models.features import Features, Inputs, mean_square, part_size


class RND(Bonus):
    """How badly a trained network predicts what a random one says of the next observation: well
    where it has been often.

    Observations are normalised by running statistics, which begin with those of random steps; the
    bonus is divided by the running deviation of its discounted sums. Encoders are those of the
    policy.

    Args:
        hidden: sizes of the random network's hidden layers; the trained one has one more.
        features: numbers that are predicted.
        random_steps: environment steps of a random policy before training.

    Raises:
        ValueError: no features.
    """

    name = "rnd"

    def __init__(
        self, hidden: Sequence[int] = (64, 64), features: int = 64, random_steps: int = 4096
    ) -> None:
        super().__init__()
        if features < 1:
            raise ValueError(f"features must be at least 1, got {features}")
        self.hidden, self.features = tuple(hidden), features
        self.random_steps = random_steps

    def build(self, setting: Setting) -> None:
        """See `Bonus`."""
        self.inputs = Inputs(setting.layout, setting.encoders)
        self.target = Features(setting, self.hidden, self.features).requires_grad_(False)
        wider = (*self.hidden, self.hidden[-1] if self.hidden else self.features)
        self.predictor = Features(setting, wider, self.features)
        self._part = part_size(self.predictor)

    def observe(self, obs: Any) -> None:
        """See `Bonus`."""
        self.inputs.update(obs)

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        """The squared error of the prediction, a mean over the features."""
        found = in_parts(self.error, self._part, flat(next_obs))
        return found.view(action.shape[:2])

    def loss(self, batch: Transitions) -> Tensor:
        """The same, of the samples that are trained on."""
        return self.error(batch.next_obs)

    def error(self, obs: Any) -> Tensor:
        """The squared error ``[B]`` of observations ``[B, *shape]``."""
        x = self.inputs(obs)
        return mean_square(self.predictor(x) - self.target(x))
