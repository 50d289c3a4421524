"""How the values of a space are laid out in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.compiler.env_functions import part_place
from operant.compiler.recording.trace import FLOAT, INT
from operant.lang.advice import LanguageError


@dataclass(frozen=True)
class Layout:
    """How a space's values are laid out in a batch buffer of shape ``[num_envs, *shape]``.

    `dtype` is "float" or "int". `scalar` says that one bare number stands for a value, not a tuple.
    For integer actions the component k must lie in ``low[k] <= value < high[k]``.
    """

    space: spaces.Space[Any]
    dtype: str
    shape: tuple[int, ...]
    scalar: bool
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return math.prod(self.shape)

    @property
    def choices(self) -> tuple[int, ...]:
        """How many values each component of an integer action can take."""
        return tuple(high - low for low, high in zip(self.low, self.high, strict=True))


def space_of(env: type[Any], attribute: str, params: Any) -> spaces.Space[Any]:
    """The environment's observation or action space at these parameters."""
    space = getattr(env, attribute)
    if isinstance(space, type):  # Discrete for Discrete(2)
        space = f"the class {space.__name__}"
    elif not isinstance(space, spaces.Space) and callable(space):
        space = space(params)
    if not isinstance(space, spaces.Space):
        got = "a property" if isinstance(space, property) else space
        form = "Box(-1.0, 1.0, (2,))" if attribute == "observation_space" else "Discrete(2)"
        form = f"Discrete({space})" if isinstance(space, int) else form
        raise LanguageError(
            f"{part_place(env, attribute)}{env.__qualname__}.{attribute} must be a gymnasium "
            f"space, or a function of the parameters that returns one, got {got}; write "
            f"{attribute} = {form}"
        )
    return space


def observation_layout(space: spaces.Space[Any], env: type[Any]) -> Layout:
    """The layout of an observation space: Box of float32, Discrete or MultiDiscrete."""
    match space:
        case spaces.Box(dtype=np.float32):
            return Layout(space, FLOAT, space.shape, scalar=space.shape == ())
        case spaces.Discrete():
            return Layout(space, INT, (), scalar=True)
        case spaces.MultiDiscrete():
            return Layout(space, INT, space.shape, scalar=False)
    raise LanguageError(
        f"{part_place(env, 'observation_space')}{env.__qualname__}.observation_space must be a "
        f"float32 Box, a Discrete or a MultiDiscrete, got {space}; {_instead(space)}"
    )


def action_layout(space: spaces.Space[Any], env: type[Any]) -> Layout:
    """The layout of an action space: Discrete, MultiDiscrete, MultiBinary or a Box of float32."""
    match space:
        case spaces.Discrete():
            low = int(space.start)
            return Layout(space, INT, (), True, (low,), (low + int(space.n),))
        case spaces.MultiDiscrete():
            lows = tuple(int(v) for v in np.ravel(space.start))
            sizes = [int(n) for n in np.ravel(space.nvec)]
            highs = tuple(low + n for low, n in zip(lows, sizes, strict=True))
            return Layout(space, INT, space.shape, False, lows, highs)
        case spaces.MultiBinary():
            size = math.prod(space.shape)
            return Layout(space, INT, space.shape, False, (0,) * size, (2,) * size)
        case spaces.Box(dtype=np.float32):
            return Layout(space, FLOAT, space.shape, scalar=space.shape == ())
    raise LanguageError(
        f"{part_place(env, 'action_space')}{env.__qualname__}.action_space must be a Discrete, "
        f"MultiDiscrete, MultiBinary or float32 Box, got {space}; {_instead(space)}"
    )


def _instead(space: spaces.Space[Any]) -> str:
    """What to write for a space that is not supported."""
    match space:
        case spaces.Box():
            return "write Box(low, high, shape, np.float32)"
        case spaces.MultiBinary():
            return f"write MultiDiscrete([2] * {math.prod(space.shape)})"
        case spaces.Dict() | spaces.Tuple():
            return (
                "put the numbers side by side, in one Box(low, high, (n,)) or one "
                "MultiDiscrete([...])"
            )
    return "put the numbers side by side, in one Box(low, high, (n,))"
