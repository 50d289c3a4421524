"""One environment behind Gymnasium's single-environment API, for `gymnasium.make`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from operant.lang.env import Env
from operant.vector.env import VecEnv
from operant.vector.parameters import is_parameter


class SingleEnv(gymnasium.Env[Any, Any]):
    """A batch of one that hides the batch. The time limit is Gymnasium's ``TimeLimit`` wrapper.

    For tools that know nothing else; for speed use a batch. Parameters are attributes, see
    `BaseVecEnv`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, env: type[Env], render_mode: str | None = None, **options: Any) -> None:
        self.env_class = env
        self._batch = VecEnv(
            env,
            1,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
            max_episode_steps=2**31 - 1,
            **options,
        )
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": env.render_fps}

    if not TYPE_CHECKING:  # else every attribute would be known to it

        def __getattr__(self, name: str) -> Any:
            if "_batch" in vars(self) and is_parameter(self._batch, name):
                return getattr(self._batch, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            batch = vars(self).get("_batch")
            if batch is not None and is_parameter(batch, name) and not hasattr(type(self), name):
                setattr(batch, name, value)
            else:
                super().__setattr__(name, value)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        obs, info = self._batch.reset(seed=seed, options=options)
        return obs[0], info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step. Raises ValueError after the end of an episode, until ``reset``."""
        obs, reward, terminated, _, _ = self._batch.step(np.asarray(action)[None])
        return obs[0], float(reward[0]), bool(terminated[0]), False, {}

    def action_masks(self) -> np.ndarray | None:
        """Which actions are allowed now, bool ``[mask_size]``; None without a mask."""
        masks = self._batch.action_masks()
        return None if masks is None else masks[0]

    def render(self) -> Any:
        """A picture, uint8 ``[height, width, 3]``; None without a render mode, and a warning."""
        if self.render_mode is None:
            self._batch.render()  # warns
            return None
        return self._batch.render_one(0)

    def close(self) -> None:
        """Release the batch."""
        self._batch.close()
