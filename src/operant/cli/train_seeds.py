"""``operant train --seeds N``: the same training N times, and what it comes to on average."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from operant.cli.plot import curve_of, draw
from operant.cli.screen import UserError, errors, literal, mistakes, output
from operant.cli.train import Given, opened, trained
from operant.cli.train_report import Advice, figure, reached

FOLDER = Path("artifacts/seeds")
"""Where the chart goes."""


def train_seeds(
    given: Given, values: dict[str, Any], count: int, run_id: str, as_json: bool
) -> None:
    """Train `count` runs one after the other, with the seed asked for and those after it.

    Raises:
        UserError: a name is taken, or what `trained` raises; runs that ended before stay.
    """
    from operant.runs.directory import new_run_id

    stem = run_id or new_run_id(given.target(values) or given.init_from)
    runs = seeded_names(stem, values, count)
    _check_names(list(runs.values()))
    reports: list[dict[str, Any]] = []
    for seed, name in runs.items():
        session = opened(given, values | {"run.seed": seed}, name)
        advice = Advice.of(session, given.target(values), "")
        outcome = trained(session, advice, briefly=bool(reports))
        reports.append(outcome.report)
        if not as_json:
            _print_run(outcome.report, advice)
        if outcome.asked_to_stop:
            break
    _summarise(stem, reports, count, as_json)


def seeded_names(stem: str, values: dict[str, Any], count: int) -> dict[int, str]:
    """The seed asked for and those after it, with the names of their runs.

    Raises:
        UserError: a bad seed.
    """
    from operant.ppo.config import Config

    with mistakes():
        chosen = {"run.seed": values["run.seed"]} if "run.seed" in values else {}
        first = Config().replaced(chosen).run.seed
    return {seed: f"{stem}-seed{seed}" for seed in range(first, first + count)}


def _check_names(names: list[str]) -> None:
    """Before hours of training: that every name can be given."""
    from operant.runs.directory import check_run_id, runs_folder

    with mistakes():
        for name in names:
            check_run_id(name)
            if (runs_folder() / name).exists():
                raise UserError(f"there is a run {name!r} already; choose another --run-id")


def _print_run(report: dict[str, Any], advice: Advice) -> None:
    if not report["finished"]:
        output.print(f"[yellow]stopped[/yellow]; {literal(advice.resume)}", soft_wrap=True)
        return
    text = f"seed {report['seed']}: {reached(report)}"
    output.print(text, highlight=False, soft_wrap=True)


def _summarise(stem: str, reports: list[dict[str, Any]], count: int, as_json: bool) -> None:
    """Mean, interval and chart of the runs that came to their end."""
    from operant.render.seed_bands import CONFIDENCE, mean_of
    from operant.runs.directory import Run

    done = [report for report in reports if report["finished"]]
    greedy = [r["mean_return"] if r["eval_return"] is None else r["eval_return"] for r in done]
    known = np.array([value for value in greedy if value is not None], np.float64)
    mean, half = map(float, mean_of(known)) if len(known) else (np.nan, np.nan)
    chart, trouble = FOLDER / f"{stem}.png", ""
    if len(done) > 1:
        try:
            with errors.status("drawing"), mistakes():
                env = done[0]["env"]
                draw([curve_of(Run(Path(r["path"]))) for r in done], chart, env, band=True)
        except UserError as error:  # the trainings are what counts: say it, and go on
            trouble = str(error)
    drawn = len(done) > 1 and not trouble
    solved = None if not done or done[0]["solved"] is None else sum(r["solved"] for r in done)
    found = {
        "runs": reports,
        "seeds": len(done),
        "mean_return": None if np.isnan(mean) else round(mean, 4),
        "interval": None if np.isnan(half) else [round(mean - half, 4), round(mean + half, 4)],
        "confidence": CONFIDENCE,
        "solved": solved,
        "plot": str(chart) if drawn else None,
        "finished": len(done) == count,
    }
    if trouble:
        errors.print(f"no chart: {literal(trouble)}", style="yellow", highlight=False)
    if as_json:
        print(json.dumps(found))
    else:
        _print_summary(found, count)


def _print_summary(found: dict[str, Any], count: int) -> None:
    if found["mean_return"] is not None:
        text = f"[bold]mean return {figure(found['mean_return'])}[/bold]"
        if found["interval"] is not None:
            text += " (95 % interval {} to {})".format(*map(figure, found["interval"]))
        of = "" if found["finished"] else f" of {count}"
        text += f", {found['seeds']}{of} seeds"
        text += "" if found["solved"] is None else f", {found['solved']} solved"
        output.print(text, highlight=False, soft_wrap=True)
    if found["plot"] is not None:
        output.print(literal(found["plot"]), highlight=False, soft_wrap=True)
