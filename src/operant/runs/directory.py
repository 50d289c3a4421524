"""The run directory: where a run keeps everything, and how runs are found.

$OPERANT_HOME/runs/<run_id>/
    config.toml        the resolved configuration
    info.json          versions, machine, commit, command line
    metrics.csv        a row for each iteration        (append-only)
    metrics.jsonl      the same, for other tools        (append-only)
    metrics.mmap       the same, live, for the monitor
    schedule.bin       of an asynchronous run, see `operant.runs.schedule`
    train.log          what happened, in words
    lock               held by the process that trains
    checkpoints/       see `operant.runs.checkpoint`
    tensorboard/ wandb/    where asked for
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.toolchain.file_locks import fcntl
from operant.toolchain.files import (
    check_folder,
    check_plain,
    discard,
    make_folder,
    plain_descriptor,
    read_bounded,
    replace_file,
    sync_folder,
    temporary_name,
    write_synced,
)
from operant.toolchain.paths import home
from operant.toolchain.text import printable

_RESERVED = {"latest", "best"}
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class RunTakenError(ValueError):
    """There is a run of that name already."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is a run {run_id!r} already; choose another --run-id, continue it with "
            f"--resume {run_id}, or remove it with: operant runs rm {run_id}"
        )


@dataclass(frozen=True)
class Run:
    """A run directory. Nothing in it is trusted: reading may raise ValueError or OSError."""

    path: Path

    @property
    def id(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def info_file(self) -> Path:
        """Versions, machine, commit. Written when a run starts or resumes."""
        return self.path / "info.json"

    @property
    def csv_file(self) -> Path:
        """Metrics, a row for each iteration."""
        return self.path / "metrics.csv"

    @property
    def jsonl_file(self) -> Path:
        """Metrics, an object for each iteration."""
        return self.path / "metrics.jsonl"

    @property
    def mmap_file(self) -> Path:
        """Live metrics."""
        return self.path / "metrics.mmap"

    @property
    def schedule_file(self) -> Path:
        """Which weights acted when; of an asynchronous run."""
        return self.path / "schedule.bin"

    @property
    def log_file(self) -> Path:
        """What happened, in words."""
        return self.path / "train.log"

    @classmethod
    def create(cls, run_id: str, config: str = "") -> Run:
        """A new run directory with its configuration, TOML text; it is there whole or not at all.

        Raises:
            ValueError: a name that cannot be one.
            RunTakenError: there is a run of that name.
        """
        check_run_id(run_id)
        path = runs_folder() / run_id
        make_folder(path.parent)
        if path.exists():
            raise RunTakenError(run_id)
        staged = path.with_name(temporary_name(run_id))
        staged.mkdir()
        write_synced(staged / "config.toml", config.encode())
        try:
            staged.rename(path)
        except OSError as error:
            discard(staged)
            if error.errno in _IN_THE_WAY:  # another process was faster
                raise RunTakenError(run_id) from error
            raise
        sync_folder(path.parent)
        return cls(path)

    @classmethod
    def create_free(cls, name: str, config: str = "") -> Run:
        """A new run called `name`, or `name`-2 and so on if that is taken: also by a process that
        looks for a name at the same moment."""
        number = 1
        while True:
            try:
                return cls.create(name if number == 1 else f"{name}-{number}", config)
            except RunTakenError:
                number += 1

    def check(self) -> None:
        """Before anything is written: refuse links and other strange things in place of our own.

        Raises:
            OSError: one is; the error names it.
        """
        for file in (self.config_file, self.info_file, self.csv_file, self.jsonl_file):
            check_plain(file)
        for file in (self.mmap_file, self.schedule_file, self.log_file, self.path / "lock"):
            check_plain(file)
        for name in ("checkpoints", "tensorboard", "wandb"):
            check_folder(self.path / name)

    def remove(self) -> None:
        """Delete the directory; its name goes first, so a kill leaves no half of a run."""
        discard(self.path)

    def write_info(self, info: dict[str, Any]) -> None:
        """Replace ``info.json``."""
        replace_file(self.info_file, json.dumps(info, indent=2).encode())

    def read_info(self) -> dict[str, Any]:
        """``info.json``; empty where it is missing or damaged."""
        try:
            info = json.loads(read_bounded(self.info_file, 1 << 20))
        except (OSError, ValueError, RecursionError):
            return {}
        return info if isinstance(info, dict) else {}

    def origin(self) -> dict[str, Any] | None:
        """Whose weights the run began with: ``run``, ``step`` and ``path``; None if its own."""
        found = self.read_info().get("init_from")
        kinds = {"run": str, "step": int, "path": str}
        if not isinstance(found, dict) or set(found) != set(kinds):
            return None
        return found if all(type(found[key]) is kind for key, kind in kinds.items()) else None

    def log(self, text: str) -> None:
        """Append a line to ``train.log``, with the time."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = printable(text)
        descriptor = plain_descriptor(self.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{stamp}  {line}\n".encode(errors="replace"))
        finally:
            os.close(descriptor)

    def lock(self) -> Lock:
        """Claim the run for this process.

        Raises:
            ValueError: another process has it.
        """
        return Lock(self)

    @property
    def touched(self) -> float:
        """When it was started or resumed last, in seconds since 1970."""
        try:
            return self.info_file.stat().st_mtime
        except OSError:
            return 0.0


class Lock:
    """A claim on a run, until it is closed or forgotten, or the process ends in whatever way.

    Raises:
        ValueError: another process has it.
        OSError: there is something else in the place of the run's file ``lock``.
    """

    def __init__(self, run: Run) -> None:
        self._descriptor = plain_descriptor(run.path / "lock", os.O_WRONLY | os.O_CREAT)
        # A process that was killed while it started another one leaves it the lock for a moment.
        for _ in range(20):
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        else:
            self.close()
            raise ValueError(f"{run.id} is being trained by another process; stop that first")

    def close(self) -> None:
        """Give the run free. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()


def runs_folder() -> Path:
    """Where runs are kept."""
    return home() / "runs"


def check_run_id(run_id: str) -> None:
    """Raise ValueError unless `run_id` can be the name of a run."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", run_id) or run_id in _RESERVED:
        raise ValueError(
            f"a run's name has letters, digits, '.', '_' and '-' only (and is not 'latest'), "
            f"got {run_id!r}"
        )


def run_name(env_id: str) -> str:
    """Environment, date and time."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(env_id.rpartition(":")[2] or env_id).name.lower())
    return f"{stem[:64].strip('-') or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_run_id(env_id: str) -> str:
    """A name that is free now: environment, date and time."""
    name, number = run_name(env_id), 1
    while (runs_folder() / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return name if number == 1 else f"{name}-{number}"


def list_runs() -> list[Run]:
    """All runs, the one started or resumed last at the end."""
    try:
        paths = [p for p in runs_folder().iterdir() if p.is_dir() and not p.is_symlink()]
    except OSError:
        return []
    runs = [Run(p) for p in paths if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", p.name)]
    return sorted(runs, key=lambda run: (run.touched, run.id))


def find_run(name: str) -> Run:
    """The run of that name, the one at that path, or for ``"latest"`` the last one.

    Raises:
        ValueError: there is none; the message names the nearest.
    """
    import difflib

    runs = list_runs()
    if name == "latest":
        if not runs:
            raise ValueError("there are no runs yet; start one: operant train CartPole-v1")
        return runs[-1]
    for run in runs:
        if run.id == name:
            return run
    path = Path(name)
    if path.is_dir() and (path / "config.toml").is_file():
        return Run(path.resolve())  # with a name, for "." too
    near = difflib.get_close_matches(name, [run.id for run in runs], 1)
    hint = f"did you mean {near[0]}?" if near else "`operant runs` lists them"
    raise ValueError(f"there is no run {name!r}; {hint}")
