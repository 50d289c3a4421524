"""Whether observations in memory are NaN, or numbers that a policy cannot look up, at a price that
every step can pay."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from operant.spaces.rows import Leaf, ObsLayout


class _Bounds(NamedTuple):
    """The values that a leaf may have."""

    leaf: Leaf
    view: np.ndarray
    low: Any
    high: Any


class ObsCheck:
    """Looks for NaN in rows of observations, and for integers outside of their space.

    Integers are looked at where an encoder may use them as an index: Discrete, MultiDiscrete,
    MultiBinary, and Boxes with two dimensions and more, which may be grids of codes. One too many
    there reads another value's weights, and on a GPU ends the process.

    Args:
        layout: of the observations.
        rows: memory ``[K, *layout.shape]``, contiguous; what it holds at each call is looked at.
    """

    def __init__(self, layout: ObsLayout, rows: np.ndarray) -> None:
        views = layout.views(rows)
        floats = [leaf for leaf in layout.leaves if leaf.dtype.kind == "f"]
        self._floats = {leaf.path: views[leaf.path] for leaf in floats}
        # The greatest of numbers with NaN among them is NaN; one call instead of two.
        plain = bool(floats) and not layout.is_tree and rows.size > 0
        self._flat = rows.reshape(-1) if plain else None
        self._size = math.prod(layout.shape)
        self._bounded = [
            _Bounds(leaf, views[leaf.path], *bounds)
            for leaf in layout.leaves
            if (bounds := _index_bounds(leaf)) is not None
        ]

    def found(self, first: int, end: int) -> int | None:
        """The first bad row from `first` up to `end`, one or more; None: there is none."""
        if self._flat is not None:
            greatest = np.maximum.reduce(self._flat[first * self._size : end * self._size])
            if greatest == greatest:
                return None
        for view in self._floats.values():
            bad = np.isnan(view[first:end])
            if bad.any():
                return first + int(np.argwhere(bad)[0][0])
        for _, view, low, high in self._bounded:
            part = view[first:end]
            bad = (part < low) | (part > high)
            if bad.any():
                return first + int(np.argwhere(bad)[0][0])
        return None

    def where(self, row: int) -> str:
        """In words: which leaf and component of a row is bad, and how."""
        for path, view in self._floats.items():
            bad = np.argwhere(np.isnan(view[row]))
            if len(bad):
                return f"{_leaf(path)}an observation that is NaN{_place(bad[0])}"
        for leaf, view, low, high in self._bounded:
            value = view[row]
            bad = np.argwhere((value < low) | (value > high))
            if len(bad):
                shown = value[tuple(bad[0])]
                return (
                    f"{_leaf(leaf.path)}an observation that is {shown}{_place(bad[0])}, which is "
                    f"not in its space {leaf.space}"
                )
        return "an observation that is NaN"


def _index_bounds(leaf: Leaf) -> tuple[Any, Any] | None:
    """The least and greatest values of a leaf that an encoder may use as an index; None: any."""
    space: Any = leaf.space
    match space:
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return 0, 1
        case spaces.Box() if leaf.dtype.kind in "iu" and len(leaf.shape) > 1:
            limits = np.iinfo(leaf.dtype)
            if (space.low > limits.min).any() or (space.high < limits.max).any():
                return space.low, space.high
    return None


def _leaf(path: str) -> str:
    return f"{path!r} of " if path else ""


def _place(place: np.ndarray) -> str:
    return f" at {place.tolist()}" if place.size else ""
