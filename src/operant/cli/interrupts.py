"""Ctrl-C that cannot get lost.

Python raises `KeyboardInterrupt` wherever the main thread happens to be. Inside a callback of the
garbage collector or of a compiler it is printed and dropped, or turned into another error, and the
command goes on as if nobody had asked. So it is raised again, every two seconds, until it arrives.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_PATIENCE_S = 2.0


def arrived() -> None:
    """Stop asking: the interrupt is being dealt with."""
    signal.setitimer(signal.ITIMER_REAL, 0)


class Interrupts:
    """From `__enter__` on SIGINT raises `KeyboardInterrupt`, until `arrived` is called."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}
        self._complain: Callable[[Any], Any] = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._handle)
        self._complain, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *exception: object) -> None:
        arrived()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._complain

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        raise KeyboardInterrupt

    def _unraisable(self, what: Any) -> None:
        """Say nothing of a dropped interrupt, which will be raised again."""
        if not issubclass(what.exc_type, KeyboardInterrupt):
            self._complain(what)
