"""`Threads`: environments in threads, for those that leave Python while they step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from operant.backends.foreign.agent_block import env_block
from operant.backends.foreign.block import EnvBlock, Layouts, MakeEnv, blocks
from operant.backends.foreign.errors import ForeignEnvError, StepTimeoutError, some_envs
from operant.backends.foreign.executor import SeedPairs
from operant.backends.foreign.memory import Memory

_Job = Callable[[], Any]


class _Failure:
    """What a job raised."""

    def __init__(self, error: BaseException, index: int) -> None:
        self.error, self.index = error, index


class Threads:
    """See `Executor`. Each thread holds neighbouring environments.

    Raises:
        ForeignEnvError: an environment could not be made.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        layouts: Layouts,
        num_envs: int,
        workers: int,
        timeout_s: float = 60.0,
    ) -> None:
        self.workers, self._timeout_s = workers, timeout_s
        rows = num_envs * layouts.rows_each
        self.memory = Memory.allocate(layouts.observation, layouts.action, rows, layouts.mask_size)
        # Made here, one after the other: what a constructor loads is seldom safe in threads.
        self._blocks = [
            env_block(make_env, layouts, self.memory, part.start, part.stop)
            for part in blocks(num_envs, workers)
        ]
        self._closed = ""
        self._stepping: list[int] = []
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._jobs: list[SimpleQueue[tuple[int, _Job] | None]] = []
        for number in range(workers):
            jobs: SimpleQueue[tuple[int, _Job] | None] = SimpleQueue()
            # A daemon: one that hangs must not keep the process from ending.
            threading.Thread(
                target=_work, args=(jobs, self._done), name=f"envs-{number}", daemon=True
            ).start()
            self._jobs.append(jobs)

    def _all(self, jobs: Sequence[_Job]) -> list[Any]:
        """Run a job in each thread; the results, or the first error when all are done."""
        self._check_open()
        for k, job in enumerate(jobs):
            self._jobs[k].put((k, job))
        found: dict[int, Any] = {}
        while len(found) < len(jobs):
            try:
                k, result = self._done.get(timeout=self._timeout_s)
            except Empty:
                late = [k for k in range(len(jobs)) if k not in found]
                self._give_up([i for k in late for i in self._range(k)])
            except BaseException:  # Ctrl-C: what is still running would answer the next call
                self._closed = "a call was interrupted"
                raise
            found[k] = result
        for k in range(len(jobs)):
            if isinstance(found[k], _Failure):
                raise found[k].error
        return [found[k] for k in range(len(jobs))]

    def _range(self, k: int) -> range:
        return range(self._blocks[k].first, self._blocks[k].end)

    def _give_up(self, envs: list[int]) -> NoReturn:
        self._closed = f"{some_envs(envs)} did not answer in time"
        raise StepTimeoutError(
            f"{some_envs(envs)} did not answer within {self._timeout_s:g} s; the batch is closed. "
            "If a step may take that long, raise it: env.step_timeout, step_timeout_s",
            envs[0],
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ForeignEnvError(f"this batch is closed: {self._closed}; make a new one")

    def step(self) -> None:
        """See `Executor`."""
        self._all([block.step_all for block in self._blocks])

    def reset(self, seeds: SeedPairs, options: Any = None) -> None:
        """See `Executor`."""
        self._all([_reset(block, seeds, options) for block in self._blocks])

    def submit(self, indices: Sequence[int]) -> None:
        """See `Executor`."""
        self._check_open()
        for index in indices:
            k = next(k for k in range(self.workers) if index in self._range(k))
            self._jobs[k].put((index, _step_one(self._blocks[k], index)))
        self._stepping += indices

    def ready(self) -> list[int]:
        """See `Executor`."""
        self._check_open()
        try:
            index, result = self._done.get(timeout=self._timeout_s)
        except Empty:
            self._give_up(sorted(self._stepping))
        self._stepping.remove(index)
        if isinstance(result, _Failure):
            raise result.error
        return [index]

    def states(self) -> list[bytes]:
        """See `Executor`."""
        return [state for block in self._blocks for state in block.states()]

    def set_states(self, states: Sequence[bytes]) -> None:
        """See `Executor`."""
        for block in self._blocks:
            block.set_states(states[block.first : block.end])

    def render(self, index: int) -> Any:
        """See `Executor`."""
        return next(block for block in self._blocks if block.first <= index < block.end).render(
            index
        )

    def close(self) -> None:
        """See `Executor`."""
        hangs = bool(self._closed)
        self._closed = self._closed or "close() was called"
        jobs, self._jobs = self._jobs, []
        for queue in jobs:
            queue.put(None)
        for block in [] if hangs else self._blocks:
            block.close()


def _reset(block: EnvBlock, seeds: SeedPairs, options: Any) -> _Job:
    mine = [pair for pair in seeds if block.first <= pair[0] < block.end]
    return lambda: block.reset(mine, options)


def _step_one(block: EnvBlock, index: int) -> _Job:
    return lambda: block.step_some([index])


def _work(jobs: Any, done: Any) -> None:
    """Do jobs until there is None."""
    while (next_job := jobs.get()) is not None:
        k, job = next_job
        try:
            result = job()
        except BaseException as error:  # Ctrl-C is not for threads: the environment raised it
            result = _Failure(error, k)
        done.put((k, result))
