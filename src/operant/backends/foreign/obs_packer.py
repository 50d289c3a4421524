"""Observations that an environment gives, written to rows of memory, or refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.mask_leaf import MaskLeaf
from operant.spaces.rows import Leaf, ObsLayout


class MisfitError(Exception):
    """An observation that its space does not have, in words."""


def obs_packer(layout: ObsLayout, leaf: MaskLeaf | None) -> Callable[[Any, np.ndarray], None]:
    """A function that writes an observation to a row, or raises `MisfitError`.

    Args:
        layout: of what a policy sees of it.
        leaf: how observations are taken apart that bring their mask.
    """
    pack = _tree_packer(layout) if layout.is_tree else _array_packer(layout)
    only = None if leaf is None else leaf.only
    if only is None:  # a mask beside several others is no leaf of the layout, and so left out
        return pack

    def pack_entry(obs: Any, row: np.ndarray) -> None:
        try:
            entry = obs[only]
        except (KeyError, IndexError, TypeError):
            raise MisfitError(
                f"an observation without {only!r}, which is in its space: {kind(obs)}"
            ) from None
        pack(entry, row)

    return pack_entry


def _array_packer(layout: ObsLayout) -> Callable[[Any, np.ndarray], None]:
    (leaf,) = layout.leaves
    shape, dtype = leaf.shape, leaf.dtype

    def pack_array(obs: Any, row: np.ndarray) -> None:
        if type(obs) is not np.ndarray or obs.shape != shape or obs.dtype != dtype:
            obs = _checked(leaf, obs, "an observation")
        row[...] = obs

    return pack_array


def _tree_packer(layout: ObsLayout) -> Callable[[Any, np.ndarray], None]:
    def pack_tree(obs: Any, row: np.ndarray) -> None:
        # A row is split anew for each observation: kept views would save little, the checks cost.
        views = layout.views(row)
        for leaf in layout.leaves:
            try:
                part = leaf.of(obs)
            except (KeyError, IndexError, TypeError):
                raise MisfitError(
                    f"an observation without {leaf.path!r}, which is in its space: {kind(obs)}"
                ) from None
            views[leaf.path][...] = _checked(leaf, part, f"{leaf.path!r} of an observation")

    return pack_tree


def _checked(leaf: Leaf, value: Any, what: str) -> Any:
    if isinstance(leaf.space, spaces.Discrete) and type(value) is int:
        return value
    try:
        array = np.asarray(value)
    except Exception:
        raise MisfitError(f"{what} that is no array: {kind(value)}") from None
    if array.shape != leaf.shape:
        raise MisfitError(f"{what} of shape {array.shape}; its space has shape {leaf.shape}")
    if np.can_cast(array.dtype, leaf.dtype):
        return array
    narrower = np.can_cast(array.dtype, leaf.dtype, "same_kind")
    if leaf.dtype.kind in "iu" and array.dtype.kind in "iu":
        # Python's numbers have no dtype of their own: what matters is whether they fit.
        if (narrower or isinstance(value, int | list | tuple)) and _holds(leaf.dtype, array):
            return array
        if narrower:
            raise MisfitError(
                f"{what} with numbers that {leaf.dtype}, which its space has, cannot hold"
            )
    elif narrower:
        return array
    raise MisfitError(f"{what} of dtype {array.dtype}; its space has {leaf.dtype}")


def _holds(dtype: np.dtype[Any], array: np.ndarray) -> bool:
    """Whether integers keep their values in another dtype."""
    limits = np.iinfo(dtype)
    return bool(array.size == 0 or limits.min <= array.min() <= array.max() <= limits.max)


def kind(value: Any) -> str:
    """What something is, in words."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'nothing'}"
    return type(value).__name__
