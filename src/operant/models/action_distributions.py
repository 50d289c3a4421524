"""The distribution that an action space has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.models.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from operant.models.joint import Joint
from operant.spaces.rows import ObsLayout

_MOST_CHOICES = 1 << 16
"""Logits for one number of a Box of integers."""


def distribution_for(space: spaces.Space[Any], squash: bool = False) -> Distribution:
    """The distribution over an action space: `Categorical` for Discrete, `MultiCategorical` for
    MultiDiscrete, MultiBinary and Boxes of integers, `Gaussian` or `SquashedGaussian` for Boxes of
    floats, and for Dict and Tuple `Joint`, one of these for each leaf.

    Args:
        space: one of these.
        squash: for Boxes of floats: tanh onto the bounds instead of clipping at them.

    Raises:
        ValueError: a space no policy here can act in, or one that cannot be squashed.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _joint(space, squash)
    if squash and not _is_continuous(space):
        raise ValueError(f"squash is for Box actions, not {space}")
    return _of_leaf(space, squash)


def _joint(space: spaces.Space[Any], squash: bool) -> Joint:
    try:
        layout = ObsLayout.of(space)
    except ValueError as error:
        raise ValueError(f"no policy for the action space {space}: {error}") from None
    if squash and not any(_is_continuous(leaf.space) for leaf in layout.leaves):
        raise ValueError(f"squash is for Box actions, not {space}")
    parts = [_of_leaf(leaf.space, squash and _is_continuous(leaf.space)) for leaf in layout.leaves]
    return Joint(layout, parts)


def _of_leaf(space: spaces.Space[Any], squash: bool) -> Distribution:
    if math.prod(space.shape or ()) == 0:
        raise ValueError(f"the action space {space} has nothing to choose")
    if _is_continuous(space):
        assert isinstance(space, spaces.Box)
        return (SquashedGaussian if squash else Gaussian)(space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        sizes, start = space.nvec.flatten().tolist(), space.start.flatten().tolist()
        return MultiCategorical(sizes, start, space.nvec.shape)
    if isinstance(space, spaces.MultiBinary):
        return MultiCategorical([2] * math.prod(space.shape), env_shape=space.shape)
    if isinstance(space, spaces.Box):
        return _of_integers(space)
    raise ValueError(
        f"no policy for the action space {space}; known are Discrete, MultiDiscrete, MultiBinary "
        "and Box, and Dict and Tuple of them"
    )


def _is_continuous(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def _of_integers(space: spaces.Box) -> MultiCategorical:
    low = [int(x) for x in space.low.flatten()]  # Python's: a difference may not fit
    sizes = [int(x) - least + 1 for x, least in zip(space.high.flatten(), low, strict=True)]
    if max(sizes) > _MOST_CHOICES:
        raise ValueError(
            f"the action space {space} has {max(sizes)} values for one number, and a policy has a "
            f"logit for each, {_MOST_CHOICES} at most; give it narrower bounds, or make it a Box "
            "of floats"
        )
    return MultiCategorical(sizes, low, space.shape)
