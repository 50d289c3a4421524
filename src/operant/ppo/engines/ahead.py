"""A rollout that has begun before it is asked for.

Between two iterations the host reads figures, counts episodes and calls back, and the card would
wait for it. Where nobody looks at anything but figures, the next rollout begins as soon as the last
update is known to be good. Whoever looks after all gets it taken back: what a rollout changes is
copied before.
"""

from __future__ import annotations

import numpy as np
import torch

from operant.ppo.engines.device import DeviceEngine, DeviceEpisodes, copy_all
from operant.ppo.job import Episodes, Job
from operant.ppo.kernels.triton.copies import Copies
from operant.vector.cuda import CudaVecEnv


class AheadEngine(DeviceEngine):
    """An engine whose rollouts change environments and nothing else: no layer of the policy, and no
    random generator."""

    def __init__(self, job: Job) -> None:
        assert isinstance(job.env, CudaVecEnv)
        self._played = job.env.memory()
        self._unplayed = [torch.empty_like(tensor) for tensor in self._played]
        self._expected: int | None = None
        self._begun: int | None = None  # the step at which a rollout began that nobody asked for
        super().__init__(job)

    def expect(self, step: int | None) -> None:
        """See `Engine`."""
        self._expected = step

    def _find_tensors(self) -> None:
        super()._find_tensors()
        self._copy = Copies([*self._before, *self._unplayed], [*self._own, *self._played])

    def _copy_trained(self) -> None:
        self._copy()  # the environments too

    def _wait(self) -> np.ndarray:
        summary = super()._wait()
        expected, self._expected = self._expected, None
        if expected is not None and np.isfinite(summary).all():
            self._begin(expected)
            self._begun = expected
        return summary

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`."""
        if self._begun != step or self._places.changed():
            self.retract()
            return super().collect(iteration, step)
        self._begun = self._expected = self._summary = None
        return DeviceEpisodes(self)

    @torch.no_grad()
    def retract(self) -> None:
        """See `Engine`. The buffer keeps the rollout."""
        if self._begun is not None:
            self._begun = None
            with self._on_device():
                copy_all(self._played, self._unplayed)
            self._prepare("update")
