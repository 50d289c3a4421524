"""What training on a GPU consists of, whoever launches it.

A program computes the three parts of an iteration where environments, policy and rollout are:
nothing leaves the GPU in between. So nothing in it depends on a value that only the GPU knows:
counts that vary are bounded, choices are masks. One read an iteration brings the figures. It can be
run by any executor: each operation as it is reached, or as CUDA graphs.

Between the end of an update and the next rollout the GPU waits for the host. So there is little in
between: what goes to the GPU, and what comes back, is copied as a part of the work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch

from operant.buffers.triton_scans import discounted_triton
from operant.ppo.engines.backup import Backup
from operant.ppo.engines.figures import FIGURES
from operant.ppo.engines.gpu_memory import GpuMemory
from operant.ppo.kernels.triton.moments import variances
from operant.vector.gpu_env import Results


class GpuProgram(Protocol):
    """Computes `collect`, `advantages` and `update` with the tensors of `memory`.

    What these three launch reads from and writes to the same addresses each time.
    """

    memory: GpuMemory
    restarts: bool
    """Whether a rollout needs `restart` before it, unless it follows an update directly."""
    checks_whole_rollout: bool
    """Whether the check of a rollout, ``memory.checks[0]``, is about all of it. If not, one with a
    figure that is not finite is looked at as a whole."""
    fixed_addresses: bool
    """Whether kernels are told where weights are before an iteration begins."""

    @property
    def precision(self) -> str:
        """Of the networks: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""

    def connect(self) -> None:
        """Find the policy's tensors: someone may have replaced them.

        Raises:
            ValueError: the program cannot train what the policy has become.
        """

    def check_policy(self) -> None:
        """Called while the GPU plays. Raises ValueError as `connect` does."""

    def set_mode(self, training: bool) -> None:
        """Set the policy's mode: layers such as dropout act in updates only."""

    def restart(self) -> None:
        """Tell kernels what an update leaves behind for the next rollout."""

    def collect(self) -> None:
        """Play a rollout, from ``memory.step`` on."""

    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages and targets."""

    def update(self) -> None:
        """Train on the rollout; write ``memory.checks`` and ``memory.figures``."""


@dataclass(frozen=True, eq=False)
class Part:
    """What is launched as a whole: a CUDA graph, if that is how it is executed."""

    name: str
    launch: Callable[[], None]
    """Launches all of it on the current stream."""
    prepare: Callable[[], None] = lambda: None
    """What the host does for it."""


class Parts(NamedTuple):
    """The parts of an iteration; `restart` is none where a program does without."""

    restart: Part | None
    collect: Part
    advantages: Part
    update: Part

    @property
    def all(self) -> list[Part]:
        """Those that there are, in order."""
        return [part for part in self if part is not None]


def parts_of(program: GpuProgram, backup: Backup) -> Parts:
    """The parts of a program, between the copies that belong to them."""

    def collect() -> None:
        backup.save()
        program.collect()

    def update() -> None:
        program.update()
        program.memory.results.fetch()

    return Parts(
        Part("restart", program.restart) if program.restarts else None,
        Part("collect", collect, partial(program.set_mode, False)),
        Part("advantages", program.advantages),
        Part("update", update, partial(program.set_mode, True)),
    )


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Matrix products of float32 are rounded as the precision of a program says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# What programs have in common -----------------------------------------------------------------
@torch.no_grad()
def estimate_advantages(memory: GpuMemory) -> None:
    """Scale the rewards if asked, then estimate advantages."""
    b, ppo, normalizer = memory.buffer, memory.job.config.ppo, memory.job.return_normalizer
    if normalizer is not None:
        # The place of the advantages is free until they are computed.
        discounted_triton(b.reward, b.terminated, b.truncated, memory.carry, ppo.gamma, b.advantage)
        normalizer.update(b.advantage)
        torch.mul(b.reward, normalizer.scale(), out=b.scaled_reward)
    b.compute_advantages(ppo.gamma, ppo.gae_lambda)


def explain_variance(memory: GpuMemory) -> None:
    """What the values do not explain of their targets is the advantages, unless those of bonuses
    were added."""
    b = memory.buffer
    rest = b.advantage if b.intrinsic is None else b.target - b.value
    variances(b.target, rest, memory.variance_parts, memory.checks[2:4])


def begin_update(memory: GpuMemory) -> None:
    """Adam's steps so far; nobody has passed the target KL yet."""
    ppo = memory.job.config.ppo
    memory.count.send()
    memory.steps_taken.copy_(memory.count.gpu)
    memory.active.fill_(1.0)
    memory.checks[1].fill_(0.0 if ppo.target_kl else ppo.epochs)


def begin_epoch(memory: GpuMemory) -> None:
    """Count those that are trained, if not all may be."""
    if memory.job.config.ppo.target_kl:
        memory.checks[1] += memory.active[0]


def end_epoch(memory: GpuMemory, row: int) -> None:
    """Freeze everything once the target KL was passed; `row` figures are known."""
    ppo = memory.job.config.ppo
    if ppo.target_kl:
        kl = memory.figures[row - ppo.minibatches : row, FIGURES.index("kl")].mean()
        memory.active.mul_(kl <= ppo.target_kl)


def step_results(memory: GpuMemory, t: int) -> Results:
    """Where step `t` of a rollout writes."""
    b = memory.buffer
    return Results(
        obs=b.obs[t + 1],
        reward=b.reward[t],
        terminated=b.terminated[t],
        truncated=b.truncated[t],
        final_obs=b.final_obs[t],
        action_mask=b.action_mask[t + 1],
        report=b.report[t],
    )
