"""The ``operant`` command: one verb a file."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from operant.cli import (
    bench,
    check,
    config,
    envs,
    eval,
    export,
    logs,
    monitor,
    play,
    plot,
    profile,
    record,
    runs,
    stop,
    sweep,
    train,
    tune,
)
from operant.cli.command import Command, Commands
from operant.cli.interrupts import Interrupts, arrived
from operant.cli.screen import Interrupted, UserError, errors, printable, verb
from operant.toolchain.child import ignore_numba_settings
from operant.version import __version__

app = typer.Typer(
    name="operant",
    cls=Commands,
    help="Reinforcement learning at full speed, in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("train", cls=Command, epilog=train.EXAMPLE)(verb(train.train))
app.command("monitor", epilog=monitor.EXAMPLE)(verb(monitor.monitor))
app.command("stop", epilog=stop.EXAMPLE)(verb(stop.stop))
app.command("logs", epilog=logs.EXAMPLE)(verb(logs.logs))
app.command("eval", epilog=eval.EXAMPLE)(verb(eval.evaluate))
app.command("record", epilog=record.EXAMPLE)(verb(record.record))
app.command("play", epilog=play.EXAMPLE)(verb(play.play))
app.command("plot", epilog=plot.EXAMPLE)(verb(plot.plot))
app.command("export", epilog=export.EXAMPLE)(verb(export.export))
app.add_typer(runs.app, name="runs")
app.command("config", epilog=config.EXAMPLE)(verb(config.config))
app.command("envs", epilog=envs.EXAMPLE)(verb(envs.envs))
app.command("check", epilog=check.EXAMPLE)(verb(check.check))
app.add_typer(bench.app, name="bench")
app.command("profile", epilog=profile.EXAMPLE)(verb(profile.profile))
app.command("sweep", epilog=sweep.EXAMPLE)(verb(sweep.sweep))
app.command("tune", epilog=tune.EXAMPLE)(verb(tune.tune))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"operant {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Reinforcement learning at full speed, in Python."""


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    _check_system()
    _distrust_folder()
    logging.getLogger("operant.engine").addHandler(logging.NullHandler())  # commands say it
    with Interrupts() as interrupts:
        warnings.showwarning = _show_warning
        try:
            app()
        except (Interrupted, KeyboardInterrupt) as stop:
            arrived()
            _say(str(stop) or "interrupted")
            sys.exit(130)
        except Exception as error:
            if interrupts.asked:
                arrived()  # what a compiler makes of an interrupt in its callback
                _say("interrupted")
                sys.exit(130)
            if isinstance(error, UserError):
                _say(str(error), "red")
                sys.exit(2)
            raise


def _check_system() -> None:
    """Exit with a sentence on a system that the commands do not run on."""
    try:
        import operant.toolchain.file_locks  # noqa: F401
    except ImportError as error:
        _say(str(error), "red")
        sys.exit(2)


_show_others = warnings.showwarning


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    """Print a warning of our own as a sentence; others as Python does."""
    if category.__module__.partition(".")[0] == "operant":
        _say(str(message), "yellow")
    else:
        _show_others(message, category, *place, **more)


def _distrust_folder() -> None:
    """Libraries, and every Python they start, run nothing that lies in the working directory."""
    os.environ["PYTHONSAFEPATH"] = "1"
    if os.path.lexists(".numba_config.yaml"):
        _say("Numba's settings in .numba_config.yaml are not followed; use NUMBA_ variables")
        ignore_numba_settings()


def _say(text: str, style: str = "") -> None:
    """Print a message as it is; a command in it stays on one line, to be copied."""
    text = f"operant: {printable(text, keep=chr(10))}"
    errors.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
