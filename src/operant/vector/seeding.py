"""From what a caller passes as ``seed`` to the random stream of each environment."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from operant.compiler.spec.buffers import Buffers


def checked_seed(seed: Any) -> int:
    """`seed` as an int in 0 .. 2**64 - 1."""
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an int, got {type(seed).__name__} {seed!r}")
    if not 0 <= int(seed) < 2**64:
        raise ValueError(f"seed must be between 0 and 2**64 - 1, got {seed}")
    return int(seed)


def checked_first(first_env: Any) -> int:
    """`first_env` as an int in 0 .. 2**30."""
    if isinstance(first_env, bool) or not isinstance(first_env, int | np.integer):
        raise TypeError(f"first_env must be an int, got {type(first_env).__name__} {first_env!r}")
    if not 0 <= int(first_env) <= 2**30:
        raise ValueError(f"first_env must be between 0 and 2**30, got {first_env}")
    return int(first_env)


def fresh_seed() -> int:
    """A seed nobody chose, small enough to note down."""
    return secrets.randbits(32)


def assign_streams(buffers: Buffers, seed: Any, mask: np.ndarray, first_env: int = 0) -> None:
    """Give the environments of `mask`, bool ``[num_envs]``, the streams that `seed` names.

    An int seeds the whole batch: environment i draws from stream (seed, `first_env` + i), as if so
    many were in front of it. A sequence holds a seed for each environment, which then draws from
    stream (its seed, 0), or None to leave it alone.
    Nothing changes if any seed is refused.
    """
    lanes = np.flatnonzero(mask)
    seed = seed.tolist() if isinstance(seed, np.ndarray) else seed
    if isinstance(seed, Sequence) and not isinstance(seed, str | bytes):
        if len(seed) != buffers.num_envs:
            raise ValueError(
                f"seed must be one int or one for each of {buffers.num_envs} environments, "
                f"got {len(seed)}"
            )
        chosen = [(i, checked_seed(seed[i])) for i in lanes.tolist() if seed[i] is not None]
        lanes = np.array([i for i, _ in chosen], np.intp)
        buffers.seed[lanes] = np.array([s for _, s in chosen], np.uint64)
        buffers.index[lanes] = 0
    else:
        buffers.seed[lanes] = np.uint64(checked_seed(seed))
        buffers.index[lanes] = first_env + lanes
    buffers.episode[lanes] = 0
