"""What is wrong about a value that an environment of Gymnasium's API gave, in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.mask_leaf import flat_mask

_SLACK = 1e-6
"""How far a float may lie outside its bounds, relative to them: rounding."""


def obs_fault(space: spaces.Space[Any], obs: Any, where: str = "an observation") -> str | None:
    """What is wrong about an observation, or a leaf of one; None: it is in the space.

    Numbers of another width than the space's, such as float64 for float32, are no fault: a batch
    converts them; see `dtype_note`.
    """
    match space:
        case spaces.Dict():
            return _dict_fault(space, obs, where)
        case spaces.Tuple():
            if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
                size = f" of {len(obs)}" if isinstance(obs, tuple | list) else ""
                return f"{where} is a {type(obs).__name__}{size}, not a tuple of {len(space)}"
            parts = zip(space.spaces, obs, strict=True)
            faults = (obs_fault(s, o, f"{k} of {where}") for k, (s, o) in enumerate(parts))
            return next(filter(None, faults), None)
        case _:
            return _leaf_fault(space, obs, where)


def _dict_fault(space: spaces.Dict, obs: Any, where: str) -> str | None:
    if not isinstance(obs, dict):
        return f"{where} is a {type(obs).__name__}, not a dict"
    missing = [key for key in space.spaces if key not in obs]
    if missing:
        return f"{where} has no {missing[0]!r}, which is in its space"
    extra = [key for key in obs if key not in space.spaces]
    if extra:
        return f"{where} has {extra[0]!r}, which is not in its space"
    faults = (obs_fault(inner, obs[key], f"{key!r} of {where}") for key, inner in space.items())
    return next(filter(None, faults), None)


def _leaf_fault(space: spaces.Space[Any], value: Any, where: str) -> str | None:
    try:
        array = np.asarray(value)
    except Exception:
        return f"{where} is a {type(value).__name__}, which is no array"
    shape, dtype = space.shape, np.dtype(space.dtype)
    if array.dtype.kind not in "biuf":
        return f"{where} is {value!r:.60}, which is no number"
    if array.shape != shape:
        return f"{where} has shape {array.shape}; its space has shape {shape}"
    plain = isinstance(value, int | list | tuple) and array.dtype.kind in "iu"
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (plain and dtype.kind in "iu"):
        return f"{where} is {array.dtype}; its space has {dtype}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0].tolist()
        return f"{where} is {array[tuple(place)]}{_component(place)}"
    return _bounds_fault(space, array, where)


def _bounds_fault(space: Any, array: np.ndarray, where: str) -> str | None:
    match space:
        case spaces.Box():
            low, high = space.low, space.high
        case spaces.Discrete():
            low, high = np.asarray(space.start), np.asarray(space.start + space.n - 1)
        case spaces.MultiDiscrete():
            low, high = space.start, space.start + space.nvec - 1
        case _:
            low, high = np.zeros(array.shape), np.ones(array.shape)
    slack = 0.0 if array.dtype.kind != "f" else _SLACK * np.maximum(1.0, np.abs(array))
    outside = (array < low - slack) | (array > high + slack)
    if not outside.any():
        return None
    place = tuple(np.argwhere(outside)[0].tolist())
    bounds = f"[{np.asarray(low)[place]:.6g}, {np.asarray(high)[place]:.6g}]"
    return (
        f"{where} is {array[place]:.6g}{_component(place)}, outside {bounds}; widen "
        "observation_space or limit what is seen"
    )


def _component(place: Any) -> str:
    return f" at {list(place)}" if len(place) else ""


def dtype_note(space: spaces.Space[Any], obs: Any) -> str | None:
    """Which numbers have another width than the space says, in words, or None."""
    if isinstance(space, spaces.Dict):
        return next(filter(None, (dtype_note(s, obs[key]) for key, s in space.items())), None)
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, obs, strict=True)
        return next(filter(None, (dtype_note(s, o) for s, o in parts)), None)
    given = getattr(obs, "dtype", None)
    if given is None or given == space.dtype or isinstance(space, spaces.Discrete):
        return None
    return f"observations are {given} and the space says {space.dtype}: they are converted"


def reward_fault(reward: Any) -> str | None:
    """What is wrong about a reward, or None."""
    if isinstance(reward, np.ndarray) and reward.ndim:
        return f"a reward is an array of shape {reward.shape}, not a number"
    if isinstance(reward, bool | np.bool_ | int | float | np.integer | np.floating | np.ndarray):
        number = float(reward)
        return None if math.isfinite(number) else f"a reward is {number}"
    return f"a reward is {reward!r:.60}, which is no number"


def flag_fault(name: str, value: Any) -> str | None:
    """What is wrong about ``terminated`` or ``truncated``, or None."""
    if isinstance(value, bool | np.bool_):
        return None
    return f"{name} is {value!r:.60} ({type(value).__name__}); it must be True or False"


def mask_fault(space: spaces.Space[Any], mask: Any) -> str | None:
    """What is wrong about ``info["action_mask"]``, or None."""
    match space:
        case spaces.Discrete():
            sizes = [int(space.n)]
        case spaces.MultiDiscrete():
            sizes = space.nvec.ravel().tolist()
        case _:
            return None
    try:
        array = flat_mask(mask)
    except Exception:
        return f'info["action_mask"] is {mask!r:.60}, which is no array'
    if array.dtype.kind not in "biuf" or array.size != sum(sizes):
        return (
            f'info["action_mask"] has {array.size} values of {array.dtype}; {space} has '
            f"{sum(sizes)} actions"
        )
    if not np.isin(array, (0, 1)).all():
        return f'info["action_mask"] has {array[~np.isin(array, (0, 1))][0]}; only 0 and 1 may be'
    for k, part in enumerate(np.split(array, np.cumsum(sizes[:-1]))):
        if not part.any():
            which = "" if len(sizes) == 1 else f" of component {k}"
            return f'info["action_mask"] allows no action{which}; at least one must be allowed'
    return None


def image_fault(image: Any) -> str | None:
    """What is wrong about what ``render()`` gave in the mode ``rgb_array``, or None."""
    array = np.asarray(image) if not isinstance(image, type(None)) else None
    if array is None or array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        given = "None" if array is None else f"{array.dtype} of shape {array.shape}"
        return f"render() gave {given}; rgb_array means uint8 [height, width, 3]"
    return None
