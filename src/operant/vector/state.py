"""The whole state of a batch as a plain dict of arrays, and back."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import numpy as np

from operant.compiler.spec.buffers import Buffers

COUNTERS = ("steps", "episode_return", "done", "seed", "index", "episode")
RESULTS = ("obs", "reward", "terminated", "truncated")


def _views(buffers: Buffers) -> dict[str, np.ndarray]:
    arrays = {f"state.{name}": array for name, array in buffers.state.items()}
    arrays |= {name: getattr(buffers, name) for name in (*COUNTERS, *RESULTS)}
    return {name: buffers.cut(array) for name, array in arrays.items()}


def read_state(buffers: Buffers) -> dict[str, np.ndarray]:
    """Copies of everything the future of the batch depends on, each ``[num_envs, ...]``."""
    return {name: view.copy() for name, view in _views(buffers).items()}


def write_state(buffers: Buffers, state: Mapping[str, object]) -> set[str]:
    """Put arrays of `state` in their places; the names written. All or nothing.

    Raises:
        ValueError: an unknown name, a wrong shape, or a value its dtype cannot hold.
    """
    views = _views(buffers)
    arrays = checked_state(views, state)
    for name, array in arrays.items():
        views[name][...] = array
    return set(arrays)


def checked_state(
    views: Mapping[str, np.ndarray], state: Mapping[str, object]
) -> dict[str, np.ndarray]:
    """The entries of `state` as arrays of the shapes and dtypes of `views`; copies.

    Raises:
        ValueError: an unknown name, a wrong shape, or a value its dtype cannot hold.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, value in state.items():
        if name not in views:
            near = difflib.get_close_matches(name, views, 1)
            advice = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(views)}"
            raise ValueError(f"unknown entry {name!r} in the state{advice}")
        array = np.asarray(value)
        view = views[name]
        if array.shape != view.shape:
            raise ValueError(
                f"state entry {name!r} must have shape {view.shape}, got {array.shape}"
            )
        if not np.can_cast(array.dtype, view.dtype, "same_kind"):
            raise ValueError(f"state entry {name!r} must be {view.dtype}, got {array.dtype}")
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(view.dtype)
        whole = view.dtype.kind in "iu"
        lost = arrays[name] != array if whole else np.isinf(arrays[name]) & ~np.isinf(array)
        if lost.any():
            raise ValueError(
                f"state entry {name!r} is {view.dtype}, which cannot hold {array[lost][0]}"
            )
    return arrays
