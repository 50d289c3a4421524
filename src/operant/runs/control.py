"""Ask the process of a run to stop. What a run's files say about it is not believed unchecked."""

from __future__ import annotations

import os
import signal

from operant.runs.directory import Run
from operant.runs.metrics_file import MetricsReader


def trainer_of(run: Run) -> int | None:
    """The process that trains `run` now; None if there is none, or on another host.

    The metrics name a process; that it is the one is seen from the run's lock, which it has open.
    """
    import psutil

    try:
        with MetricsReader(run.mmap_file) as reader:
            live = reader.read()
        if not live.status.live or not live.alive:
            return None
        opened = psutil.Process(live.pid).open_files()  # type: ignore[no-untyped-call]
    except (OSError, ValueError, psutil.Error):
        return None
    lock = run.path.resolve() / "lock"  # not what a link of that name leads to
    return live.pid if any(os.path.realpath(file.path) == str(lock) for file in opened) else None


def ask_to_stop(run: Run) -> int:
    """Send SIGTERM to the process that trains `run`: it finishes its iteration, saves and ends.
    The process's number.

    Raises:
        ValueError: nobody trains it here.
        OSError: it belongs to somebody else.
    """
    pid = trainer_of(run)
    if pid is None:
        raise ValueError(f"{run.id} is not being trained on this machine")
    os.kill(pid, signal.SIGTERM)
    return pid
