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

    def call(self, name: str, arguments: KernelArguments | None = None) -> None:
        """Call a function that takes the arguments alone; see `run`."""
        self.functions[name].ctypes((arguments or self.arguments).address)

    def run(
        self, name: str, tile: int, threads: int, arguments: KernelArguments | None = None
    ) -> None:
        """Let a team of `threads` run a function, on tiles of `tile` samples; `arguments`: others
        than the common ones."""
        arguments = arguments or self.arguments
        arguments.arrays["control"][:] = 0
        arguments.set(tile=tile)
        function, address = self.functions[name].ctypes, arguments.address
        self._threads.map(lambda worker: function(worker, address), range(threads))
