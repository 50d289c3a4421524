"""`Bell`: one process wakes another one, through memory that both have mapped."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np

SIZE = 64
"""Bytes of a bell; a cache line."""
_SEMAPHORE_AT = 32
_SPIN_S = 400e-6
"""How long to look before sleeping: as long as a trainer takes to answer a batch of observations
with a small policy. Waking a process on another core takes 35 us, seeing the bell less than 1."""
AVAILABLE = sys.platform == "linux"
"""Elsewhere semaphores without a name cannot be shared by processes."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _function(name: str, *arguments: Any, holds_gil: bool = False) -> Any:
    library = ctypes.PyDLL(None) if holds_gil else ctypes.CDLL(None)
    function = getattr(library, name)
    function.argtypes = arguments
    return function


if AVAILABLE:
    _init = _function("sem_init", ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    _post = _function("sem_post", ctypes.c_void_p, holds_gil=True)
    _try = _function("sem_trywait", ctypes.c_void_p, holds_gil=True)
    _wait = _function("sem_wait", ctypes.c_void_p)
    _timed_wait = _function("sem_timedwait", ctypes.c_void_p, ctypes.POINTER(_Time))
    _this_core = _function("sched_getcpu", holds_gil=True)


class Bell:
    """A flag word and a semaphore: whoever waits looks for a while, if that promises to be enough,
    then sleeps in the kernel, which costs nothing until the bell rings.

    Looking robs nobody: the core is offered to others between two looks, nobody looks whom the
    ringer's own core would have to wait for, and after a wait that was too long the next one
    sleeps at once, until they are short again.

    Args:
        memory: uint8 ``[SIZE]``, shared by both processes, at a multiple of 8.
        spins: whether to look before sleeping: there is a core for whoever waits.
        new: whether this process is the one that makes it.
    """

    def __init__(self, memory: np.ndarray, spins: bool, new: bool) -> None:
        self._memory = memory  # kept: the semaphore is in it
        self._words: Any = memoryview(memory[:8].view(np.int32))  # type: ignore[arg-type]
        self._semaphore = ctypes.c_void_p(memory.ctypes.data + _SEMAPHORE_AT)
        self._spins, self._was_short = spins, True
        if new:
            memory[:] = 0
            _init(self._semaphore, 1, 0)

    def ring(self, word: int) -> None:
        """Wake the other side, and leave it a word."""
        self._words[0] = word
        self._words[1] = _this_core()
        _post(self._semaphore)

    @property
    def core(self) -> int:
        """Where it was rung last."""
        return int(self._words[1])

    @property
    def is_near(self) -> bool:
        """Whether that is the core that this process runs on."""
        return bool(self._words[1] == _this_core())

    def wait(self, seconds: float | None) -> int | None:
        """The word, once the bell has rung; None if it did not within this time, or a signal
        came. Without a time it costs 3 us less to sleep."""
        if _try(self._semaphore) and not self._rang(seconds):
            return None
        return int(self._words[0])

    def _rang(self, seconds: float | None) -> bool:
        semaphore, clock = self._semaphore, time.perf_counter
        began = clock()
        if self._spins and self._was_short and not self.is_near:
            while clock() - began < _SPIN_S:
                os.sched_yield()
                if not _try(semaphore):
                    return True
        if seconds is None:
            missed = _wait(semaphore)
        else:
            end = time.time() + seconds
            until = _Time(int(end), int(end % 1 * 1e9))
            missed = _timed_wait(semaphore, ctypes.byref(until))
        self._was_short = clock() - began < _SPIN_S
        return not missed
