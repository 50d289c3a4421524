"""Ranks as threads of one process: what `operant.training.ranks.TorchGroup` does, in a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from operant.training.ranks import joined_as


class ThreadGroup:
    """One of several threads that train together; `all_of` makes them."""

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self.on_machine, self.seconds = rank, len(slots), len(slots), 0.0
        self._slots, self._barrier = slots, barrier
        self.gathered = 0
        """Calls of `gather`."""

    @classmethod
    def all_of(cls, size: int) -> list[ThreadGroup]:
        slots, barrier = [None] * size, threading.Barrier(size, timeout=60)
        return [cls(rank, slots, barrier) for rank in range(size)]

    def cores(self) -> int:
        return 1

    def gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        self.gathered += 1
        self._slots[self.rank] = mine.clone()
        self._barrier.wait()
        found = [one.clone() for one in self._slots]
        self._barrier.wait()
        shapes = {(one.shape, one.dtype) for one in found}
        assert len(shapes) == 1, f"ranks handed in tensors that differ: {shapes}"
        return found

    def failed(self, sentence: str, not_finite: bool = False) -> None:
        self._barrier.abort()


def trainers(size: int, make: Callable[[], Any]) -> list[Any]:
    """What `make` makes as each of `size` ranks."""
    made = []
    for group in ThreadGroup.all_of(size):
        with joined_as(group):
            made.append(make())
    return made


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call all at once, each in a thread of its own; what they return, in order.

    Raises:
        BaseException: the first that one of them raised, which is not that of a broken barrier.
    """
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            results[k] = calls[k]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        broken = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        raise (broken or errors)[0]
    return results
