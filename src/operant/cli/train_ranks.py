"""``operant train --ranks N``, and what a process does that torchrun started."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import psutil
import typer

from operant.cli.interrupts import arrived
from operant.cli.screen import Interrupted, errors, output, printable
from operant.toolchain.child import python_command, python_environment

if TYPE_CHECKING:
    from operant.ppo.session import Following


def own_rank() -> int | None:
    """Which of the processes that torchrun started this is; None: it started none, or one."""
    several = "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    return int(os.environ["RANK"]) if several else None


# The process that starts the ranks -------------------------------------------------------------
def launch(arguments: list[str], ranks: int, restarts: int) -> None:
    """Run ``operant train`` with `arguments` in `ranks` processes of this machine, as torchrun
    does.

    Raises:
        typer.Exit: a rank failed; rank 0's code, if it has one of its own.
        Interrupted: Ctrl-C came twice; all processes are gone.
    """
    with errors.status("starting: loading PyTorch"):
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=f"operant-{os.getpid()}",
        max_restarts=restarts,
        local_addr="localhost",
        shutdown_timeout=10,  # then what is left is killed: a process that hangs, say
        signals_to_handle="SIGHUP,SIGQUIT",  # Ctrl-C is for the ranks: they save, and end
    )
    os.environ.update(python_environment())
    program, *words = python_command("-m", "operant", "train", *arguments)
    try:
        with _silent_torchrun(), _Forwarded():
            elastic_launch(config, program)(*words)
    except KeyboardInterrupt:
        arrived()
        raise Interrupted from None
    except ChildFailedError as error:
        raise typer.Exit(_exit_code(error.failures)) from None
    finally:
        for process in _below(recursive=True):
            with suppress(psutil.Error):
                process.kill()  # type: ignore[no-untyped-call]


def _below(recursive: bool) -> list[psutil.Process]:
    """The ranks; with what they started, if `recursive`."""
    found: list[psutil.Process] = psutil.Process().children(recursive)  # type: ignore[no-untyped-call]
    return found


class _Forwarded:
    """SIGINT and SIGTERM go to the ranks, a second SIGINT ends this process as well."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._asked = False

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        ranks = _below(recursive=False)
        for process in ranks:
            with suppress(psutil.Error):
                process.send_signal(number)  # type: ignore[no-untyped-call]
        if self._asked and number == signal.SIGINT:
            psutil.wait_procs(ranks, timeout=2.0)  # type: ignore[no-untyped-call]  # rank 0 speaks
            raise KeyboardInterrupt
        self._asked = True


@contextmanager
def _silent_torchrun() -> Iterator[None]:
    """Leave out what torchrun reports by itself: the ranks have said what went wrong."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _exit_code(failures: Mapping[int, Any]) -> int:
    """That of the job. Of what killed rank 0 nobody else can tell the user."""
    codes = {number: failure.exitcode for number, failure in sorted(failures.items())}
    if codes.get(0, 0) not in (-signal.SIGTERM, *range(256)):  # SIGTERM is torchrun's own
        name = signal.Signals(-codes[0]).name
        errors.print(f"operant: rank 0 was killed by {name}", style="red", highlight=False)
    return next((code for code in codes.values() if code > 1), 1)


# A rank ----------------------------------------------------------------------------------------
def run_of_restart(run_id: str) -> str:
    """The run that this job trained before torchrun started it again; empty if there is none.

    Args:
        run_id: its name, where the user gave one.
    """
    from operant.runs.directory import runs_folder
    from operant.training.ranks import note

    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return ""
    name = run_id or note("run")
    return name if name and (runs_folder() / name).is_dir() else ""


def session_type() -> Any:
    """What this process has of a run: a `Session`, or, if it follows rank 0, a `Following`."""
    from operant.ppo.session import Following, Session

    return Following if own_rank() else Session


def be_quiet() -> None:
    """A rank that follows says nothing on the screen, and leaves Ctrl-C to rank 0."""
    errors.quiet = output.quiet = True
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def outlive_others() -> None:
    """Do not end because torchrun ends all ranks when one has failed: this one will notice, and
    can say what happened."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


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
    from operant.training.ranks import RankError

    try:
        yield
    except RankError as error:
        text = printable(f"operant: {error}")
        errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3 if error.not_finite else 1) from None
