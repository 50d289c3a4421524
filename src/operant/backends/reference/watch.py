"""Plain Python that does not come back: an author's endless ``while``, ended from another thread.

Compiled loops count their passes (`operant.compiler.parsing.endless`). On the ``reference``
backend the code is the author's own, so a thread looks once in a while whether a call has computed
for too long, and raises in it. Time is that of the processor: a call that waits in a debugger is
left alone.
"""

from __future__ import annotations

import ast
import ctypes
import linecache
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from operant.backends.author_mistake import author_place
from operant.compiler.errors import EndlessLoopError
from operant.compiler.parsing.endless import ADVICE

LIMIT_S = 5.0
"""Of processor time that one call of an author's function may take."""
_LOOKS = 8
"""In that time."""


class _Call:
    """One call: whose processor time it takes, and how much of that was taken when it was seen."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        clock = getattr(time, "pthread_getcpuclockid", None)  # not on every system
        self._clock = None if clock is None else clock(self.thread)
        self.seen_at: float | None = None

    def computed_s(self) -> float:
        """Of its thread, which may have ended; of the process where the thread's is not known."""
        if self._clock is None:
            return time.process_time()
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0


class Watch:
    """Ends calls that compute for longer than `limit_s`. Its thread runs while there are calls."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self.begin_again()

    def begin_again(self) -> None:
        """Forget everything: a forked process has no thread that looks, and perhaps a lock that is
        held."""
        self._calls: set[_Call] = set()
        self._lock = threading.Lock()
        self._looking = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise `EndlessLoopError`, without a message, in the block if it computes for too long."""
        call = _Call()
        with self._lock:
            self._calls.add(call)
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._look, name="operant-watch", daemon=True).start()
        try:
            yield
        finally:
            self._calls.discard(call)

    def _look(self) -> None:
        while True:
            time.sleep(self.limit_s / _LOOKS)
            with self._lock:
                if not self._calls:
                    self._looking = False
                    return
                calls = list(self._calls)
            for call in calls:
                computed = call.computed_s()
                if call.seen_at is None:
                    call.seen_at = computed
                elif computed - call.seen_at >= self.limit_s and call in self._calls:
                    self._calls.discard(call)  # raised once, wherever it lands
                    thread, error = ctypes.c_ulong(call.thread), ctypes.py_object(EndlessLoopError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)


WATCH = Watch()
"""Of the calls of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.begin_again)


def endless_call(error: EndlessLoopError) -> EndlessLoopError:
    """What `Watch` raised, with a message: file and line of the loop."""
    found = author_place(error)
    file, line, name = found or ("", 0, "a function")
    limit = f"within {WATCH.limit_s:g} s of processor time"
    loops = [
        (loop, frame.filename)
        for frame in traceback.extract_tb(error.__traceback__)
        for loop in _loops_around(frame.filename, frame.lineno or 0)
        if frame.filename == file
    ]
    if not loops:
        return EndlessLoopError(f"{file}:{line}: {name}() did not return {limit}")
    loop, file = loops[-1]
    test = f"`while {ast.unparse(loop.test)}`"
    return EndlessLoopError(f"{file}:{loop.lineno}: {test} did not end {limit}; {ADVICE}")


def _loops_around(file: str, line: int) -> list[ast.While]:
    """The ``while`` loops around a line of a file, the innermost last."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    return [loop for loop in loops if loop.lineno <= line <= (loop.end_lineno or line)]
