"""`PartSteps`: some environments of a batch step while others wait, or step too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operant.backends.foreign.block import blocks
from operant.backends.foreign.errors import ForeignEnvError, WorkerDiedError
from operant.backends.foreign.executor import Executor


class PartSteps:
    """Which environments of an executor are under way.

    Args:
        executor: which steps them, with their rows of its ``memory.action``.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._begun: set[int] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._begun)

    def begin(self, indices: Sequence[int]) -> None:
        """Begin to step environments, none of which is under way."""
        self._begun.update(indices)
        self._executor.submit(indices)

    def are_done(self, indices: Sequence[int]) -> bool:
        """Whether none of these is under way, as far as is known."""
        return self._begun.isdisjoint(indices)

    def wait(self, indices: Sequence[int]) -> None:
        """Wait until these are done; others may be under way.

        Raises:
            ForeignEnvError: an environment failed, one of the others perhaps.
        """
        while not self._begun.isdisjoint(indices):
            self.wait_for_some()

    def wait_for_all(self) -> None:
        """Let all arrive that were begun by a call that did not come to its end; what they raise is
        dropped with the steps that nobody asks for any more.

        Raises:
            ForeignEnvError: they never will.
        """
        while self._begun:
            left = len(self._begun)
            try:
                self.wait_for_some()
            except ForeignEnvError:
                if len(self._begun) == left:
                    raise

    def wait_for_some(self) -> list[int]:
        """Wait until one or more are done, and give those that were not given yet.

        Raises:
            ForeignEnvError: an environment failed.
        """
        try:
            done = self._executor.ready()
        except ForeignEnvError as error:
            if error.env_index is not None and not isinstance(error, WorkerDiedError):
                self._begun.discard(error.env_index)
            raise
        self._begun.difference_update(done)
        return done


def halves(num_envs: int, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of environments, int64 in order: of every worker about half of its own, so that
    either keeps all workers busy."""
    parts: tuple[list[int], list[int]] = ([], [])
    for number, envs in enumerate(blocks(num_envs, workers)):
        first = (len(envs) + 1 - number % 2) // 2  # workers of one environment: to both in turn
        parts[0].extend(envs[:first])
        parts[1].extend(envs[first:])
    return np.array(parts[0], np.int64), np.array(parts[1], np.int64)
