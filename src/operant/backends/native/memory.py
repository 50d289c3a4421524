"""Memory between guards, for a library that is not trusted yet."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operant.compiler.spec.native_abi import STREAM, NativeError, Spec

_GUARD = 0xA5
_ALIGNMENT, _LEAST_MARGIN = 64, 4096


class Guarded:
    """An array ``[count, ...]`` with guard bytes on both sides: a row's worth, a page at least."""

    def __init__(self, name: str, dtype: Any, shape: tuple[int, ...]) -> None:
        self.name = name
        size = math.prod(shape) * np.dtype(dtype).itemsize
        margin = max(_LEAST_MARGIN, size // max(shape[0], 1))
        memory = np.full(size + 2 * margin + 2 * _ALIGNMENT, _GUARD, np.uint8)
        start = margin + -(memory.ctypes.data + margin) % _ALIGNMENT
        self._before, self._after = memory[:start], memory[start + size :]
        self.array: np.ndarray = memory[start : start + size].view(dtype).reshape(shape)
        self.array[...] = np.zeros((), dtype)

    @property
    def bytes(self) -> np.ndarray:
        """The rows as uint8 ``[count, row_bytes]``; a view."""
        return self.array.view(np.uint8).reshape(len(self.array), -1)

    def address(self, row: int = 0) -> int:
        """Of a row."""
        return int(self.array.ctypes.data + row * self.bytes.shape[1])

    def check(self, function: str) -> None:
        """Raise NativeError if a guard has changed."""
        for where, guard in (("before", self._before), ("after", self._after)):
            if (guard != _GUARD).any():
                raise NativeError(
                    f"{function} writes outside its memory: bytes {where} the {self.name} of its "
                    "environments changed"
                )


class TrialMemory:
    """All arrays of a batch of `count` environments, each between guards."""

    def __init__(self, spec: Spec, count: int) -> None:
        self.states = Guarded("states", np.uint8, (count, spec.state_bytes))
        self.actions = Guarded("actions", spec.action_dtype, (count, spec.action.size))
        self.obs = Guarded("observations", spec.obs_dtype, (count, spec.observation.size))
        self.rewards = Guarded("rewards", np.float32, (count,))
        self.terminated = Guarded("terminated flags", np.uint8, (count,))
        self.masks = Guarded("masks", np.uint8, (count, max(spec.mask_size, 1)))
        self.indices = Guarded("indices", np.int64, (count,))
        self.streams = Guarded("streams", STREAM, (count,))
        self._masked = spec.mask_size > 0

    @property
    def everything(self) -> tuple[Guarded, ...]:
        """All arrays."""
        inputs = (self.actions, self.indices, self.streams)
        return (self.states, *self.results, *inputs)

    @property
    def results(self) -> tuple[Guarded, ...]:
        """What a step writes, except for the states."""
        return (self.obs, self.rewards, self.terminated, self.masks)

    def mask_address(self, row: int = 0) -> int | None:
        """Of a row of masks; None without masks."""
        return self.masks.address(row) if self._masked else None

    def forget(self, rows: Any = slice(None)) -> None:
        """Fill the results of `rows` with what no game writes: what it leaves out then shows."""
        self.obs.array[rows] = np.nan if self.obs.array.dtype.kind == "f" else -(2**62)
        self.rewards.array[rows] = np.nan
        self.terminated.array[rows] = 255
        self.masks.array[rows] = 255
