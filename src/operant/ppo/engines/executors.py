"""How the parts of a program are launched: see also `operant.ppo.engines.captured_graph`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from operant.ppo.engines.gpu_program import GpuProgram, Part, matmul_precision


class Executor(Protocol):
    """Launches parts of a program. Must be told of all of them first."""

    fixed_addresses: bool
    """Whether it launches with the addresses that it met when it was connected."""
    compiled: bool
    """Whether `torch.compile` fused operations."""

    def connect(self, parts: Sequence[Part]) -> None:
        """Make `parts` ready to run, with the tensors that the policy has now."""

    def run(self, part: Part) -> None:
        """Launch a part, one of those that it was told of."""


class DirectExecutor:
    """Launches each operation when the program reaches it."""

    fixed_addresses = False
    compiled = False

    def __init__(self, program: GpuProgram) -> None:
        self._program = program

    def connect(self, parts: Sequence[Part]) -> None:
        """See `Executor`."""

    def run(self, part: Part) -> None:
        """See `Executor`."""
        part.prepare()
        with self._program.memory.on_device(), matmul_precision(self._program.precision):
            part.launch()
