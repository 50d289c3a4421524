"""An iteration that has begun before it is asked for.

Between two iterations the host reads figures, counts episodes and calls back, and within one it
checks the policy and launches what comes next: the card would wait for it. Where nobody looks at
anything but figures, all of the next iteration is launched as soon as the last one is known to be
good. Whoever looks after all gets it taken back: what an iteration changes is copied before.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operant.ppo.engines.device import CARRY_BYTES, DeviceEngine, DeviceEpisodes, copy_all
from operant.ppo.job import Episodes, Iteration
from operant.ppo.kernels.triton.copies import Copies


class AheadEngine(DeviceEngine):
    """An engine whose iterations change the environments, what is trained, and its own memory, but
    no random generator."""

    _expected: Iteration | None = None
    _begun: Iteration | None = None
    """What was launched without being asked for."""
    _adopted: Iteration | None = None
    """The same, once it was asked for, until it has ended."""
    _count_at_start = 0
    """Adam's steps before it."""

    def _to_keep(self) -> list[Tensor]:
        return [*self._trained(), self._carry, *self.env.memory()]

    def _bytes_per_env(self) -> int:
        copied = sum(kept.nbytes for kept in self.env.memory()) // self.env.num_envs
        return super()._bytes_per_env() + copied + CARRY_BYTES

    def _find_tensors(self) -> None:
        super()._find_tensors()
        self._copy = Copies(self._before, self._own)

    def _keep(self) -> None:
        self._copy()

    def expect(self, following: Iteration | None) -> None:
        """See `Engine`."""
        self._expected = following

    def _wait(self) -> np.ndarray:
        summary = super()._wait()
        self._adopted = None
        following, self._expected = self._expected, None
        if following is not None and np.isfinite(summary).all():
            assert following.step == self._told_step.host[0] + self.buffer.num_steps  # on the card
            self._tell(following.number, following.step)
            self._play()
            self._begun, self._count_at_start = following, self.job.optimizer.count
            super().advantages()
            super()._train(following.learning_rate, following.clip)
        return summary

    def _begin(self, iteration: int, step: int) -> None:
        """Play, after someone may have changed anything."""
        self._tell(iteration, step)
        self._run("ready")
        self._play()

    def _ready(self) -> None:
        """Tell kernels what an update leaves behind for the next rollout."""
        self._told_step.send()

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`."""
        begun = self._begun
        if begun is None or begun[:2] != (iteration, step) or self._places.changed():
            self.retract()
            return super().collect(iteration, step)
        self._adopted, self._begun, self._summary = begun, None, None
        return DeviceEpisodes(self)

    def advantages(self) -> None:
        """See `Engine`."""
        if self._adopted is None:
            super().advantages()

    def _train(self, learning_rate: float, clip: float) -> None:
        adopted = self._adopted
        if adopted is not None and adopted[2:] == (learning_rate, clip):
            return
        if adopted is not None:  # someone changed the configuration: once more
            self.retract(broken_off=True)
            super().collect(*adopted[:2])
            super().advantages()
        super()._train(learning_rate, clip)

    @torch.no_grad()
    def retract(self, broken_off: bool = False) -> None:
        """See `Engine`. The buffer keeps the rollout."""
        self._expected = None
        if self._begun is None and not (broken_off and self._adopted is not None):
            return
        self._begun = self._adopted = None
        self.job.optimizer.count = self._count_at_start
        with self._on_device():
            copy_all(self._own, self._before)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._under_way = False
