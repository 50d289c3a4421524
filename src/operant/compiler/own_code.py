"""Which code is the author's, and which a library's."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

_PACKAGES = f"{os.sep}site-packages{os.sep}"
"""Also those of another Python, which a ``.pth`` file or PYTHONPATH brings in."""
_LIBRARIES = (
    f"{Path(__file__).parents[1]}{os.sep}",
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen ",
)


def is_library(file: str) -> bool:
    """Whether a file is of this package, of Python's library or of an installed package."""
    return file.startswith(_LIBRARIES) or _PACKAGES in file


def is_own(value: type) -> bool:
    """Whether a class is the author's. One of a notebook has no file."""
    module = value.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    return not is_library(file)
