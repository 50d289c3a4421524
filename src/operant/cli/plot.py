"""``operant plot``: learning curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from operant.cli.options import AsJson
from operant.cli.screen import UserError, errors, literal, mistakes, output

if TYPE_CHECKING:
    from operant.render.plot import Curve
    from operant.runs.directory import Run

EXAMPLE = "Example:  operant plot latest --out curve.png"
_COLUMNS = ("steps", "mean_return", "seconds")


def plot(
    runs: Annotated[
        list[str], Argument(metavar="RUN...", help="Runs by name, 'latest', or paths.")
    ],
    out: Annotated[Path, Option(metavar="FILE", help="curve.png, .svg or .pdf.")] = Path(
        "curve.png"
    ),
    band: Annotated[
        bool, Option("--band", help="One curve: their mean, with the band of its 95 % interval.")
    ] = False,
    title: Annotated[str, Option(help="Above the chart.")] = "",
    as_json: AsJson = False,
) -> None:
    """Draw the return of runs over their steps, in one chart."""
    from operant.runs.directory import find_run

    with errors.status("drawing"), mistakes():
        curves = [curve_of(find_run(name)) for name in runs]
        draw(curves, out, title, band)
    if as_json:
        print(json.dumps({"file": str(out), "runs": [curve.label for curve in curves]}))
        return
    number = f"{len(curves)} run{'s' if len(curves) > 1 else ''}"
    output.print(f"{literal(out)}: {number}", highlight=False, soft_wrap=True)


def curve_of(run: Run) -> Curve:
    """The learning curve of a run.

    Raises:
        UserError: its metrics cannot be read.
        ValueError: they are damaged.
    """
    from operant.render.plot import Curve
    from operant.runs.logs import read_csv
    from operant.runs.summary import summary

    try:
        table = read_csv(run.csv_file)
    except OSError as error:
        raise UserError(f"cannot read {run.csv_file}: {error.strerror}") from None
    for column in _COLUMNS:
        if column not in table:
            raise UserError(f"{run.csv_file} has no column {column!r} to draw")
    steps, returns, seconds = (table[column] for column in _COLUMNS)
    return Curve(run.id, steps, returns, seconds, summary(run).reward_threshold)


def draw(curves: list[Curve], out: Path, title: str = "", band: bool = False) -> None:
    """Write the chart: a curve each, or with `band` their mean.

    Raises:
        ValueError: nothing to draw, or a place that cannot be written.
    """
    from operant.render.plot import plot_runs
    from operant.render.seed_bands import mean_curve

    shown = [mean_curve(curves, f"mean of {len(curves)} runs")] if band else curves
    plot_runs(shown, out, title=title)
