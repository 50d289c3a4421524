"""Training in a process of its own, which outlives the terminal."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

from operant.cli.screen import UserError, errors, literal, printable
from operant.runs.directory import Run
from operant.runs.metrics_file import MetricsReader
from operant.toolchain.child import python_command, python_environment
from operant.toolchain.files import make_folder, open_plain, read_bounded
from operant.toolchain.paths import home

_LAST = 4096  # bytes of what it printed, shown if it fails


def start_detached(arguments: list[str], run: Run) -> None:
    """Start ``operant train`` with `arguments`; returns as soon as it trains `run`.

    What it prints goes to ``$OPERANT_HOME/detached/<run's id>.log``.

    Raises:
        UserError: it ended before it trained; the message is its own.
    """
    folder = home() / "detached"
    make_folder(folder)
    output = folder / f"{run.id}.log"
    with open(output, "wb") as file:
        process = subprocess.Popen(
            python_command("-m", "operant", "train", *arguments),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with errors.status(f"starting {literal(run.id)}"):
        while not _trains(run, process.pid):
            code = process.poll()
            if code is not None and not _trains(run, process.pid):
                if code == 0:
                    break  # so short that it is over
                raise UserError(_own_words(output) or f"the training ended with code {code}")
            time.sleep(0.02)


def _trains(run: Run, pid: int) -> bool:
    try:
        with MetricsReader(run.mmap_file) as reader:
            found: int = reader.read().pid
        return found == pid or _parent(found) == pid  # rank 0, of several
    except (OSError, ValueError, psutil.Error):
        return False


def _parent(pid: int) -> int:
    found: int = psutil.Process(pid).ppid()  # type: ignore[no-untyped-call]
    return found


def _own_words(output: Path) -> str:
    """The last line that it printed, without its name in front."""
    try:
        with open_plain(output):
            text = read_bounded(output, 1 << 24)[-_LAST:].decode(errors="replace")
    except (OSError, ValueError):
        return ""
    lines = [printable(line).strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("operant: ") if lines else ""
