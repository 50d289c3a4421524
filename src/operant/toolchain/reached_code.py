"""Which files of this package a module reaches by its imports, and a digest of their text.

A compiled kernel holds the code of every module that it reaches, whoever defined it: a helper, a
constant, a function three imports away. Compilers' caches look at one file alone, so kernels are
cached under this digest, and editing anything that a kernel could hold makes another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The folder of the package."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from (operant[\w.]*) import (\([^)]*\)|[^\n]*)|import (operant[\w.]*))",
    re.MULTILINE,
)
"""An import at the top, in a function, or in a text that is to be compiled."""


def reached_files(modules: Iterable[str], text: str = "") -> list[Path]:
    """The files of `modules`, of what `text` imports, and of all that these import, sorted.

    Imports inside functions count, and so do those in strings: generated source begins with some.
    A package is reached where one of its names is imported from it, not by its modules.

    Raises:
        FileNotFoundError: a module is none of this package.
    """
    open_ = [*map(_file, modules), *_imports(text)]
    found: set[Path] = set()
    while open_:
        path = open_.pop()
        if path not in found:
            found.add(path)
            open_ += _imports(_text(path))
    return sorted(found)


def reached_digest(modules: Iterable[str], text: str = "") -> str:
    """A digest, 64 hexadecimal digits, of names and text of `reached_files`."""
    digest = hashlib.sha256()
    for path in reached_files(modules, text):
        digest.update(f"{path.relative_to(ROOT)}\n{_text(path)}\0".encode())
    return digest.hexdigest()


@cache
def _text(path: Path) -> str:
    """What a file says: read once, as this process imports it once."""
    return path.read_text()


@cache
def _imports(text: str) -> tuple[Path, ...]:
    found: list[Path] = []
    for package, names, module in _IMPORT.findall(text):
        if module:
            found.append(_file(module))
            continue
        for name in re.findall(r"\w+(?:\s+as\s+\w+)?", re.sub(r"#[^\n]*", "", names)) or ["*"]:
            found.append(_module_or_none(f"{package}.{name.split()[0]}") or _file(package))
    return tuple(found)


def _file(module: str) -> Path:
    found = _module_or_none(module)
    if found is None:
        raise FileNotFoundError(f"operant has no module {module!r}")
    return found


@cache
def _module_or_none(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split(".")[1:])
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)
