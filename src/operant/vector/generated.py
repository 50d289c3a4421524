"""Generated source in a folder of its own, loaded as modules.

Compilers keep what they compiled by source file, so the generated source is written to
``$OPERANT_HOME/kernels`` (by default ``~/.operant/kernels``), under a name that holds a hash of its
text. The second start finds both and compiles nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from operant import paths


@lru_cache(maxsize=256)
def load_module(name: str, source: str) -> ModuleType:
    """The module with this text, from memory or from the folder of kernels, where a compiler
    finds what it compiled for the same text before."""
    path = module_path(name, source)
    module_name = path.stem
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Numba looks the module up by name when it loads its cache
    spec.loader.exec_module(module)
    return module


def module_path(name: str, source: str) -> Path:
    """The file with this text, in the folder of kernels; written if it is not there."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    return _write_once(f"operant_kernels_{name}_{digest}.py", source)


def _write_once(filename: str, source: str) -> Path:
    """Write the file unless it is there already: Numba's cache is keyed by its time stamp."""
    for folder in (
        paths.home() / "kernels",
        Path(tempfile.gettempdir()) / f"operant-{os.getuid()}",
    ):
        path = folder / filename
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.exists() and path.read_text() == source:
                return path
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
                file.write(source)
            os.replace(file.name, path)
            return path
        except OSError:
            continue  # a read-only home: compile into the temporary folder
    raise OSError(f"cannot write compiled kernels to {paths.home()}; set OPERANT_HOME")
