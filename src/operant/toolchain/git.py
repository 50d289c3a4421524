"""Which commit a folder is at, without trusting the repository around it.

A repository's own configuration can run programs: ``core.fsmonitor``, hooks, the filters of
``git status``. A folder that was downloaded brings its configuration along, so it is never read:
the commit is read from the repository's files, and git, asked whether anything has changed, gets a
stand-in for the repository with an empty configuration, the same objects and the same index.
Submodules, which have a configuration of their own, are not looked into.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from operant.toolchain.files import read_bounded

_MAX_BYTES = 1 << 24
_HASH = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs(/(?!\.)[\w.+@#-]+)+")
_TIMEOUT_S = 10


class Repository(NamedTuple):
    """Where things are kept: `folder` has HEAD and index, `common` what working trees share."""

    root: Path
    folder: Path
    common: Path


def git_commit(folder: Path) -> str | None:
    """The commit that the repository around `folder` is at; None without one.

    With ``-dirty`` if files have changed or are new, or if that cannot be told.
    """
    try:
        repository = _repository(folder)
        head = None if repository is None else _head(repository)
        if repository is None or head is None:
            return None
    except (OSError, ValueError):
        return None
    try:
        changed = _git(repository, head, "status", "--porcelain", "--ignore-submodules=all")
    except (OSError, subprocess.SubprocessError):
        changed = "unknown"
    return f"{head}-dirty" if changed else head


def is_tracked(path: Path) -> bool:
    """Whether a file belongs to the repository around it."""
    try:
        repository = _repository(path.parent)
        head = None if repository is None else _head(repository)
        if repository is None or head is None:
            return False
        _git(repository, head, "ls-files", "--error-unmatch", "--", str(path.resolve()))
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return True


def _repository(folder: Path) -> Repository | None:
    folder = folder.resolve()
    for root in (folder, *folder.parents):
        found = root / ".git"
        if found.is_file():  # a further working tree, or a submodule
            line = _text(found)
            if not line.startswith("gitdir: "):
                return None
            found = (root / line.removeprefix("gitdir: ")).resolve()
        if (found / "HEAD").is_file():
            common = found
            with suppress(FileNotFoundError):
                common = (found / _text(found / "commondir")).resolve()
            return Repository(root, found, common)
    return None


def _head(repository: Repository) -> str | None:
    """The commit that is checked out; None before the first one."""
    text = _text(repository.folder / "HEAD")
    if text.startswith("ref: "):
        name = text.removeprefix("ref: ")
        if not _REF.fullmatch(name):
            return None
        text = _ref(repository.common, name)
    return text if _HASH.fullmatch(text) else None


def _ref(common: Path, name: str) -> str:
    with suppress(FileNotFoundError, NotADirectoryError):
        return _text(common / name)
    with suppress(FileNotFoundError):
        for line in _text(common / "packed-refs").splitlines():
            if line.endswith(f" {name}"):
                return line.partition(" ")[0]
    return ""


def _text(path: Path) -> str:
    return read_bounded(path, _MAX_BYTES).decode().strip()


def _git(repository: Repository, head: str, *arguments: str) -> str:
    """What a git command prints that has none of the repository's configuration."""
    with tempfile.TemporaryDirectory() as place:
        stand_in = Path(place)
        for name in ("refs", "objects", "info"):
            (stand_in / name).mkdir()
        with suppress(OSError):
            ignored = read_bounded(repository.common / "info" / "exclude", _MAX_BYTES)
            (stand_in / "info" / "exclude").write_bytes(ignored)
        (stand_in / "HEAD").write_text(f"{head}\n")
        (stand_in / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
        mine = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *arguments],
            cwd=repository.root,
            env=mine
            | {
                "GIT_DIR": place,
                "GIT_WORK_TREE": str(repository.root),
                "GIT_INDEX_FILE": str(repository.folder / "index"),
                "GIT_OBJECT_DIRECTORY": str(repository.common / "objects"),
                "GIT_CONFIG_GLOBAL": os.devnull,  # a filter of the user's own would be run too
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_OPTIONAL_LOCKS": "0",  # do not write to the index
                "GIT_NO_LAZY_FETCH": "1",
                "GIT_TERMINAL_PROMPT": "0",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    return done.stdout.strip()
