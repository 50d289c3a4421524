"""`Collector`: fills rollouts in a thread of its own, while another one trains.

The two threads meet under one lock. Rollouts lie in a ring of ``max_lag + 1`` buffers: one is
trained on, the others are full or being filled. A buffer is given back after its update, so rollout
N begins when there are the weights of version ``N - max_lag`` at least, and not before.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch

from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.base import NEWEST
from operant.ppo.engines.published_weights import OwnStream, PublishedWeights
from operant.ppo.job import HostEngine
from operant.runs.schedule import Schedule, Slice
from operant.training.episodes import Episodes


class Collected(NamedTuple):
    """A rollout that is ready to be trained on."""

    number: int
    buffer: RolloutBuffer
    episodes: Episodes
    slices: tuple[Slice, ...]
    idle: float
    """Share of the time since the last one that the collector waited."""


class _AbandonedError(Exception):
    """Nobody wants the rollout any more."""


class Collector:
    """See the top of this file. All methods are for the thread that trains.

    Args:
        actor: what collects, with a policy of its own, which nobody trains.
        ring: memory for rollouts; free.
        weights: what it acts with.
    """

    def __init__(
        self, actor: HostEngine, ring: Sequence[RolloutBuffer], weights: PublishedWeights
    ) -> None:
        self._actor, self._weights = actor, weights
        self._stream = OwnStream(actor.job.device)
        self._ring = tuple(ring)
        self._free, self.ready = deque(ring), deque[Collected]()
        self._taken: RolloutBuffer | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._resting = self._dropping = False
        self._end = 0
        self.followed: Schedule | None = None
        """A schedule to repeat; None: the newest weights act."""
        self._number = self._version = -1
        self._slices: list[Slice] = []
        actor.before_step = self._before_step

    # The thread that trains -----------------------------------------------------------------
    def take(self, number: int, step: int, end: int) -> Collected:
        """Wait for rollout `number`, which begins at step `step`; those up to `end` are collected
        meanwhile. What the collector raised is raised here, when all before it were taken."""
        if self._resting:  # Ctrl-C came within `rest`
            self.rest(self._dropping)
        with self._change:
            if self._end != end:
                self._end = end
                self._change.notify_all()
        if not (self._thread is not None and self._thread.is_alive()) and self._error is None:
            self._start(number, step)
        with self._change:
            self._change.wait_for(lambda: self.ready or self._error is not None)
            if self.ready:
                found = self.ready.popleft()
                self._taken = found.buffer
                return found
            assert self._error is not None
            error, self._error = self._error, None
        self.rest()
        raise error

    def _start(self, number: int, step: int) -> None:
        """Go on with `number`, or after the rollouts that are ready."""
        if self.ready and self.ready[0].number != number:  # someone went back, or on
            self._drop_all()
        first = number + len(self.ready)
        if self.ready and first >= self._end:
            return
        step += len(self.ready) * self._actor.job.config.ppo.num_steps
        self._thread = threading.Thread(
            target=self._run, args=(first, step), name="operant-collector", daemon=True
        )
        self._thread.start()

    def give_back(self) -> None:
        """The rollout that was taken last was trained on."""
        with self._change:
            taken, self._taken = self._taken, None
            if taken is not None:
                self._free.append(taken)
            self._change.notify_all()

    def check(self) -> None:
        """Raise what the collector raised and `take` has not yet: the environments are past it."""
        if self._error is not None:
            raise self._error

    def rest(self, drop: bool = False) -> None:
        """Return when no thread collects any more: after the rollout that it is at, which is kept,
        or after the step, if all rollouts are to be dropped, the one that was taken as well.

        Ctrl-C is raised afterwards: nobody else may use the environments before.
        """
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                with self._change:
                    self._resting, self._dropping = True, drop or interrupted is not None
                    self._change.notify_all()
                if self._thread is not None:
                    self._thread.join()
                break
            except KeyboardInterrupt as error:
                interrupted = error
        self._thread = None
        if self._dropping:
            self._drop_all()
            self._error = None
        self._dropping = False
        self._resting = False  # last: `take` ends what Ctrl-C broke off
        if interrupted is not None:
            raise interrupted

    def _drop_all(self) -> None:
        """Forget all rollouts: the whole ring is free, whatever Ctrl-C broke off."""
        self.ready.clear()
        self._taken, self._free = None, deque(self._ring)

    def put_back(self, rollouts: Sequence[Collected]) -> None:
        """Rollouts of a checkpoint, in buffers of the ring, instead of all that there were."""
        self._drop_all()
        used = {id(one.buffer) for one in rollouts}
        self._free = deque(buffer for buffer in self._ring if id(buffer) not in used)
        self.ready.extend(rollouts)

    # The thread that collects ---------------------------------------------------------------
    def _run(self, number: int, step: int) -> None:
        buffer: RolloutBuffer | None = None
        torch.set_num_threads(1)  # a setting of each thread
        self._version = -1  # someone may have changed the weights since
        try:
            with self._stream.used():
                while True:
                    began = time.perf_counter()
                    buffer = self._wait_for_memory(number)
                    if buffer is None:
                        return
                    found = self._fill(buffer, number, step, began)
                    buffer = None
                    with self._change:
                        self.ready.append(found)
                        self._change.notify_all()
                    number, step = number + 1, step + found.buffer.num_steps
        except BaseException as error:
            with self._change:
                if buffer is not None:
                    self._free.append(buffer)
                if not isinstance(error, _AbandonedError):
                    self._error = error
                self._change.notify_all()

    def _wait_for_memory(self, number: int) -> RolloutBuffer | None:
        """A buffer for rollout `number`; None: it is not wanted, or not now."""
        needed = -1
        if self.followed is not None and number < len(self.followed):
            needed = max(one.version for one in self.followed.rollouts[number])
        with self._change:
            self._change.wait_for(
                lambda: (
                    self._resting
                    or number >= self._end
                    or (self._free and self._weights.newest >= needed)
                )
            )
            if self._resting or number >= self._end:
                # From here on nobody waits for this thread, who asks for more starts another.
                return None
            return self._free.popleft()

    def _fill(self, buffer: RolloutBuffer, number: int, step: int, began: float) -> Collected:
        now = time.perf_counter()
        self._number, self._slices = number, []
        self._actor.use(buffer)
        episodes = self._actor.collect(number, step)
        whole = max(time.perf_counter() - began, 1e-9)
        slices = tuple(sorted(self._slices))  # parts come in the order in which they are done
        return Collected(number, buffer, episodes, slices, (now - began) / whole)

    def _before_step(self, part: int, t: int) -> bool:
        """Before the policy answers step `t` of the rows of `part`: whether it has other weights
        now."""
        if self._dropping:
            raise _AbandonedError
        if part == NEWEST:
            version = max(one.version for one in self._slices)
        else:
            version = self._wanted(part, t)
            last = next((one.version for one in reversed(self._slices) if one.part == part), -1)
            if version != last:
                self._slices.append(Slice(part, t, version))
        if version == self._version:
            return False
        self._weights.put_into(self._actor.job.policy, version)
        self._version = version
        return True

    def _wanted(self, part: int, t: int) -> int:
        followed, number = self.followed, self._number
        if followed is None or number >= len(followed):
            return self._weights.newest
        slices = followed.rollouts[number]
        return max(one.version for one in slices if one.part == part and one.t <= t)
