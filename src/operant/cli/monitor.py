"""``operant monitor``: any run, live or finished, seen from another process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from operant.cli.screen import UserError, mistakes, output

EXAMPLE = "Example:  operant monitor --latest"


def monitor(
    run_id: Annotated[
        str, Argument(metavar="[RUN]", help="A run by name, or 'latest'; without: a list.")
    ] = "",
    latest: Annotated[bool, Option("--latest", help="The run started last.")] = False,
    once: Annotated[bool, Option("--once", help="Print one frame and end.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON and end.")] = False,
    home: Annotated[
        Path | None, Option(metavar="DIR", help="Instead of $OPERANT_HOME or ~/.operant.")
    ] = None,
) -> None:
    """Watch runs: figures, curves, log. It only reads; the training does not notice.

    Keys: ? shows them all, q leaves.
    """
    if home is not None:
        if not home.is_dir():
            raise UserError(f"there is no folder {home}")
        os.environ["OPERANT_HOME"] = str(home)
    if latest and run_id not in ("", "latest"):
        raise UserError("name a run or say --latest, not both")
    name = "latest" if latest or (not run_id and (once or as_json)) else run_id
    if not once and not as_json:
        show(name)
        return
    from operant.monitor.source import Source
    from operant.runs.directory import find_run

    with mistakes():
        view = Source(find_run(name)).read()
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    from operant.monitor.frame import frame

    output.print(frame(view, output.width), highlight=False)


def show(name: str) -> None:
    """The monitor in this terminal: of one run, or for ``""`` a list of all."""
    from operant.monitor.app import MonitorApp
    from operant.runs.directory import find_run

    with mistakes():
        run = find_run(name) if name else None
    MonitorApp(run).run()
