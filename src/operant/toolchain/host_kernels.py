"""The GPU's C++ kernels run on the host, by the system's compiler: for tests without a GPU."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence

import numpy as np

from operant.toolchain import paths
from operant.toolchain.files import replacing
from operant.toolchain.kernel_cache import locked, used

_OPTIONS = (
    "-std=c++17",
    "-O1",
    "-shared",
    "-fPIC",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-x",
    "c++",
)


def host_compiler() -> str | None:
    """The system's C++ compiler; None without one."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


class HostKernels:
    """As `operant.toolchain.nvrtc.Kernels`, one environment after the other.

    Raises:
        RuntimeError: there is no compiler, or it refused the source.
    """

    def __init__(self, source: str, names: Sequence[str]) -> None:
        compiler = host_compiler()
        if compiler is None:
            raise RuntimeError("a state of arrays needs a C++ compiler to stand in for the GPU")
        digest = hashlib.sha256("\n".join([compiler, *_OPTIONS, source]).encode()).hexdigest()[:24]
        folder = paths.home() / "kernels"
        library = folder / f"host_{digest}.so"
        with locked(folder):
            used(library)
        if not library.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(library) as built:
                command = [compiler, *_OPTIONS, "-", "-o", str(built)]
                found = subprocess.run(command, input=source, capture_output=True, text=True)
                if found.returncode:
                    raise RuntimeError(found.stderr)
        loaded = ctypes.CDLL(str(library))
        self._functions = {name: getattr(loaded, name) for name in names}

    def launch(self, name: str, blocks: int, threads: int, argument: np.ndarray) -> None:
        """Run a kernel; `argument` are the bytes of its argument."""
        self._functions[name](ctypes.c_void_p(argument.ctypes.data))
