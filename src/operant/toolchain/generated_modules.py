"""Generated source in a folder of its own, loaded as modules.

Compilers keep what they compiled by source file, so the generated source is written to
``$OPERANT_HOME/kernels`` (by default ``~/.operant/kernels``), under a name that holds a hash of its
text and of all that it imports. The second start finds both and compiles nothing.
`kernel_cache` keeps the folder small.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from operant.toolchain import paths
from operant.toolchain.files import replacing
from operant.toolchain.kernel_cache import locked, prune_once, used
from operant.toolchain.reached_code import reached_digest


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
    """The file with this text, in the folder of kernels; written if it is not there.

    Its name changes with the text, and with any code of this package that the text reaches.
    """
    whole = f"{source}{reached_digest((), source)}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return _write_once(f"operant_kernels_{name[:64]}_{digest}.py", source)  # 255 at most


def _write_once(filename: str, source: str) -> Path:
    """Write the file unless it is there already: Numba's cache is keyed by its time stamp."""
    home = paths.home() / "kernels"
    for folder in (home, Path(tempfile.gettempdir()) / f"operant-{os.getuid()}"):
        path = folder / filename
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(folder, os.W_OK):
                continue
            if folder != home:
                if not _is_ours(folder):
                    continue
                _adopt(home, filename, source, folder)
            with locked(folder):
                if path.exists() and path.read_text() == source:
                    used(path)
                    return path
                with replacing(path) as staged:
                    staged.write_text(source)
            prune_once(folder)
            return path
        except OSError:
            continue  # a read-only home: compile into the temporary folder
    raise OSError(f"cannot write compiled kernels to {paths.home()}; set OPERANT_HOME")


def _is_ours(folder: Path) -> bool:
    """Whether nobody else put a folder there where all may write: what it holds is run."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()


def _adopt(home: Path, filename: str, source: str, folder: Path) -> None:
    """Copy a file from a home that cannot be written to, with what was compiled from it."""
    there = home / filename
    if (folder / filename).exists() or not (there.exists() and there.read_text() == source):
        return
    shutil.copy2(there, folder)  # with its time stamp, which the compiled code goes by
    (folder / "__pycache__").mkdir(exist_ok=True)
    for compiled in (home / "__pycache__").glob(f"{there.stem}.*"):
        shutil.copy2(compiled, folder / "__pycache__")
