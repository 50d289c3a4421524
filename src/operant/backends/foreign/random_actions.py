"""Random actions for one environment, allowed ones where it says which are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium import spaces


class RandomActions:
    """Actions of a space: ``actions(info)`` gives the next one.

    Args:
        space: of the actions; the environment's own is left as it is.
        seed: of the random numbers.
    """

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)

    def __call__(self, info: Any) -> Any:
        """An action that ``info["action_mask"]`` allows; any where there is no such mask, or one
        that does not fit."""
        space: Any = self._space
        mask = info.get("action_mask") if isinstance(info, dict) else None
        if mask is None:
            return space.sample()
        try:
            bits = np.asarray(mask).ravel().astype(np.int8)
            if isinstance(space, spaces.MultiDiscrete):
                return space.sample(tuple(np.split(bits, np.cumsum(space.nvec[:-1]))))
            return space.sample(bits)
        except (AssertionError, TypeError, ValueError):
            return space.sample()
