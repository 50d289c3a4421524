"""An iteration that has begun before it is asked for.

Between two iterations the host reads figures, counts episodes and calls back, and within one it
checks the policy and launches what comes next: the GPU would wait for it. Where nobody looks at
anything but figures, all of the next iteration is launched as soon as the last one is known to be
good. Whoever looks after all gets it taken back: what an iteration changes is copied before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.ppo.engines.gpu_engine import GpuEngine
from operant.ppo.engines.gpu_episodes import GpuEpisodes
from operant.ppo.job import Iteration
from operant.training.episodes import Episodes


class Lookahead:
    """See `operant.ppo.job.Engine`.

    Args:
        engine: what computes. Its iterations change the environments, what is trained, and its own
            memory, but no random generator; its backup is of all that.
    """

    def __init__(self, engine: GpuEngine) -> None:
        self.engine = engine
        self.name, self.threads = engine.name, engine.threads
        self.job, self.buffer = engine.job, engine.buffer
        self._expected: Iteration | None = None
        self.begun: Iteration | None = None
        """What was launched without being asked for."""
        self._adopted: Iteration | None = None  # the same, once it was asked for, until it ended
        self._count_at_start = 0  # Adam's steps before it

    @property
    def precision(self) -> str:
        """Of the networks: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""
        return self.engine.precision

    @property
    def compiled(self) -> bool:
        """Whether `torch.compile` fused operations."""
        return self.engine.compiled

    def expect_until(self, end: int) -> None:
        """See `Engine`. It looks one iteration ahead, at those that `expect` is told of."""

    def expect(self, following: Iteration | None) -> None:
        """See `Engine`."""
        self._expected = following

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`."""
        begun, engine = self.begun, self.engine
        if begun is None or begun[:2] != (iteration, step) or engine.memory.addresses.changed():
            self.retract()
            return engine.collect(iteration, step)
        self._adopted, self.begun = begun, None
        engine.forget_results()
        engine.program.check_policy()  # while the GPU plays
        return GpuEpisodes(engine)

    def advantages(self) -> None:
        """See `Engine`."""
        if self._adopted is None:
            self.engine.advantages()

    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """See `Engine` and `GpuEngine.update`."""
        engine = self.engine
        engine.check_addresses()
        self._train(learning_rate, clip)
        engine.find_keys(iteration + 1)  # while the GPU works
        summary = engine.wait()
        self._adopted = None
        self._begin_expected(summary)
        return engine.figures(summary, iteration)

    def _train(self, learning_rate: float, clip: float) -> None:
        adopted = self._adopted
        if adopted is not None and adopted[2:] == (learning_rate, clip):
            return
        if adopted is not None:  # someone changed the configuration: once more
            self.retract(broken_off=True)
            self.engine.start(*adopted[:2])
            self.engine.advantages()
        self.engine.train(learning_rate, clip)

    def _begin_expected(self, summary: np.ndarray) -> None:
        """Launch what was announced, unless the results of the last iteration are not finite."""
        following, self._expected = self._expected, None
        if following is None or not np.isfinite(summary).all():
            return
        self.engine.go_on(following.number, following.step)
        self.begun, self._count_at_start = following, self.job.optimizer.count
        self.engine.advantages()
        self.engine.train(following.learning_rate, following.clip)

    def retract(self, broken_off: bool = False) -> None:
        """See `Engine`. The buffer keeps the rollout."""
        self._expected = None
        if self.begun is None and not (broken_off and self._adopted is not None):
            return
        self.begun = self._adopted = None
        self.engine.take_back(self._count_at_start)

    # What is the same with and without ------------------------------------------------------
    def keep(self) -> None:
        """See `Engine`."""
        self.engine.keep()

    def undo(self) -> None:
        """See `Engine`."""
        self.engine.undo()

    def timings(self) -> tuple[float, float, float] | None:
        """See `Engine`."""
        return self.engine.timings()

    def state(self) -> dict[str, np.ndarray]:
        """See `Engine`."""
        return self.engine.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Engine`."""
        self.engine.set_state(state)
