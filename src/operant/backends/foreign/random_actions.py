"""Random actions for one environment, allowed ones where it says which are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.mask_leaf import KEY, flat_mask


class RandomActions:
    """Actions of a space: ``actions(info, obs)`` gives the next one.

    Args:
        space: of the actions; the environment's own is left as it is.
        seed: of the random numbers.
    """

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)

    def __call__(self, *told: Any) -> Any:
        """An action that the mask allows, the first ``action_mask`` among what an environment told:
        its info, its observation; any where there is none, or one that does not fit."""
        space: Any = self._space
        mask = next((part[KEY] for part in told if isinstance(part, dict) and KEY in part), None)
        if mask is None:
            return space.sample()
        try:
            bits = flat_mask(mask).astype(np.int8)
            if isinstance(space, spaces.MultiDiscrete):
                return space.sample(tuple(np.split(bits, np.cumsum(space.nvec[:-1]))))
            return space.sample(bits)
        except (AssertionError, TypeError, ValueError):
            return space.sample()
