"""`Memory`: everything that environments and the batch tell each other, in one block."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from dataclasses import dataclass

import numpy as np

from operant.spaces.rows import ObsLayout

_ALIGNMENT = 64
"""Bytes; a cache line, so that two processes do not write to one."""


@dataclass(frozen=True)
class Memory:
    """The arrays of a batch, each ``[num_envs, ...]`` (rows: several of an environment with several
    agents), views of one block."""

    obs: np.ndarray
    """Rows of the observations' `ObsLayout`: what the next actions answer."""
    final_obs: np.ndarray
    """The last observations of episodes that ended in the last step, in their rows alone."""
    action: np.ndarray
    """Rows of the actions' `ObsLayout`."""
    reward: np.ndarray
    """float64, as Gymnasium's."""
    terminated: np.ndarray
    """bool."""
    truncated: np.ndarray
    """bool."""
    mask: np.ndarray
    """bool ``[num_envs, mask_size]``: which actions are allowed."""
    live: np.ndarray
    """bool: rows of agents that act next; of environments with several alone."""

    @classmethod
    def allocate(
        cls,
        observation: ObsLayout,
        action: ObsLayout,
        num_envs: int,
        mask_size: int = 0,
        file: int | None = None,
    ) -> Memory:
        """The arrays, zeroed, in memory of this process; with `file`, an open file of
        `shared_file`, in its pages, which other processes may map as well."""
        parts = [
            (observation.dtype, observation.shape),
            (observation.dtype, observation.shape),
            (action.dtype, action.shape),
            (np.dtype(np.float64), ()),
            (np.dtype(np.bool_), ()),
            (np.dtype(np.bool_), ()),
            (np.dtype(np.bool_), (mask_size,)),
            (np.dtype(np.bool_), ()),
        ]
        offsets, end = [], 0
        for dtype, shape in parts:
            offsets.append(end)
            size = num_envs * math.prod(shape) * dtype.itemsize
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        if file is None:
            block = np.zeros(end, np.uint8)
        else:
            if os.fstat(file).st_size < end:
                os.ftruncate(file, end)
            block = np.frombuffer(mmap.mmap(file, end), np.uint8)
        arrays = [
            block[at : at + num_envs * math.prod(shape) * dtype.itemsize]
            .view(dtype)
            .reshape((num_envs, *shape))
            for at, (dtype, shape) in zip(offsets, parts, strict=True)
        ]
        return cls(*arrays)


def shared_file() -> int:
    """An open file without a name, to be mapped by several processes: its memory is gone when the
    last of them is, however they end."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("operant")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
