"""Episodes that finished in a rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Episodes:
    """Episodes that finished during a rollout, in order of their ends; arrays ``[K]``."""

    env_index: np.ndarray
    """int64: which environment."""
    step: np.ndarray
    """int64: at which step of the rollout it ended."""
    returns: np.ndarray
    """float32: sum of its rewards, undiscounted, as the environment gave them."""
    lengths: np.ndarray
    """int32: its steps."""
    truncated: np.ndarray
    """bool: ended by a time limit."""

    def __len__(self) -> int:
        return len(self.returns)

    def last(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the last `most` episodes, in order."""
        return self.returns[-most:], self.lengths[-most:]

    @classmethod
    def joined(cls, parts: list[tuple[np.ndarray, ...]]) -> Episodes:
        """From one tuple of arrays (in the order of the fields) for each step with endings."""
        if not parts:
            parts = [tuple(np.empty(0, kind) for kind in ("i8", "i8", "f4", "i4", "?"))]
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
