"""Modules that were loaded from a file by its path, in a process that looks for them by name.

``operant train game.py:make_env`` loads a file that need not be on Python's path. A worker process
that is sent a function of it imports its module by name, and finds it through these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


def module_files() -> dict[str, str]:
    """Names and files of the modules of this process that another one with the same path would not
    find by name."""
    places = {os.path.abspath(place) for place in sys.path}
    found: dict[str, str] = {}
    known: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(file, str) or not file.endswith(".py"):
            continue
        stem = os.path.abspath(file).removesuffix(".py").removesuffix(os.sep + "__init__")
        ending = os.sep + name.replace(".", os.sep)
        if stem.endswith(ending) and stem.removesuffix(ending) in places:
            continue
        top = name.partition(".")[0]
        if top not in known:
            known[top] = _found_by_name(top)
        if not known[top]:
            found[name] = os.path.abspath(file)
    return found


def _found_by_name(top: str) -> bool:
    """Whether importing a module without a package finds the one that is loaded."""
    loaded = getattr(sys.modules.get(top), "__file__", None)
    for finder in sys.meta_path:
        spec = finder.find_spec(top, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec.origin == loaded and loaded is not None
    return False


class FilesFinder(MetaPathFinder):
    """Finds modules in the files that `module_files` gave, where nothing else finds them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What `importlib` asks for; packages that have no file of their own are empty ones."""
        file = self._files.get(name)
        if file is not None:
            return spec_from_file_location(name, file)
        if any(known.startswith(f"{name}.") for known in self._files):
            return ModuleSpec(name, None, is_package=True)
        return None
