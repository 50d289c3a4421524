"""``operant logs``: what happened in a run, in words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from operant.cli.screen import UserError, mistakes, printable

EXAMPLE = "Example:  operant logs latest -f"
_BLOCK = 1 << 16


def logs(
    run_id: Annotated[str, Argument(metavar="RUN", help="A run by name, or 'latest'.")],
    follow: Annotated[
        bool, Option("--follow", "-f", help="Go on until the training ends, or Ctrl-C.")
    ] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, help="Only the last; 0: all.")] = 0,
) -> None:
    """Print a run's log."""
    from operant.monitor.source import Source
    from operant.runs.directory import find_run

    with mistakes():
        run = find_run(run_id)
    if not run.log_file.exists():
        raise UserError(f"{run.id} has no log yet")
    with mistakes():
        at = _print_from(run.log_file, 0, lines)
    source = Source(run)
    while follow:
        over = not source.read().live
        with mistakes():
            at = _print_from(run.log_file, at)
        if over:
            return
        time.sleep(0.2)


def _print_from(path: Path, at: int, most: int = 0) -> int:
    """Print the whole lines from byte `at` on; where they end."""
    from operant.toolchain.files import open_plain

    with open_plain(path) as file:
        file.seek(at)
        kept: list[str] = []
        rest = b""
        while block := file.read(_BLOCK):
            *whole, rest = (rest + block).split(b"\n")
            at = file.tell() - len(rest) if whole else at
            kept += [printable(line.decode(errors="replace")) for line in whole]
            kept = kept[-most:] if most else kept
            if not most:
                print("".join(f"{line}\n" for line in kept), end="", flush=True)
                kept = []
            rest = rest[-_BLOCK:]  # a line without end
    print("".join(f"{line}\n" for line in kept), end="", flush=True)
    return at
