"""An iteration that has begun before it is asked for.

Between two iterations the host reads figures, counts episodes and calls back, and within one it
checks the policy and launches what comes next: the card would wait for it. Where nobody looks at
anything but figures, all of the next iteration is launched as soon as the last one is known to be
good. Whoever looks after all gets it taken back: what an iteration changes is copied before.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import torch
from torch import Tensor

from operant.ppo.engines.device import DeviceEngine, DeviceEpisodes, copy_all
from operant.ppo.job import Episodes, Plan
from operant.ppo.kernels.triton.copies import Copies


class AheadEngine(DeviceEngine):
    """An engine whose iterations change the environments, what is trained, and its own memory, but
    no random generator."""

    _expected: Plan | None = None
    _begun: Plan | None = None
    """What was launched without being asked for."""
    _adopted: Plan | None = None
    """The same, once it was asked for, until it has ended."""
    _next_step = -1
    """Where the next rollout begins, as the card counts."""

    def _to_keep(self) -> list[Tensor]:
        return [*self._trained(), self._carry, *self.env.memory()]

    def _find_tensors(self) -> None:
        super()._find_tensors()
        self._copy = Copies(self._before, self._own)

    def _keep(self) -> None:
        self._copy()

    def expect(self, plan: Plan | None) -> None:
        """See `Engine`."""
        self._expected = plan

    def _wait(self) -> np.ndarray:
        summary = super()._wait()
        self._adopted = None
        plan, self._expected = self._expected, None
        # The sum of good numbers may overflow; then the next one waits.
        if plan is not None and plan.step == self._next_step and isfinite(np.add.reduce(summary)):
            self._begun = plan
            self._play(plan.iteration, plan.step)
            super().advantages()
            self._train(plan.learning_rate, plan.clip)
        return summary

    def _begin(self, iteration: int, step: int) -> None:
        """Play, after someone may have changed anything."""
        self._told_step.host[0] = step
        self._told_rates.host[2] = self.job.optimizer.count
        self._run("ready")
        self._play(iteration, step)

    def _play(self, iteration: int, step: int) -> None:
        """Play after an update."""
        super()._begin(iteration, step)
        self._next_step = step + self.buffer.num_steps

    def _ready(self) -> None:
        """Tell kernels what an update leaves behind for the next rollout: for the first."""
        self._told_step.send()
        self._told_rates.send()
        self._taken.copy_(self._rates[2:])

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`."""
        plan = self._begun
        if plan is None or plan[:2] != (iteration, step) or self._places.changed():
            self.retract()
            return super().collect(iteration, step)
        self._adopted, self._begun, self._summary = plan, None, None
        return DeviceEpisodes(self)

    def advantages(self) -> None:
        """See `Engine`."""
        if self._adopted is None:
            super().advantages()

    def _train(self, learning_rate: float, clip: float) -> None:
        plan = self._adopted
        if plan is not None and plan[2:] == (learning_rate, clip):
            return
        if plan is not None:  # someone changed the configuration: once more
            self.retract()
            super().collect(plan.iteration, plan.step)
            super().advantages()
        super()._train(learning_rate, clip)

    def undo(self) -> None:
        """See `Engine`. The environments stay where something went wrong."""
        super().undo()
        self._adopted = None

    @torch.no_grad()
    def retract(self) -> None:
        """See `Engine`. The buffer keeps the rollout."""
        if self._begun is not None or self._adopted is not None:
            self._begun = self._adopted = None
            with self._on_device():
                copy_all(self._own, self._before)
