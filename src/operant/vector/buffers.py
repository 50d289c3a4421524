"""The memory of a batch of environments: one array per quantity, allocated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operant.envs.rules import NUMPY_DTYPES, Rules
from operant.lang.trace import BOOL, FLOAT, INT

LANES = 64
"""Batches are padded to a multiple of this, so that compiled loops have no remainder: an
environment's arithmetic is then the same wherever in a batch it stands."""


@dataclass(frozen=True)
class Buffers:
    """All arrays of a batch, padded to whole `LANES`; `cut` and `field` give unpadded views.

    The arrays live as long as the batch and never move, so a view taken once stays valid. Backends
    write them, `VecEnv` reads them. State fields are rows of the three ``*_state`` arrays, one row a
    field; the rest is one value (or one row) per environment:

    - ``action``: what the next step will do, validated; ``[size, lanes]``, one row a component.
    - ``obs``, ``reward``, ``terminated``, ``truncated``: what the last step returned.
    - ``done``: finished in the last step. Under NEXT_STEP and DISABLED it awaits its reset.
    - ``final_obs``: under SAME_STEP the last observation of those in ``done``.
    - ``episode_return``, ``steps``: of the running episode. ``start_us``: when it began.
    - ``report_return``, ``report_length``, ``report_time_s``: of those in ``done``, else 0.
    - ``seed``, ``index``, ``episode``: the random stream, see `operant.vector.philox`.
    """

    num_envs: int
    float_state: np.ndarray
    int_state: np.ndarray
    bool_state: np.ndarray
    action: np.ndarray
    obs: np.ndarray
    final_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    done: np.ndarray
    episode_return: np.ndarray
    steps: np.ndarray
    start_us: np.ndarray
    report_return: np.ndarray
    report_length: np.ndarray
    report_time_s: np.ndarray
    seed: np.ndarray
    index: np.ndarray
    episode: np.ndarray

    @classmethod
    def allocate(cls, rules: Rules, num_envs: int) -> Buffers:
        """Zeroed buffers for `num_envs` environments."""
        lanes = -(-num_envs // LANES) * LANES
        kinds = list(rules.fields.values())
        obs_dtype = np.float32 if rules.observation.dtype == FLOAT else np.int64
        obs_shape = (lanes, *rules.observation.shape)
        return cls(
            num_envs=num_envs,
            float_state=np.zeros((kinds.count(FLOAT), lanes), np.float32),
            int_state=np.zeros((kinds.count(INT), lanes), np.int32),
            bool_state=np.zeros((kinds.count(BOOL), lanes), np.bool_),
            action=np.zeros((rules.action.size, lanes), NUMPY_DTYPES[rules.action.dtype]),
            obs=np.zeros(obs_shape, obs_dtype),
            final_obs=np.zeros(obs_shape, obs_dtype),
            reward=np.zeros(lanes, np.float32),
            terminated=np.zeros(lanes, np.bool_),
            truncated=np.zeros(lanes, np.bool_),
            done=np.zeros(lanes, np.bool_),
            episode_return=np.zeros(lanes, np.float32),
            steps=np.zeros(lanes, np.int32),
            start_us=np.zeros(lanes, np.int64),
            report_return=np.zeros(lanes, np.float32),
            report_length=np.zeros(lanes, np.int32),
            report_time_s=np.zeros(lanes, np.float32),
            seed=np.zeros(lanes, np.uint64),
            index=np.zeros(lanes, np.uint32),
            episode=np.zeros(lanes, np.uint32),
        )

    @property
    def lanes(self) -> int:
        """Allocated environments: `num_envs` rounded up."""
        return len(self.reward)

    def cut(self, name: str) -> np.ndarray:
        """The named array without its padding: a contiguous view ``[num_envs, ...]``."""
        array: np.ndarray = getattr(self, name)
        return array[: self.num_envs]

    def field(self, rules: Rules, name: str) -> np.ndarray:
        """One state field without its padding: a contiguous view ``[num_envs]``."""
        array, row = self.field_row(rules, name)
        return array[row, : self.num_envs]

    def field_row(self, rules: Rules, name: str) -> tuple[np.ndarray, int]:
        """The array that holds a state field, and its row there."""
        kind = rules.fields[name]
        same_kind = [field for field, dtype in rules.fields.items() if dtype == kind]
        array: Any = getattr(self, f"{kind}_state")
        return array, same_kind.index(name)
