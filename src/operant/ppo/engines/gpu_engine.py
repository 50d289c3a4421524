"""An engine on a GPU: a program, and an executor that launches it.

This is the host's side of an iteration: what the GPU is told, when its parts are launched, and the
one wait at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from operant.ppo.engines.backup import Backup
from operant.ppo.engines.executors import Executor
from operant.ppo.engines.figures import FIGURES, report
from operant.ppo.engines.gpu_episodes import GpuEpisodes
from operant.ppo.engines.gpu_program import GpuProgram, parts_of
from operant.ppo.engines.host_transfers import PhaseTimer
from operant.ppo.job import Iteration
from operant.ppo.kernels.cpu.shuffle import shuffle_keys_of_many
from operant.training.episodes import Episodes
from operant.training.guard import check_device_rollout

KEYS = 64
"""Iterations whose keys are computed at once."""


class GpuEngine:
    """See `operant.ppo.job.Engine`.

    Args:
        name: as the configuration calls it.
        program: what is computed.
        executor: of this program.
        backup: of the program's memory.
    """

    threads = 1

    def __init__(self, name: str, program: GpuProgram, executor: Executor, backup: Backup) -> None:
        self.name, self.program, self.executor, self.backup = name, program, executor, backup
        self.memory = memory = program.memory
        self.job, self.buffer = memory.job, memory.buffer
        self._parts = parts_of(program, backup)
        self._timer = PhaseTimer(memory.device)
        self._summary: np.ndarray | None = None
        self._under_way = False
        self._keys_for = self._key_block = -1  # the iteration whose keys are known; its block
        self._connect()

    def _connect(self) -> None:
        """Find the policy's tensors: these are the first, or someone replaced them."""
        self.program.connect()
        self.memory.addresses.note()
        self.backup.connect()
        self.executor.connect(self._parts.all)

    @property
    def precision(self) -> str:
        """Of the networks: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""
        return self.program.precision

    @property
    def compiled(self) -> bool:
        """Whether `torch.compile` fused operations."""
        return self.executor.compiled

    # collect --------------------------------------------------------------------------------
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`. The episodes are read from the GPU when looked at."""
        self.start(iteration, step)
        self.program.check_policy()  # while the GPU plays
        return GpuEpisodes(self)

    def start(self, iteration: int, step: int) -> None:
        """Let the GPU play, from step `step` on, after someone may have changed anything."""
        if self._under_way:
            self.memory.synchronize()  # the last iteration was broken off before its wait
        if self.memory.addresses.changed():
            self._connect()
        self._summary = None
        self._tell(iteration, step)
        if self._parts.restart is not None:
            self.executor.run(self._parts.restart)
        self._play()

    def go_on(self, iteration: int, step: int) -> None:
        """Let the GPU play on: an update has just ended, and nobody has changed anything."""
        assert step == self.memory.step.host[0] + self.buffer.num_steps  # as on the GPU
        self._tell(iteration, step)
        self._play()

    def _tell(self, iteration: int, step: int) -> None:
        """Write what the GPU will be sent."""
        self.memory.step.host[0] = step
        if self._keys_for != iteration:
            self.find_keys(iteration)
        self.memory.keys.host[:] = self._next_keys

    def _play(self) -> None:
        self._under_way = True
        self._timer.record(0)
        self.executor.run(self._parts.collect)
        self._timer.record(1)

    def find_keys(self, iteration: int) -> None:
        """Look up the keys of the orders of an iteration. Those of many are computed at once."""
        block, place = divmod(iteration, KEYS)
        if block != self._key_block:
            seed, epochs = self.job.config.run.seed, self.job.config.ppo.epochs
            found = shuffle_keys_of_many(seed, block * KEYS, KEYS, epochs)
            self._many_keys, self._key_block = found.view(np.int64), block
        self._next_keys, self._keys_for = self._many_keys[place], iteration

    def read_recent(self) -> np.ndarray:
        """Number of episodes, then returns and lengths of the last: from the GPU, if need be."""
        recent = self.memory.recent
        if self._summary is None:
            return recent.cpu().numpy()
        return self._summary[: recent.numel()]

    def forget_results(self) -> None:
        """What is known is of an iteration before the one that is now asked for."""
        self._summary = None

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages."""
        self.memory.count.host[0] = self.job.optimizer.count
        self.executor.run(self._parts.advantages)
        self._timer.record(2)

    # update ---------------------------------------------------------------------------------
    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Epochs over shuffled minibatches; see `Engine`.

        Raises:
            RuntimeError: the policy has other tensors than when the rollout was collected, and the
                engine trains those that it knew.
        """
        self.check_addresses()
        self.train(learning_rate, clip)
        self.find_keys(iteration + 1)  # while the GPU works
        return self.figures(self.wait(), iteration)

    def check_addresses(self) -> None:
        """Raise RuntimeError as `update` does."""
        fixed = self.program.fixed_addresses or self.executor.fixed_addresses
        if fixed and self.memory.addresses.changed():
            raise RuntimeError(
                "the policy's tensors were replaced after its rollout was collected; "
                "do that in on_update, or change them in place"
            )

    def train(self, learning_rate: float, clip: float) -> None:
        """Let the GPU train."""
        self.memory.rates.host[:] = learning_rate, clip
        self.executor.run(self._parts.update)
        self._timer.record(3)

    def wait(self) -> np.ndarray:
        """The one wait of an iteration: for figures, episodes, and whether all was well; float64,
        see ``GpuMemory.results``."""
        self._timer.wait()
        self._under_way = False
        # A copy: the next iteration writes there.
        summary = self._summary = self.memory.results.host.copy()
        self.job.optimizer.count = int(summary[self.memory.recent.numel() + 4])
        return summary

    def figures(self, summary: np.ndarray, iteration: int) -> dict[str, float]:
        """What `update` reports, after the NaN guard."""
        memory, guarded = self.memory, self.job.config.run.nan_guard
        recent, known = memory.recent.numel(), memory.recent.numel() + memory.checks.numel()
        bad, epochs, spread, unexplained, _ = summary[recent:known].tolist()
        if guarded and not math.isfinite(bad):
            check_device_rollout(self.buffer, iteration)
        rows = summary[known:].reshape(-1, len(FIGURES))
        rows = rows[: round(epochs) * self.job.config.ppo.minibatches]
        if guarded and not self.program.checks_whole_rollout and not np.isfinite(rows).all():
            check_device_rollout(self.buffer, iteration)
        found = report(self.job, self.buffer, rows, iteration)
        found["explained_variance"] = 1 - unexplained / spread if spread > 0 else float("nan")
        memory.env.check_rules()  # the GPU was waited for already
        return found

    # an iteration before it is asked for: see `Lookahead` -----------------------------------
    def expect_until(self, end: int) -> None:
        """See `Engine`."""

    def expect(self, following: Iteration | None) -> None:
        """See `Engine`. Nothing is begun."""

    def retract(self, broken_off: bool = False) -> None:
        """See `Engine`."""

    # the way back ---------------------------------------------------------------------------
    def keep(self) -> None:
        """See `Engine`. The rollout begins with the copies."""
        self._count_before = self.job.optimizer.count

    def undo(self) -> None:
        """Put the copies back; see `Engine`."""
        self.backup.restore_trained()
        self.job.optimizer.count = self._count_before

    def take_back(self, count: int) -> None:
        """Put back all that the iteration under way changed, but for the buffer.

        Args:
            count: Adam's steps before it.
        """
        self.job.optimizer.count = count
        with self.memory.on_device():
            self.backup.restore()
        self.memory.synchronize()
        self._under_way = False

    def timings(self) -> tuple[float, float, float] | None:
        """Seconds of the last iteration's parts, on the GPU's clock."""
        return self._timer.seconds()

    # state ----------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """The running returns of the reward normalisation."""
        return {"return_carry": self.memory.carry.cpu().numpy().copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Engine`."""
        carry, own = state.get("return_carry"), self.memory.carry
        if not isinstance(carry, np.ndarray) or carry.shape != tuple(own.shape):
            raise ValueError(f"return_carry must have shape {tuple(own.shape)}")
        own.copy_(torch.from_numpy(carry.astype(np.float32)))
