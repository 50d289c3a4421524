"""An engine that trains on one rollout while it collects the next ones.

Two engines of one kind: an `actor`, with a copy of the policy, plays in a thread of its own; a
`learner` trains, and now and then publishes what it has come to. What either computes is what it
computes alone. Which weights acted on which step depends on time, and that is all that does: it is
noted, so that another run can repeat it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.collector import Collector
from operant.ppo.engines.eager import slice_for
from operant.ppo.engines.first_ready import MOST_GROUPS
from operant.ppo.engines.in_flight import arrays_of, read_rollouts
from operant.ppo.engines.published_weights import PublishedWeights, acting_copy
from operant.ppo.job import HostEngine, Iteration, Job
from operant.runs.schedule import Schedule, ScheduleLog, Shape, Slice
from operant.toolchain.machine import usable_cores
from operant.training.adam import Adam
from operant.training.episodes import Episodes
from operant.vector.batch import compiled_batch

ASYNC_METRICS = ("lag", "lag_max", "queue", "collector_idle", "learner_idle")
"""Versions that the weights which acted were behind those that are trained, mean and most;
rollouts that were ready when one was asked for; shares of the time that either thread waited."""


class AsyncEngine:
    """See `operant.ppo.job.Engine`.

    Args:
        learner: what trains; its policy is the trainer's.
        actor: an engine of the same kind for `acting_job`.
    """

    def __init__(self, learner: HostEngine, actor: HostEngine) -> None:
        self.learner, self.actor, self.job = learner, actor, learner.job
        self.name = learner.name
        max_lag = self.job.config.run.max_lag
        spare = [learner.new_buffer() for _ in range(max_lag - 1)]
        ring = [learner.buffer, *([actor.buffer] if max_lag else []), *spare]
        actor.use(learner.buffer)
        for buffer in ring:
            buffer.intrinsic = learner.buffer.intrinsic
        self._ring, self._slice = ring, slice_for(self.job.policy)
        self._weights = PublishedWeights(self.job.policy)
        self.collector = Collector(actor, ring, self._weights)
        self.buffer: RolloutBuffer = learner.buffer
        """The rollout that is trained on."""
        self._end = 0
        self._trained = -1  # the version that an update has made, until the next rollout
        self._figures: dict[str, float] = {}
        self._asked_at = time.perf_counter()
        self.note: Callable[[int, tuple[Slice, ...]], object] = _forget
        """Told the slices of each rollout, in order."""

    @property
    def threads(self) -> int:
        """See `Engine`."""
        return self.learner.threads

    # The schedule ---------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """Of the schedule."""
        buffer, run = self.buffer, self.job.config.run
        return Shape(buffer.num_steps, buffer.num_envs, run.max_lag, self.actor.parts)

    def record(self, log: ScheduleLog | None) -> None:
        """Write the slices of each rollout to `log`; None: nowhere."""
        self.note = _forget if log is None else log.append

    def follow(self, schedule: Schedule) -> None:
        """Act with the weights that `schedule` says, from the first rollout on.

        Raises:
            ValueError: it is of other rollouts than these.
        """
        parts = schedule.shape.parts
        possible = 1 <= parts <= min(MOST_GROUPS, schedule.shape.rows)
        if possible and schedule.shape._replace(parts=1) == self.shape._replace(parts=1):
            self.actor.split(parts)  # however many workers there are now
        if schedule.shape != self.shape:
            raise ValueError(
                f"the schedule is one of {schedule.shape}, and this run has {self.shape}; follow "
                "it with the configuration of the run that wrote it, on the same machine"
            )
        self.collector.followed = schedule

    # An iteration ---------------------------------------------------------------------------
    def expect_until(self, end: int) -> None:
        """See `Engine`."""
        self._end = end

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`: give the last rollout's memory back, and take the next."""
        began = time.perf_counter()
        queue = len(self.collector.ready)
        # First, so that a collector that waits for memory finds these weights.
        self._publish(iteration)
        self.collector.give_back()
        found = self.collector.take(iteration, step, self._end)
        self.buffer = found.buffer
        self.learner.use(found.buffer)
        self.job.policy.eval()
        waited = time.perf_counter() - began
        self._renew_values(stale_steps(found.slices, iteration, self.buffer.num_steps))
        self.note(iteration, found.slices)
        now = time.perf_counter()
        lag = lags(found.slices, iteration, self.buffer.num_steps)
        whole = max(now - self._asked_at, 1e-9)
        idle = (found.idle, waited / whole)
        self._figures = dict(zip(ASYNC_METRICS, (*lag, float(queue), *idle), strict=True))
        self._asked_at = now
        return found.episodes

    @torch.no_grad()
    def _renew_values(self, stale: int) -> None:
        """Compute the values of the first `stale` steps with the weights that are trained.

        Advantages compare values of neighbouring steps, which are those of one policy again: with
        all of each rollout one version behind, CartPole took 1.15 times the steps to 400 as they
        were, and 0.98 times so (means of 25 seeds)."""
        if not stale:
            return
        buffer = self.buffer
        if isinstance(buffer.obs, Tensor):
            values = self._values(buffer.obs[:stale].flatten(0, 1))
            buffer.value[:stale] = values.view(stale, -1)
        else:  # stacks that are put together step by step
            for t in range(stale):
                buffer.value[t] = self._values(buffer.obs[t])
        if stale == buffer.num_steps:
            buffer.last_value[:] = self._values(buffer.obs[-1])
        buffer.fill_final_values(self._values)

    def _values(self, obs: Tensor) -> Tensor:
        """Values ``[B]`` of observations, a slice after the other."""
        job, slices = self.job, torch.split(obs, self._slice)
        return torch.cat([job.value(some.to(job.device)) for some in slices])

    def _publish(self, version: int) -> None:
        self._weights.publish(version, version - self.job.config.run.max_lag)
        self._trained = -1

    def advantages(self) -> None:
        """See `Engine`."""
        self.learner.advantages()

    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """See `Engine`; with a figure for each of `ASYNC_METRICS`."""
        found = self.learner.update(iteration, learning_rate, clip)
        self._trained = iteration + 1
        return found | self._figures

    def expect(self, following: Iteration | None) -> None:
        """See `Engine`. What is begun needs no permission: it has a copy of the policy."""

    def retract(self, broken_off: bool = False) -> None:
        """Let the collector finish its rollout and rest, so that environments and rollouts can be
        looked at; it goes on when the next rollout is asked for. After an update the rest of the
        rollout is played with what came of it: who changes the policy does so before. If
        `broken_off`, it rests after its step, and no rollout is kept."""
        if broken_off:
            self._trained = -1
        elif self._trained >= 0:
            self._publish(self._trained)
        self.collector.rest(drop=broken_off)

    # The learner's --------------------------------------------------------------------------
    def keep(self) -> None:
        """See `Engine`."""
        self.learner.keep()

    def undo(self) -> None:
        """See `Engine`."""
        self.learner.undo()
        self._trained = -1

    def timings(self) -> tuple[float, float, float] | None:
        """The calls take as long as the learner needs; collecting: as long as it waits."""
        return None

    # state ----------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """Of the learner, and the rollouts that are ready; to be called after `retract`.

        Raises what an environment raised after them: it would be saved past its failure."""
        self.collector.check()
        return self.learner.state() | arrays_of(list(self.collector.ready))

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Engine`."""
        self.learner.set_state(state)
        self.retract(broken_off=True)
        max_lag, memory = self.job.config.run.max_lag, iter(self._ring).__next__
        self.collector.put_back(read_rollouts(state, max_lag, memory, self.actor.parts))


