"""The entry points, compiled once a machine.

Numba caches a compiled function beside its file and looks at that file alone to tell whether the
cache is up to date. So the files of the entry points are copied to the folder of the environments'
kernels, under names that stand for everything that is compiled into them.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numba

import operant
from operant.vector.numba import load_module

_FILES = {
    "encode": ("encode", "spread"),
    "weights": ("finish", "pack"),
    "rollout": ("collect",),
    "advantages": ("estimate",),
    "update": ("train_epoch",),
}
"""Units whose files have other names than they."""
_ALSO = (
    "lang",
    "buffers/advantages.py",
    "models/names.py",
    "ppo/closed_form.py",
    "vector/numba_philox.py",
)


_FILE_OF = {unit: file for file, units in _FILES.items() for unit in units}


@cache
def load_unit(name: str) -> Any:
    """A compiled unit, Numba's ``CFunc``: from its cache, or compiled now."""
    file = _FILE_OF.get(name, name)
    text = (Path(__file__).parent / f"{file}.py").read_text()
    module = load_module(f"fused_{file}", f"{text}\n# {_fingerprint()}\n")
    return getattr(module, name).compile()


@cache
def _fingerprint() -> str:
    """Stands for all that may be compiled into a unit."""
    here, root = Path(__file__).parent, Path(operant.__file__).parent
    files = sorted(here.glob("*.py"))
    for name in _ALSO:
        path = root / name
        files += sorted(path.glob("*.py")) if path.is_dir() else [path]
    digest = hashlib.sha256(numba.__version__.encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
