"""``operant plot``: learning curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from operant.cli.screen import UserError, errors, literal, mistakes, output

EXAMPLE = "Example:  operant plot latest --out curve.png"
_COLUMNS = ("steps", "mean_return", "seconds")


def plot(
    runs: Annotated[
        list[str], Argument(metavar="RUN...", help="Runs by name, 'latest', or paths.")
    ],
    out: Annotated[Path, Option(metavar="FILE", help="curve.png, .svg or .pdf.")] = Path(
        "curve.png"
    ),
    title: Annotated[str, Option(help="Above the chart.")] = "",
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw the return of runs over their steps, in one chart."""
    from operant.plot import Curve, plot_runs
    from operant.runs.directory import find_run
    from operant.runs.logs import read_csv
    from operant.runs.summary import summary

    curves = []
    with errors.status("drawing"), mistakes():
        for name in runs:
            run = find_run(name)
            try:
                table = read_csv(run.csv_file)
            except OSError as error:
                raise UserError(f"cannot read {run.csv_file}: {error.strerror}") from None
            for column in _COLUMNS:
                if column not in table:
                    raise UserError(f"{run.csv_file} has no column {column!r} to draw")
            steps, returns, seconds = (table[column] for column in _COLUMNS)
            threshold = summary(run).reward_threshold
            curves.append(Curve(run.id, steps, returns, seconds, threshold))
        plot_runs(curves, out, title=title)
    if as_json:
        print(json.dumps({"file": str(out), "runs": [curve.label for curve in curves]}))
        return
    number = f"{len(curves)} run{'s' if len(curves) > 1 else ''}"
    output.print(f"{literal(out)}: {number}", highlight=False, soft_wrap=True)
