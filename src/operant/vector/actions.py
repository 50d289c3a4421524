"""What a caller may pass as actions, and the sentences for what it may not."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.compiler.recording.trace import INT
from operant.compiler.spec.layouts import Layout


def fast_dtypes(layout: Layout) -> tuple[np.dtype[Any], ...]:
    """Dtypes that go to the backend as they are."""
    if layout.dtype == INT:
        return (np.dtype(np.int64), np.dtype(np.int32))
    return (np.dtype(np.float32),)


def as_actions(actions: Any, layout: Layout, num_envs: int) -> np.ndarray:
    """`actions` as a contiguous array ``[num_envs, *shape]`` of a kind the backends accept.

    Takes anything NumPy can wrap: arrays of any strides, lists, CPU tensors. A contiguous array of
    the right kind is returned as it is.

    Raises:
        TypeError: numbers of the wrong kind, such as floats for a Discrete space.
        ValueError: the wrong shape.
    """
    shape = (num_envs, *layout.shape)
    try:
        array = np.asarray(actions)
    except Exception as error:
        raise TypeError(
            f"actions must be an array of shape {shape}, got {type(actions).__name__}: {error}"
        ) from None
    if array.shape != shape:
        raise ValueError(
            f"actions must have shape {shape}: one {layout.space} for each of {num_envs} "
            f"environments; got shape {array.shape}"
        )
    if layout.dtype == INT:
        if array.dtype.kind not in "iu":
            raise TypeError(f"actions of {layout.space} must be integers, got {array.dtype}")
        if array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any():
            raise ValueError(bad_action_message(array, layout))  # would wrap to a negative number
        return np.ascontiguousarray(array, np.int64)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"actions of {layout.space} must be floats, got {array.dtype}")
    with np.errstate(over="ignore"):  # becomes infinity, which is refused like any other
        return np.ascontiguousarray(array, np.float32)


def bad_action_message(actions: np.ndarray, layout: Layout) -> str:
    """Which action was refused and what is allowed."""
    rows = actions.reshape(len(actions), layout.size)
    if layout.dtype == INT:
        bad = (rows < np.array(layout.low)) | (rows >= np.array(layout.high))
        wanted = f"an action of {layout.space}"
    else:
        bad = ~np.isfinite(rows)
        wanted = "finite numbers"
    env = int(np.flatnonzero(bad.any(axis=1))[0])
    value = rows[env, 0] if layout.scalar else rows[env].tolist()
    return f"action {value} of environment {env} is not allowed; expected {wanted}"
