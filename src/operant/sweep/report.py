"""What a sweep leaves in its folder: a report, the best configuration, and charts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.ppo.config import Config
from operant.sweep.plan import BOTH, SECONDS, Plan
from operant.sweep.search import front, values_of
from operant.sweep.study import Study, Trial
from operant.sweep.trial import LEAST_NEVER_S
from operant.toolchain.files import replace_file
from operant.toolchain.machine import machine
from operant.toolchain.text import printable
from operant.training.config_file import to_toml

SCHEMA = "operant/sweep/1"


def report(
    study: Study, best: Trial | None, shares: Mapping[str, float], verification: Any
) -> dict[str, Any]:
    """Everything that was found, for JSON.

    Args:
        study: the sweep.
        best: the trial that won; None if none was complete.
        shares: how much each option mattered.
        verification: see `verified`; None if there was none.
    """
    plan, trials = study.plan, study.finished()
    return {
        "schema": SCHEMA,
        "sweep": study.folder.name,
        "env": plan.env,
        "metric": plan.metric,
        "date": plan.date,
        "machine": machine(),
        "trials": len(trials),
        "asked_trials": plan.trials,
        **{name: sum(t.state == name for t in trials) for name in ("complete", "pruned", "failed")},
        "trial_seconds": round(sum(one.seconds for one in trials), 3),
        "choosing_seeds": list(plan.trial_seeds),
        "space": {name: one.record() for name, one in plan.space.ranges.items()},
        "fixed": dict(plan.space.fixed),
        "start": _record(next((t for t in trials if t.is_start), None), plan),
        "best": _record(best, plan),
        "front": [_record(one, plan) for one in front(trials)] if plan.metric == BOTH else None,
        "importances": {name: round(share, 4) for name, share in shares.items()},
        "failures": sorted({one.error for one in trials if one.error}),
        "verification": verification,
        "path": str(study.folder),
    }


def _record(one: Trial | None, plan: Plan) -> dict[str, Any] | None:
    if one is None:
        return None
    scores = list(one.scores or ())
    found: dict[str, Any] = {"trial": one.number, "state": one.state}
    if plan.metric != SECONDS:
        found["return"] = round(scores[0], 4) if scores else None
    if plan.metric == SECONDS or plan.metric == BOTH:
        found["seconds_to_threshold"] = seconds_figure(scores[-1]) if scores else None
    return found | {"values": values_of(one, plan)}


def seconds_figure(score: float) -> float | None:
    """Seconds to the threshold; None where a seed never reached it."""
    return round(score, 4) if score < LEAST_NEVER_S else None


def best_config(best: Trial, plan: Plan) -> Config:
    """The configuration of a trial, as it is trained again."""
    return plan.config(best.values)


def write_files(folder: Path, study: Study, best: Trial | None, found: dict[str, Any]) -> None:
    """Write ``report.json`` and, if a trial won, ``best.toml`` and the charts into the sweep's
    folder; their paths, by kind, go into `found`.

    Raises:
        OSError, ValueError: one cannot be written.
    """
    from operant.render.chart import save_figure
    from operant.sweep.charts import charts

    files = {"report": str(folder / "report.json")}
    if best is not None:
        files["config"] = str(folder / "best.toml")
        text = f"# {_summary(found)}\n{to_toml(best_config(best, study.plan))}"
        replace_file(folder / "best.toml", text.encode())
        for name, figure in charts(study, found["importances"]).items():
            files[name] = str(folder / f"{name}.png")
            save_figure(figure, folder / f"{name}.png")
    found["files"] = files
    replace_file(folder / "report.json", (json.dumps(found, indent=2) + "\n").encode())


def _summary(found: Mapping[str, Any]) -> str:
    """One line on the choice."""
    best = found["best"]
    text = f"operant sweep {found['env']}: trial {best['trial']} of {found['trials']}"
    if best.get("return") is not None:
        text += f", return {best['return']:.4g} with the seeds that chose"
    if found["verification"]:
        unseen = found["verification"]["best"]["mean_return"]
        text += f"; {unseen:.4g} with unseen seeds" if unseen is not None else ""
    return printable(text)
