"""Modules from files that no package holds: examples, tools, and text that a test wrote."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load(path: Path, name: str = "") -> Any:
    """The module of a file, run anew, under its stem or another name.

    It is also entered among Python's modules, where whoever reads the source of its functions, or
    unpickles its classes, looks for it.
    """
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
