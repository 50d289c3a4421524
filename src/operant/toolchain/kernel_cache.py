"""The folder of compiled kernels: what was not used for long goes, and what makes it too large.

A kernel is a few files with the same stem: source, what Numba compiled of it, or a binary. It was
used last at the latest access time among them. That is set here by hand, since many file systems do
not keep it; the modification time stays, since Numba's compiled code goes by it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from operant.toolchain.file_locks import fcntl

MOST_BYTES = 1 << 30
"""Of all kernels together; those used last stay."""
MOST_AGE_S = 90 * 86400.0
"""A kernel that was not used for so long is removed."""
RECENT_S = 86400.0
"""One that was used within this time stays in any case: it may be in use."""


@contextmanager
def locked(folder: Path, how: int = fcntl.LOCK_SH) -> Iterator[bool]:
    """While this lasts nothing is pruned in `folder`, or with ``fcntl.LOCK_EX`` nothing begins to
    be used. False where there can be no lock: no such folder, or a file system without locks."""
    descriptor, held = -1, False
    try:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, how)
            held = True
        yield held
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def used(path: Path) -> None:
    """Note that a kernel's file is used now. To be called within `locked`."""
    with suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


@lru_cache(maxsize=8)
def prune_once(folder: Path) -> None:
    """Prune `folder`, the first time that this process adds to it. Never raises OSError."""
    with suppress(OSError):
        prune(folder)


def prune(folder: Path) -> list[str]:
    """Remove old kernels, then those used longest ago, until the rest is within `MOST_BYTES`.

    Safe beside processes that use the folder: what they need and do not find they write anew.

    Returns:
        The stems of those removed.

    Raises:
        OSError: the folder cannot be read.
    """
    removed = []
    with locked(folder, fcntl.LOCK_EX) as held:
        kernels = _kernels(folder) if held else {}
        now, total = time.time(), sum(kernel.size for kernel in kernels.values())
        for stem, kernel in sorted(kernels.items(), key=lambda one: one[1].last_use):
            age = now - kernel.last_use
            if age <= RECENT_S or (age <= MOST_AGE_S and total <= MOST_BYTES):
                break
            for path in kernel.paths:
                _remove(path)
            total -= kernel.size
            removed.append(stem)
    return removed


@dataclass
class _Kernel:
    last_use: float = 0.0
    size: int = 0
    paths: list[Path] = field(default_factory=list)


def _kernels(folder: Path) -> dict[str, _Kernel]:
    """All that lies in `folder`, by stem; what killed compilers left too."""
    kernels: dict[str, _Kernel] = {}
    for place in (folder, folder / "__pycache__"):
        if not place.is_dir():
            continue
        for entry in os.scandir(place):
            if entry.name == "__pycache__":
                continue
            with suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                kernel = kernels.setdefault(entry.name.split(".")[0], _Kernel())
                kernel.last_use = max(kernel.last_use, state.st_atime, state.st_mtime)
                kernel.size += state.st_size
                kernel.paths.append(Path(entry.path))
    return kernels


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
