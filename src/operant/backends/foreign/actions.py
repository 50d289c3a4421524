"""From rows of memory to the actions that an environment's ``step`` is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.rows import ObsLayout

Reader = Callable[[np.ndarray], Any]


def action_reader(layout: ObsLayout) -> Reader:
    """A function of one row of memory that gives the action, of the type that ``sample()`` of the
    space gives. Never a view: an environment may keep its actions."""
    space = layout.space
    if not layout.is_tree:
        return _scalar if layout.shape == () else np.ndarray.copy
    return lambda row: _tree(space, iter(layout.views(row).values()))


def _scalar(row: np.ndarray) -> Any:
    return row[()]


def _tree(space: spaces.Space[Any], leaves: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _tree(inner, leaves) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(inner, leaves) for inner in space.spaces)
    leaf = next(leaves)
    return leaf[()] if space.shape == () else leaf.copy()


def nested(layout: ObsLayout, rows: np.ndarray) -> Any:
    """Rows of memory ``[B, *shape]`` as Gymnasium's batched spaces have them: an array, or dicts
    and tuples of arrays ``[B, ...]``; copies."""
    if not layout.is_tree:
        return rows.copy()
    return _batched(layout.space, iter(layout.views(rows).values()))


def _batched(space: spaces.Space[Any], leaves: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _batched(inner, leaves) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_batched(inner, leaves) for inner in space.spaces)
    return next(leaves).copy()


def packed_actions(layout: ObsLayout, actions: Any, out: np.ndarray) -> None:
    """Write actions of all environments to `out`, ``[num_envs, *shape]``.

    Args:
        layout: of the action space.
        actions: ``[num_envs, ...]``; of Dict and Tuple spaces dicts and tuples of such, or rows of
            memory.
        out: where to.

    Raises:
        TypeError: numbers of another kind, such as floats for a Discrete space.
        ValueError: another shape.
    """
    if layout.is_tree and not isinstance(actions, np.ndarray):
        for leaf, view in zip(layout.leaves, layout.views(out).values(), strict=True):
            try:
                part = leaf.of(actions)
            except (KeyError, IndexError, TypeError):
                raise ValueError(
                    f"actions must be of {layout.space}, with {leaf.path!r} for all environments"
                ) from None
            _write(part, view, f"{leaf.path!r} of the actions", leaf.space)
        return
    _write(actions, out, "actions", layout.space)


def _write(given: Any, out: np.ndarray, what: str, space: spaces.Space[Any]) -> None:
    try:
        array = np.asarray(given)
    except Exception as error:
        raise TypeError(f"{what} must be an array of shape {out.shape}: {error}") from None
    if array.shape != out.shape:
        raise ValueError(
            f"{what} must have shape {out.shape}: one of {space} for each of {len(out)} "
            f"environments; got shape {array.shape}"
        )
    if array.dtype != out.dtype and not _fits(array.dtype, out.dtype):
        kind = "floats" if out.dtype.kind == "f" else "integers"
        raise TypeError(f"{what} of {space} must be {kind}, got {array.dtype}")
    out[...] = array


def _fits(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if wanted.kind in "iu":
        return given.kind in "iub"
    return np.can_cast(given, wanted, "same_kind")
