"""`Bell`: one process wakes another one, through memory that both have mapped."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import numpy as np

SIZE = 64
"""Bytes of a bell; a cache line."""
_SEMAPHORE_AT = 32
AVAILABLE = sys.platform == "linux"
"""Elsewhere semaphores without a name cannot be shared by processes."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _function(name: str, *more: Any, holds_gil: bool = False) -> Any:
    library = ctypes.PyDLL(None) if holds_gil else ctypes.CDLL(None)
    function = getattr(library, name)
    function.argtypes = (ctypes.c_void_p, *more)
    return function


if AVAILABLE:
    _init = _function("sem_init", ctypes.c_int, ctypes.c_uint)
    _post = _function("sem_post", holds_gil=True)
    _try = _function("sem_trywait", holds_gil=True)
    _wait = _function("sem_timedwait", ctypes.POINTER(_Time))


class Bell:
    """A flag word and a semaphore: whoever waits spins a little, then sleeps in the kernel, which
    costs nothing until the bell rings.

    Args:
        memory: uint8 ``[SIZE]``, shared by both processes, at a multiple of 8.
        spins: how often to look before sleeping.
        new: whether this process is the one that makes it.
    """

    def __init__(self, memory: np.ndarray, spins: int, new: bool) -> None:
        self._memory = memory  # kept: the semaphore is in it
        self._word: Any = memoryview(memory[:4].view(np.int32))  # type: ignore[arg-type]
        self._semaphore = ctypes.c_void_p(memory.ctypes.data + _SEMAPHORE_AT)
        self._spins = range(spins)
        if new:
            memory[:] = 0
            _init(self._semaphore, 1, 0)

    def ring(self, word: int) -> None:
        """Wake the other side, and leave it a word."""
        self._word[0] = word
        _post(self._semaphore)

    def wait(self, seconds: float) -> int | None:
        """The word, once the bell has rung; None if it did not within this time, or a signal
        came."""
        semaphore = self._semaphore
        if _try(semaphore):
            for _ in self._spins:
                if not _try(semaphore):
                    break
            else:
                end = time.time() + seconds
                until = _Time(int(end), int(end % 1 * 1e9))
                if _wait(semaphore, ctypes.byref(until)):
                    return None
        return int(self._word[0])
