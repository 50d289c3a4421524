"""One environment, played by a person."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from operant.lang.env import Env
from operant.vector.env import VecEnv


class Game:
    """An episode after the other of one environment; runs in plain Python, with nothing to compile.

    What one of the environment's functions raises is kept in `failure`, for whoever ends the game.

    Raises:
        ValueError: the actions are not Discrete, or a parameter is unknown.
    """

    def __init__(self, env: type[Env], seed: int | None, params: dict[str, Any]) -> None:
        self._batch = VecEnv(env, 1, backend="reference", seed=seed, **params)
        space = self._batch.single_action_space
        if not isinstance(space, Discrete):
            raise ValueError(
                f"a person can play environments with Discrete actions; {env.__qualname__} has "
                f"{type(space).__name__}"
            )
        self.env = env
        self.failure: Exception | None = None
        self.first_action, self.num_actions = int(space.start), int(space.n)
        self.begin()

    def begin(self) -> None:
        """A new episode."""
        self._batch.reset()
        self.score, self.steps, self.reward, self.over = 0.0, 0, 0.0, False

    @property
    def state(self) -> Any:
        """What ``render`` gets, a copy."""
        return self.env.State(*self._batch._fields(0))

    def allowed(self) -> list[bool]:
        """For each action, whether the mask allows it."""
        masks = self._batch.action_masks()
        return [True] * self.num_actions if masks is None else [bool(one) for one in masks[0]]

    def act(self, action: int) -> None:
        """Take an action, counted from 0.

        Raises:
            ValueError: the episode is over.
        """
        if self.over:
            raise ValueError("the episode is over; begin a new one")
        actions = np.array([action + self.first_action])
        _, reward, terminated, truncated, _ = self._batch.step(actions)
        self.reward = float(reward[0])
        self.score += self.reward
        self.steps += 1
        self.over = bool(terminated[0] or truncated[0])

    def picture(self) -> np.ndarray:
        """uint8 [height, width, 3]."""
        return self._batch.render_one(0)
