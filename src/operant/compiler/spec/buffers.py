"""The memory of a batch of environments: one array per quantity, allocated once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from operant.compiler.recording.trace import FLOAT
from operant.compiler.spec.rules import NUMPY_DTYPES, Rules

LANES = 64
"""Batches are padded to a multiple of this, so that compiled loops have no remainder: an
environment's arithmetic is then the same wherever in a batch it stands."""

_LINE_BYTES, _PAGE_BYTES, _PIECE_BYTES = 64, 4096, 1 << 26


@dataclass(frozen=True)
class Buffers:
    """All arrays of a batch, padded to whole `LANES`; `cut` gives unpadded views.

    The arrays live as long as the batch and never move, so a view taken once stays valid. Backends
    write them, `VecEnv` reads them. One value (or one row) per environment:

    - ``state``: one array per field of the environment's ``State``.
    - ``action``: what the next step will do, validated; one array per component.
    - ``obs``, ``reward``, ``terminated``, ``truncated``: what the last step returned.
    - ``done``: finished in the last step. Under NEXT_STEP and DISABLED it awaits its reset.
    - ``final_obs``: under SAME_STEP the last observation of those in ``done``.
    - ``episode_return``, ``steps``: of the running episode. ``start_us``: when it began.
    - ``report_return``, ``report_length``, ``report_time_s``: of those in ``done``, else 0.
    - ``seed``, ``index``, ``episode``: the random stream, see `operant.compiler.philox`.
    - ``action_mask``: which actions the state allows, bool ``[lanes, mask_size]``; True at first.
    """

    num_envs: int
    state: dict[str, np.ndarray]
    action: tuple[np.ndarray, ...]
    obs: np.ndarray
    final_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    done: np.ndarray
    episode_return: np.ndarray
    steps: np.ndarray
    start_us: np.ndarray
    report_return: np.ndarray
    report_length: np.ndarray
    report_time_s: np.ndarray
    seed: np.ndarray
    index: np.ndarray
    episode: np.ndarray
    action_mask: np.ndarray

    @classmethod
    def allocate(cls, rules: Rules, num_envs: int) -> Buffers:
        """Zeroed buffers for `num_envs` environments, every action allowed."""
        lanes = -(-num_envs // LANES) * LANES
        new = Arena(lanes).zeros
        obs_dtype = np.float32 if rules.observation.dtype == FLOAT else np.int64
        action_dtype = NUMPY_DTYPES[rules.action.dtype]
        buffers = cls(
            num_envs=num_envs,
            state={name: new(*memory) for name, memory in rules.memory.items()},
            action=tuple(new(action_dtype) for _ in range(rules.action.size)),
            obs=new(obs_dtype, rules.observation.shape),
            final_obs=new(obs_dtype, rules.observation.shape),
            reward=new(np.float32),
            terminated=new(np.bool_),
            truncated=new(np.bool_),
            done=new(np.bool_),
            episode_return=new(np.float32),
            steps=new(np.int32),
            start_us=new(np.int64),
            report_return=new(np.float32),
            report_length=new(np.int32),
            report_time_s=new(np.float32),
            seed=new(np.uint64),
            index=new(np.uint32),
            episode=new(np.uint32),
            action_mask=new(np.bool_, (rules.mask_size,)),
        )
        buffers.action_mask[:] = True
        return buffers

    @property
    def lanes(self) -> int:
        """Allocated environments: `num_envs` rounded up."""
        return len(self.reward)

    def cut(self, array: np.ndarray) -> np.ndarray:
        """One of the arrays without its padding: a contiguous view ``[num_envs, ...]``."""
        return array[: self.num_envs]


class Arena:
    """Allocates arrays of `lanes` rows so that the same row of different arrays does not collide.

    Large arrays start at the beginning of a page, and a cache finds its lines by the address within
    a page: row i of twenty such arrays would compete for the twelve places of one cache set. Here
    each array starts seven cache lines further into its page than the one before. They are cut from
    large pieces of memory, for which NumPy asks the system for huge pages.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._numbers = count()
        self._free = np.zeros(0, np.uint8)

    def zeros(self, dtype: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
        """A zeroed array ``[lanes, *shape]``, aligned to cache lines."""
        size = self._lanes * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if self._free.size < size + _PAGE_BYTES:
            piece = min(self._lanes * 128, _PIECE_BYTES)
            self._free = np.zeros(max(piece, size) + _PAGE_BYTES, np.uint8)
        wanted = next(self._numbers) * 7 * _LINE_BYTES
        offset = (wanted - self._free.ctypes.data) % _PAGE_BYTES
        array: np.ndarray = self._free[offset : offset + size].view(dtype)
        self._free = self._free[offset + size :]
        return array.reshape(self._lanes, *shape)
