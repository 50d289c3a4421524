"""Threads that step parts of a batch at the same time.

A thread lives in compiled code, without the GIL, as long as steps keep coming: it watches a word of
memory for the next one for some 50 us, then goes to sleep in Python until it is woken. Waking it
took 60 us on a virtual machine, a third of its share of a step with 65 536 CartPoles; meanwhile the
others do its work. A pool of Python threads (`operant.training.threads`) wakes each of its own for
each call, which is right for a minibatch and would be most of a step.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from operant.compiler.runtime.numba_jobs import ASLEEP, FIRST, LINE, STOP, STOPPED, UNFINISHED

Serve = Callable[[int], int]


class Workers:
    """The threads for parts 1, 2, ... of a batch; part 0 is the caller's.

    Args:
        count: parts in all.
        serve: works, as the worker given, until it sleeps or is `STOPPED`.
        control: the shared words, int64, see `operant.compiler.runtime.numba_jobs`.
    """

    def __init__(self, count: int, serve: Serve, control: np.ndarray) -> None:
        self._asleep = control[FIRST + LINE + ASLEEP :: LINE][: count - 1]  # of workers 1, 2, ...
        self._asleep[:] = 1
        self._bells = [threading.Semaphore(0) for _ in range(1, count)]
        self._process = os.getpid()
        for worker, bell in enumerate(self._bells, 1):
            threading.Thread(
                target=_live, args=(worker, bell, serve), name="operant", daemon=True
            ).start()
        self.close = weakref.finalize(self, _dismiss, control, self._bells)

    def wake(self) -> None:
        """Ring for the threads that sleep."""
        for worker in np.flatnonzero(self._asleep):
            self._asleep[worker] = 0
            self._bells[worker].release()

    def wait(self, gather: Callable[[], int]) -> int:
        """Call `gather` until everybody has finished; its answer.

        An interrupt is raised when the step is complete, so that no part of a batch is ahead.
        """
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                if os.getpid() != self._process:
                    raise RuntimeError(
                        "worker threads do not survive a fork: make the environment in the child"
                    )
                self.wake()  # one may have gone to sleep just before the step was posted
                os.sched_yield() if hasattr(os, "sched_yield") else None
                result = gather()
                if result != UNFINISHED:
                    break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return result


def _live(worker: int, bell: threading.Semaphore, serve: Serve) -> None:
    bell.acquire()
    while serve(worker) != STOPPED:
        bell.acquire()


def _dismiss(control: np.ndarray, bells: list[threading.Semaphore]) -> None:
    control[STOP] = 1
    for bell in bells:
        bell.release()


def split(lanes: int, workers: int, multiple: int) -> list[tuple[int, int]]:
    """Cut 0..lanes into at most `workers` even slices whose bounds are multiples of `multiple`."""
    blocks = -(-lanes // multiple)
    count = min(workers, blocks)
    bounds = [round(k * blocks / count) * multiple for k in range(count + 1)]
    return [(lo, min(hi, lanes)) for lo, hi in pairwise(bounds)]
