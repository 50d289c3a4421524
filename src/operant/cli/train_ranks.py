"""What a process of ``operant train`` does that is one of several, which torchrun or
`launch_ranks` started."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from operant.cli.launch_ranks import LAUNCHER_PIPE
from operant.cli.screen import errors, output, printable

if TYPE_CHECKING:
    from operant.ppo.session import Following
    from operant.runs.directory import Run


def own_rank() -> int | None:
    """Which of the processes that torchrun started this is; None: it started none, or one."""
    several = "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    return int(os.environ["RANK"]) if several else None


def run_of_restart(run_id: str) -> str:
    """The run that this job trained before it was started again, by name, or by path where it lies
    outside the runs folder; empty if there is none.

    Args:
        run_id: its name, where the user gave one.
    """
    from operant.runs.directory import runs_folder
    from operant.training.ranks import note

    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return ""
    name = note("run") or run_id
    return name if name and (runs_folder() / name).is_dir() else ""  # "/" leaves a path as it is


def note_run(run: Run) -> None:
    """Tell a later attempt of this job which run it is, see `run_of_restart`."""
    from operant.runs.directory import runs_folder
    from operant.training.ranks import note

    outside = run.path.parent.resolve() != runs_folder().resolve()
    note("run", str(run.path.resolve()) if outside else run.id)


def session_type() -> Any:
    """What this process has of a run: a `Session`, or, if it follows rank 0, a `Following`."""
    from operant.ppo.session import Following, Session

    return Following if own_rank() else Session


def be_quiet() -> None:
    """A rank that follows says nothing on the screen, and leaves Ctrl-C to rank 0."""
    errors.quiet = output.quiet = True
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def depend_on_others() -> None:
    """End at once, in the middle of an iteration too, with the process that started this one; if
    that is torchrun, do not end because it ends all ranks when one has failed: this one will
    notice, and can say what happened."""
    lifeline = os.environ.get(LAUNCHER_PIPE)
    if lifeline is None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True).start()


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written: it ends
    os._exit(1)


@contextmanager
def telling_others() -> Iterator[None]:
    """Whatever a rank fails with before it trains, the others and its launcher are told; without a
    launcher one that follows says it on standard error, as it has no log yet."""
    from operant.training.ranks import RankError, note_reason

    try:
        yield
    except RankError:  # another's, which has said it
        raise
    except Exception as error:
        rank, reason = own_rank(), printable(str(error) or type(error).__name__)
        if rank is not None:
            note_reason(rank, reason)
        if rank and LAUNCHER_PIPE not in os.environ:
            sys.stderr.write(f"operant: rank {rank} stopped: {reason}\n")
        raise


def follow(session: Following) -> None:
    """Train as one of the ranks that follow rank 0, until it ends.

    Raises:
        typer.Exit: with 3, a number was not finite; with 1, anything else went wrong.
    """
    from operant.training.guard import NonFiniteError

    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(session.log_file, flags, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    try:
        session.train()
    except NonFiniteError as error:
        sys.stderr.write(f"operant: {printable(str(error))}\n")
        raise typer.Exit(3) from None
    except Exception:
        traceback.print_exc()
        raise typer.Exit(1) from None


@contextmanager
def rank_errors() -> Iterator[None]:
    """End with a sentence where training cannot go on because of a rank."""
    from operant.training.ranks import RankError, note_said

    try:
        yield
    except RankError as error:
        text = printable(f"operant: {error}")
        errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        if not own_rank() and LAUNCHER_PIPE in os.environ:  # it may be killed before it has ended
            note_said()
        raise typer.Exit(3 if error.not_finite else 1) from None
