"""Action masks that come within observations: a Dict with an entry ``action_mask``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

KEY = "action_mask"


class MaskLeaf(NamedTuple):
    """How observations are taken apart that bring their mask."""

    whole: spaces.Space[Any]
    """The space that the environment has."""
    seen: spaces.Space[Any]
    """What a policy sees: the space without the mask. Of a Dict that has one other entry, that
    entry alone, as the ``{"observation": ..., "action_mask": ...}`` of PettingZoo's games have."""
    only: Any
    """The key of that one entry; None where there are several."""

    def split(self, obs: Any) -> tuple[Any, Any]:
        """What the policy sees of an observation, or of a batch of them, and the mask.

        Raises:
            KeyError, TypeError, IndexError: it is no dict with these entries.
        """
        mask = obs[KEY]
        if self.only is not None:
            return obs[self.only], mask
        assert isinstance(self.seen, spaces.Dict)
        return {key: obs[key] for key in self.seen.spaces}, mask


def flat_mask(mask: Any) -> np.ndarray:
    """A mask as an environment gives it, as an array of one dimension.

    That of a MultiDiscrete may be a tuple with a mask for each of its choices, as
    ``MultiDiscrete.sample`` takes it.

    Raises:
        ValueError: it has no shape.
    """
    parts = mask if isinstance(mask, tuple) else (mask,)
    return np.concatenate([np.asarray(part).reshape(-1) for part in parts])


def mask_leaf(
    observation: spaces.Space[Any], action: spaces.Space[Any], shown: bool = False
) -> MaskLeaf | None:
    """How to take observations apart; None: they bring no mask.

    An entry ``action_mask`` of a Dict is one if it has as many numbers as the action space has
    actions.

    Args:
        observation, action: the spaces of the environment.
        shown: whether the policy sees the mask as well.
    """
    size = mask_entries(action)
    if not size or not isinstance(observation, spaces.Dict) or len(observation.spaces) < 2:
        return None
    leaf = observation.spaces.get(KEY)
    if not isinstance(leaf, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        return None
    if math.prod(leaf.shape) != size:
        return None
    if shown:
        return MaskLeaf(observation, observation, None)
    rest = {key: space for key, space in observation.spaces.items() if key != KEY}
    if len(rest) == 1:
        ((only, space),) = rest.items()
        return MaskLeaf(observation, space, only)
    return MaskLeaf(observation, spaces.Dict(rest), None)


def mask_choices(space: spaces.Space[Any]) -> list[slice]:
    """Which entries of an action mask belong to each choice that an action makes, of which one at
    least must be allowed; empty: there are no masks for such actions."""
    if isinstance(space, spaces.Discrete):
        return [slice(0, int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        ends = np.cumsum(space.nvec.ravel()).tolist()
        return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
    return []


def mask_entries(space: spaces.Space[Any]) -> int:
    """How many entries an action mask of a space has; 0: it can have none."""
    choices = mask_choices(space)
    return int(choices[-1].stop) if choices else 0
