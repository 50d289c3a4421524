"""What training knows of finished episodes and of evaluations, whoever makes them."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Episodes(Protocol):
    """Episodes that finished during a rollout, in order of their ends; arrays ``[K]``."""

    @property
    def env_index(self) -> np.ndarray:
        """int64: which environment."""

    @property
    def step(self) -> np.ndarray:
        """int64: at which step of the rollout it ended."""

    @property
    def returns(self) -> np.ndarray:
        """float32: sum of its rewards, undiscounted, as the environment gave them."""

    @property
    def lengths(self) -> np.ndarray:
        """int32: its steps."""

    @property
    def truncated(self) -> np.ndarray:
        """bool: ended by a time limit."""

    def __len__(self) -> int: ...

    def last(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the last `most` episodes, in order."""


class Evaluation(Protocol):
    """What an agent reached in whole episodes."""

    @property
    def returns(self) -> np.ndarray:
        """float32 ``[episodes]``."""

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""

    @property
    def std_return(self) -> float:
        """Standard deviation over the episodes."""


class Evaluated(Protocol):
    """The same episodes played twice: with the most probable actions, and with sampled ones."""

    @property
    def greedy(self) -> Evaluation:
        """With the most probable actions."""

    @property
    def sampled(self) -> Evaluation:
        """With sampled actions."""
