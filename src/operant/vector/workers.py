"""Threads that step slices of a batch at the same time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue

Task = Callable[[int, int], int]
Results = SimpleQueue[int | BaseException]
Jobs = SimpleQueue[tuple[Task, Results] | None]


class WorkerPool:
    """Runs one task on several slices; the calling thread takes the first slice itself.

    The task must release the GIL to gain anything. Threads start once and wait on a queue between
    calls; they end with `close`, or when the pool is collected.
    """

    def __init__(self, slices: list[tuple[int, int]]) -> None:
        self._slices = slices
        self._queues: list[Jobs] = [SimpleQueue() for _ in slices[1:]]
        for queue, bounds in zip(self._queues, slices[1:], strict=True):
            threading.Thread(
                target=_serve, args=(queue, bounds), name="operant", daemon=True
            ).start()
        self.close = weakref.finalize(self, _stop, self._queues)

    def run(self, task: Task) -> int:
        """The sum of ``task(lo, hi)`` over the slices. An exception in any is raised here."""
        results: Results = SimpleQueue()  # of this call: an interrupted one leaves nothing behind
        for queue in self._queues:
            queue.put((task, results))
        failure: BaseException | None = None
        total = 0
        try:
            total = task(*self._slices[0])
        except BaseException as error:
            failure = error
        for _ in self._queues:  # all must end before the buffers may be touched again
            result = results.get()
            if isinstance(result, BaseException):
                failure = failure or result
            else:
                total += result
        if failure is not None:
            raise failure
        return total


def _serve(queue: Jobs, bounds: tuple[int, int]) -> None:
    while (job := queue.get()) is not None:
        task, results = job
        try:
            results.put(task(*bounds))
        except BaseException as error:
            results.put(error)


def _stop(queues: list[Jobs]) -> None:
    for queue in queues:
        queue.put(None)


def split(lanes: int, workers: int, multiple: int) -> list[tuple[int, int]]:
    """Cut 0..lanes into at most `workers` even slices whose bounds are multiples of `multiple`."""
    blocks = -(-lanes // multiple)
    count = min(workers, blocks)
    bounds = [round(k * blocks / count) * multiple for k in range(count + 1)]
    return [(lo, min(hi, lanes)) for lo, hi in pairwise(bounds)]
