"""Whether observations in memory are NaN, at a price that every step can pay."""

from __future__ import annotations

import math

import numpy as np

from operant.spaces.rows import ObsLayout


class NanCheck:
    """Looks for NaN in rows of observations.

    Args:
        layout: of the observations.
        rows: memory ``[K, *layout.shape]``, contiguous; what it holds at each call is looked at.
    """

    def __init__(self, layout: ObsLayout, rows: np.ndarray) -> None:
        floats = [leaf for leaf in layout.leaves if leaf.dtype.kind == "f"]
        self._leaves = {leaf.path: layout.views(rows)[leaf.path] for leaf in floats}
        # The greatest of numbers with NaN among them is NaN; one call instead of two.
        plain = bool(floats) and not layout.is_tree and rows.size > 0
        self._flat = rows.reshape(-1) if plain else None
        self._size = math.prod(layout.shape)

    def found(self, first: int, end: int) -> int | None:
        """The first row with a NaN from `first` up to `end`, one or more; None: there is none."""
        if self._flat is not None:
            greatest = np.maximum.reduce(self._flat[first * self._size : end * self._size])
            if greatest == greatest:
                return None
        for view in self._leaves.values():
            bad = np.isnan(view[first:end])
            if bad.any():
                return first + int(np.argwhere(bad)[0][0])
        return None

    def where(self, row: int) -> str:
        """In words: which leaf and component of a row is NaN."""
        for path, view in self._leaves.items():
            bad = np.argwhere(np.isnan(view[row]))
            if len(bad):
                leaf = f"{path!r} of " if path else ""
                place = f" at {bad[0].tolist()}" if bad[0].size else ""
                return f"{leaf}an observation that is NaN{place}"
        return "an observation that is NaN"