def _forget(number: int, slices: tuple[Slice, ...]) -> None:
    """Nobody wants to know."""


def stale_steps(slices: tuple[Slice, ...], number: int, num_steps: int) -> int:
    """Steps at the beginning of a rollout in which weights before version `number` acted."""
    last = {one.part: one for one in sorted(slices)}
    return max(num_steps if one.version < number else one.t for one in last.values())


def lags(slices: tuple[Slice, ...], number: int, num_steps: int) -> tuple[float, float]:
    """How many versions behind `number` the weights were: the mean over steps and parts, and the
    most."""
    ends: dict[int, int] = {}
    total = 0
    for one in reversed(slices):
        total += (ends.get(one.part, num_steps) - one.t) * (number - one.version)
        ends[one.part] = one.t
    return total / (num_steps * len(ends)), float(number - min(one.version for one in slices))


def acting_job(job: Job) -> Job:
    """The same job for a copy of the policy, on fewer threads."""
    policy = acting_copy(job.policy)
    return dataclasses.replace(
        job,
        config=job.config.replaced({"run.threads": _acting_threads(job)}),
        policy=policy,
        distribution=getattr(policy, "distribution", None) or job.distribution,
        optimizer=Adam(policy.parameters(), job.config.ppo.adam_eps),
        obs_normalizer=getattr(policy, "obs_normalizer", None),
        return_normalizer=None,
    )


def _acting_threads(job: Job) -> int:
    """Threads that play. A policy's single step needs one; of compiled environments a rollout takes
    about a third of what its update takes."""
    if compiled_batch(job.env) is None:
        return 1
    return max(1, (job.config.run.threads or usable_cores()) // 4)


def why_not_async(job: Job) -> str | None:
    """Why rollouts of a job cannot be collected beside updates, as a sentence; None: they can."""
    if job.env.backend == "cuda":
        return (
            "run.mode=async is for environments in main memory: those on the GPU and their updates "
            "fill the same GPU, one after the other, and the next rollout is launched before the "
            "host has looked at the last; use run.mode=sync"
        )
    if job.env.device.type != "cpu":
        return (
            f"run.mode=async is for environments in main memory, and these are on "
            f"{job.env.device}; use run.mode=sync"
        )
    if job.two_streams and job.env.live_rows() is not None:  # asked again after the rollout
        return (
            "run.mode=async has no intrinsic.separate_value for environments whose rows rest at "
            "times; use run.mode=sync, or intrinsic.separate_value=false"
        )
    return None
