"""Threads that call a library at the same time; ctypes lets them run without the GIL."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

Job = tuple[Callable[[Any], None], Any]
_Jobs = SimpleQueue[Job | None]
_Answers = SimpleQueue[BaseException | None]


class Team:
    """The caller's thread and `count` - 1 others."""

    def __init__(self, count: int) -> None:
        self._queues: list[_Jobs] = [SimpleQueue() for _ in range(1, count)]
        self._answers: _Answers = SimpleQueue()
        self._process = os.getpid()
        for queue in self._queues:
            threading.Thread(
                target=_live, args=(queue, self._answers), name="operant", daemon=True
            ).start()
        self.close = weakref.finalize(self, _dismiss, self._queues)

    def run(self, work: Callable[[Any], None], parts: Sequence[Any]) -> None:
        """Call `work` with each of the parts, at most one a thread; return when all is done.

        An interrupt is raised when the others have finished, too.
        """
        if len(parts) > 1 and os.getpid() != self._process:
            raise RuntimeError(
                "worker threads do not survive a fork: make the environment in the child"
            )
        for queue, part in zip(self._queues, parts[1:], strict=False):
            queue.put((work, part))
        trouble: BaseException | None = None
        try:
            if parts:
                work(parts[0])
        except BaseException as error:
            trouble = error
        waiting = len(parts) - 1
        while waiting > 0:
            try:
                answer = self._answers.get()
            except KeyboardInterrupt as error:
                trouble = error
                continue
            waiting -= 1
            trouble = trouble or answer
        if trouble is not None:
            raise trouble


def _live(queue: _Jobs, answers: _Answers) -> None:
    while (job := queue.get()) is not None:
        work, part = job
        del job  # a thread that waits must not keep the batch alive
        error: BaseException | None = None
        try:
            work(part)
        except BaseException as raised:
            error = raised
        del work, part
        answers.put(error)
        del error


def _dismiss(queues: list[_Jobs]) -> None:
    for queue in queues:
        queue.put(None)
