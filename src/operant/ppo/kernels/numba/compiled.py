"""The entry points, compiled once a machine.

Numba caches a compiled function beside its file and looks at that file alone to tell whether the
cache is up to date. So the files of the entry points are copied to the folder of the environments'
kernels, under names that stand for everything that is compiled into them.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numba

import operant
from operant.vector.numba import load_module

_ENTRIES = ("rollout", "advantages", "update")
_ALSO = ("lang", "buffers/advantages.py", "ppo/closed_form.py", "models/names.py", "vector/numba_philox.py")


class Kernels(NamedTuple):
    """Compiled functions of ``(worker, table address)``; `pack` of the table's address."""

    collect: Any
    estimate: Any
    train_epoch: Any
    pack: Any


@lru_cache(maxsize=1)
def load_kernels() -> Kernels:
    """The entry points; what is not cached is compiled when it is first called."""
    here, root = Path(__file__).parent, Path(operant.__file__).parent
    files = sorted(here.glob("*.py"))
    for name in _ALSO:
        path = root / name
        files += sorted(path.glob("*.py")) if path.is_dir() else [path]
    digest = hashlib.sha256(numba.__version__.encode())
    for path in files:
        digest.update(path.read_bytes())
    modules = {}
    for name in _ENTRIES:
        text = (here / f"{name}.py").read_text()
        modules[name] = load_module(f"fused_{name}", f"{text}\n# {digest.hexdigest()}\n")
    update = modules["update"]
    return Kernels(
        modules["rollout"].collect, modules["advantages"].estimate, update.train_epoch, update.pack
    )
