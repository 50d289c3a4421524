"""``operant stop``: end a training gracefully."""

from __future__ import annotations

import json
import time
from typing import Annotated

from typer import Argument, Option

from operant.cli.options import AsJson
from operant.cli.screen import UserError, errors, literal, mistakes, output

EXAMPLE = "Example:  operant stop latest"


def stop(
    run_id: Annotated[str, Argument(metavar="RUN", help="A run by name, or 'latest'.")],
    timeout: Annotated[
        float, Option(metavar="SECONDS", help="How long to wait for its end; 0: not at all.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask a training to stop: it finishes its iteration, saves a checkpoint and ends."""
    from operant.monitor.source import Source
    from operant.runs.control import ask_to_stop
    from operant.runs.directory import find_run

    with mistakes():
        run = find_run(run_id)
        pid = ask_to_stop(run)
    source, began = Source(run), time.monotonic()
    view = source.read()
    with errors.status(f"{literal(run.id)} finishes its iteration and saves"):
        while view.live and time.monotonic() - began < timeout:
            time.sleep(0.05)
            view = source.read()
    if as_json:
        print(json.dumps({"run_id": run.id, "pid": pid, "status": view.status}))
    elif view.live and timeout > 0:
        raise UserError(
            f"{run.id} was asked to stop and has not after {timeout:g} s; process {pid}"
        )
    elif view.live:
        output.print(f"{literal(run.id)} was asked to stop", highlight=False)
    else:
        steps = view.last("steps")
        where = f" at step {steps:,.0f}" if steps == steps else ""
        output.print(f"{literal(run.id)} is {view.status}{where}", highlight=False)
