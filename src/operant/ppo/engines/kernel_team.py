"""`KernelTeam`: kernels of the fused CPU engine, what they are told, and who runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operant.ppo.kernels.cpu.compilation import load_functions
from operant.ppo.kernels.cpu.kernel_arguments import KernelArguments
from operant.training.threads import Threads


class KernelTeam:
    """Compiled functions and one set of arguments for all of them.

    Args:
        threads: how many there are, at most.
    """

    def __init__(self, threads: int) -> None:
        self.arguments = KernelArguments()
        self.functions: dict[str, Any] = {}
        """Numba's ``CFunc`` by name."""
        self._threads = Threads(threads)

    def load(self, names: Sequence[str]) -> None:
        """Load functions; those that are not cached are compiled."""
        self.functions |= load_functions(names)

    def call(self, name: str) -> None:
        """Call a function that takes the arguments alone."""
        self.functions[name].ctypes(self.arguments.address)

    def run(self, name: str, tile: int, threads: int) -> None:
        """Let a team of `threads` run a function, on tiles of `tile` samples."""
        self.arguments.arrays["control"][:] = 0
        self.arguments.set(tile=tile)
        function, address = self.functions[name].ctypes, self.arguments.address
        self._threads.map(lambda worker: function(worker, address), range(threads))
