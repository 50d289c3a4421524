"""What ``operant tune`` writes: a report, a chart, and the configuration that it chose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operant.bench import verify as verifying
from operant.bench.artifact import plain
from operant.bench.grid import Axis
from operant.bench.heat_map import draw_heat_map, main_effects
from operant.bench.tune import Measured, ranked, record
from operant.bench.verify import Verification
from operant.ppo.config import Config
from operant.ppo.config_file import to_toml
from operant.render.chart import save_figure
from operant.toolchain.files import replace_file
from operant.toolchain.text import printable

SCHEMA = "operant/tuning/1"
FOLDER = Path("artifacts") / "tuning"
"""Where a run's folder goes, below the current one."""


def choice(
    everyone: Sequence[Measured], verification: Verification | None
) -> tuple[Measured, Config] | None:
    """The cell that won and its configuration; None if none did.

    Without a verification that is the fastest stable one.
    """
    if verification is not None:
        trial = verification.chosen
        return None if trial is None else (trial.measured, trial.config)
    best = next(iter(ranked(everyone)), None)
    return None if best is None or best.cell.config is None else (best, best.cell.config)


def report(
    axes: Sequence[Axis],
    everyone: Sequence[Measured],
    verification: Verification | None,
    base: Config,
    frame: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that was found, for JSON.

    Args:
        axes: the grid.
        everyone: its cells, and the base.
        verification: None if there was none.
        base: the configuration that tuning started from.
        frame: what else belongs into it: the run, the machine, the options.
    """
    records = [record(one) for one in everyone]
    chosen = choice(everyone, verification)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        **frame,
        "config": plain(base.to_dict()),
        "grid": {axis.name: {"option": axis.key, "values": list(axis.values)} for axis in axes},
        "effects": {name: round(x, 4) for name, x in main_effects(axes, records).items()},
        "cells": records,
        "verification": None if verification is None else verifying.record(verification),
        "chosen": None,
    }
    if chosen is not None:
        one, config = chosen
        found["chosen"] = {
            **record(one),
            "speedup": _speedup(one, everyone),
            "verified": verification is not None,
            "config": plain(config.to_dict()),
        }
    return found


def _speedup(one: Measured, everyone: Sequence[Measured]) -> float | None:
    """Speed relative to the base's; None where that was not measured."""
    base = next((other.sps for other in everyone if other.cell.is_base), None)
    if base is None or one.sps is None:
        return None
    return round(one.sps.median / base.median, 3)


def write_files(
    folder: Path,
    axes: Sequence[Axis],
    everyone: Sequence[Measured],
    verification: Verification | None,
    found: dict[str, Any],
) -> dict[str, str]:
    """Write ``report.json``, ``heat_map.png`` and, if something was chosen, ``tuned.toml`` into
    `folder`, which exists.

    Returns their paths by kind, which are in the report too.

    Raises:
        OSError, ValueError: a file cannot be written.
    """
    files = {"report": str(folder / "report.json"), "heat_map": str(folder / "heat_map.png")}
    chosen = choice(everyone, verification)
    failed = [
        dict(trial.measured.cell.values)
        for trial in (verification.trials if verification else [])
        if not trial.converged
    ]
    marked = None if chosen is None else dict(chosen[0].cell.values)
    save_figure(draw_heat_map(axes, found["cells"], marked, failed), folder / "heat_map.png")
    if chosen is not None:
        files["config"] = str(folder / "tuned.toml")
        text = f"# {_summary(found)}\n{to_toml(chosen[1])}"
        replace_file(folder / "tuned.toml", text.encode())
    found["files"] = files
    replace_file(folder / "report.json", (json.dumps(found, indent=2) + "\n").encode())
    return files


def _summary(found: Mapping[str, Any]) -> str:
    """One line on the choice."""
    chosen = found["chosen"]
    text = f"operant tune {found['env']}, {found['date']}: {chosen['sps']['median']:,.0f} steps/s"
    if chosen["speedup"] is not None:
        text += f", {chosen['speedup']:.2f} times the configuration it started from"
    text += "; converged" if chosen["verified"] else "; convergence was not verified"
    return printable(text)
