"""`Steps`: the results of several steps of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Steps(NamedTuple):
    """Several steps of a batch, each array ``[steps, num_envs, ...]``.

    `episode_return`, `episode_length` and `episode_time_s` are those of episodes that ended in a
    step, else 0; `final_obs` is, in SAME_STEP mode, the last observation of those.
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray
    episode_time_s: np.ndarray
    final_obs: np.ndarray

    @classmethod
    def allocate(cls, obs: np.ndarray, shape: tuple[int, int]) -> Steps:
        """Zeroed memory for ``shape`` steps and environments with observations like `obs`."""
        wide = (*shape, *obs.shape[1:])
        return cls(
            obs=np.zeros(wide, obs.dtype),
            reward=np.zeros(shape, np.float32),
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            episode_return=np.zeros(shape, np.float32),
            episode_length=np.zeros(shape, np.int32),
            episode_time_s=np.zeros(shape, np.float32),
            final_obs=np.zeros(wide, obs.dtype),
        )
