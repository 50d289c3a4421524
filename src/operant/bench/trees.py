"""Source trees to compare: that of a commit, of a folder, and the one that runs.

Each is copied to ``$OPERANT_HOME/compare/<hash of its text>``, so that both sides lie in the same
kind of place, nobody edits a side while it is measured, and what was compiled for it is found the
next time. Both run on the Python and the libraries of this process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import operant
from operant.toolchain import paths
from operant.toolchain.files import temporary_name
from operant.toolchain.machine import commit

_KEPT = 8
"""Trees that stay there, the ones used last."""
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=")
Files = dict[str, bytes]
"""The files of the package by their path below it."""


@dataclass(frozen=True)
class Tree:
    """A copy of a source tree."""

    name: str
    """The commit, or the folder it is from."""
    folder: Path
    """Holds the copy, and what it compiles."""

    is_commit: bool = False

    @property
    def source(self) -> Path:
        """What goes on Python's path."""
        return self.folder / "src"

    @property
    def home(self) -> Path:
        """Its ``$OPERANT_HOME``."""
        return self.folder / "home"


def this_tree() -> Tree:
    """The tree that this process runs."""
    package, name = Path(operant.__file__).parent, commit()
    return replace(_stored(name or str(package), _files_in(package)), is_commit=name is not None)


def other_tree(against: str) -> Tree:
    """The tree of a folder with a checkout or an exported one, or of a commit of the repository
    that this process runs from.

    Raises:
        ValueError: neither; one sentence.
    """
    folder = Path(against)
    for package in (folder / "src" / "operant", folder / "operant"):
        if against and (package / "__init__.py").is_file():
            return _stored(str(folder), _files_in(package))
    if folder.is_dir() and ("/" in against or against in (".", "..")):
        raise ValueError(f"there is no src/operant/__init__.py in the folder {against}")
    return replace(_stored(*_commit(against)), is_commit=True)


def _commit(name: str) -> tuple[str, Files]:
    """A commit's full name and its files. Filters and hooks of the repository do not run."""
    package = Path(operant.__file__).parent
    advice = "give --against a folder with the other source tree"
    try:
        top = _git(package, "rev-parse", "--show-toplevel").decode().strip()
    except OSError as error:
        raise ValueError(f"cannot run git ({error.strerror}); {advice}") from None
    except subprocess.CalledProcessError:
        raise ValueError(
            f"this operant does not run from a git repository, so {name!r} cannot be a commit "
            f"of it; {advice}"
        ) from None
    try:
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        found = _git(Path(top), *asked).decode().strip()
    except (subprocess.CalledProcessError, ValueError):
        raise ValueError(f"{name!r} is neither a commit of {top} nor a source tree") from None
    listed = _git(Path(top), "ls-tree", "-r", "-z", found, "src/operant/").decode()
    entries = [entry.partition("\t") for entry in listed.split("\0") if entry]
    plain = {path: head.split()[2] for head, _, path in entries if head.startswith("100")}
    if "src/operant/__init__.py" not in plain:
        raise ValueError(f"the commit {name} has no src/operant")
    texts = _objects(Path(top), list(plain.values()))
    names = [path.removeprefix("src/operant/") for path in plain]
    return found, dict(zip(names, texts, strict=True))


def _objects(repository: Path, names: list[str]) -> list[bytes]:
    """The contents of objects, as they are stored."""
    rest = _git(repository, "cat-file", "--batch", given="\n".join(names).encode() + b"\n")
    found = []
    for _ in names:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split()[2])
        found.append(rest[:size])
        rest = rest[size + 1 :]
    return found


def _git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return subprocess.run(
        [*_GIT, "-C", str(folder), *arguments],
        input=given,
        capture_output=True,
        check=True,
        timeout=60,
        env={**variables, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"},
    ).stdout


def _files_in(package: Path) -> Files:
    return {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def _stored(name: str, files: Files) -> Tree:
    """The copy of these files, made if it is not there or is no longer what it was."""
    digest = hashlib.sha256()
    for path, text in sorted(files.items()):
        digest.update(f"{path}\0{len(text)}\0".encode() + text)
    every = paths.home() / "compare"
    tree = Tree(name, every / digest.hexdigest()[:16])
    if not tree.source.is_dir() or _files_in(tree.source / "operant") != files:
        shutil.rmtree(tree.folder, ignore_errors=True)
        staged = every / temporary_name(tree.folder.name)
        for path, text in files.items():
            target = staged / "src" / "operant" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
        try:
            staged.rename(tree.folder)
        except OSError:  # somebody else was faster
            shutil.rmtree(staged)
    os.utime(tree.folder)
    _forget_old(every)
    return tree


def _forget_old(every: Path) -> None:
    """Remove all but the trees used last, and what is left of a copy that was broken off."""
    trees = sorted(every.iterdir(), key=lambda one: one.lstat().st_mtime, reverse=True)
    for old in trees[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
