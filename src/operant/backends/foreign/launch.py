"""Starting the process of a worker: a fresh interpreter, or a fork of a server that has nothing
but the worker's own modules in it."""

from __future__ import annotations

import os
import subprocess
from typing import Protocol

from operant.toolchain.child import python_command, python_environment

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
"""Variables by which libraries are told how many threads to start."""


class Process(Protocol):
    """What is needed of a process; `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None: it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, within this many seconds.
        """

    def kill(self) -> None:
        """End it by force."""


class Launcher(Protocol):
    """Starts processes."""

    def start(self, numbers: tuple[int, ...], fds: tuple[int, ...]) -> Process:
        """A process that runs `operant.backends.foreign.worker.main` with these numbers and open
        files."""

    def close(self) -> None:
        """End what it has besides them."""


class Spawn:
    """Each worker is an interpreter of its own."""

    def start(self, numbers: tuple[int, ...], fds: tuple[int, ...]) -> Process:
        """See `Launcher`."""
        arguments = map(str, (*numbers, *fds))
        return subprocess.Popen(
            python_command("-m", "operant.backends.foreign.worker", *arguments),
            env=worker_environment(),
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            process_group=0,  # with the processes that an environment may start
        )

    def close(self) -> None:
        """See `Launcher`."""


def worker_environment() -> dict[str, str]:
    """The variables of a worker: its libraries use one thread each unless the user says how many,
    since there is a worker for every core."""
    return {name: "1" for name in _THREADS if name not in os.environ} | python_environment()
