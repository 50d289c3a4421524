"""A run at a glance, read from its files; whatever is missing or damaged is None."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from operant.envs.registry import get_env
from operant.runs.directory import Run
from operant.runs.files import read_bounded
from operant.runs.logs import read_csv
from operant.runs.metrics_file import MetricsReader


@dataclass(frozen=True)
class Summary:
    """What `operant runs` shows of a run."""

    run_id: str
    env: str | None
    state: str | None
    """``running``, ``finished``, ``stopped``, ``failed``, or ``stale``: its process is gone."""
    started: str | None
    seed: int | None
    steps: int | None
    total_steps: int | None
    seconds: float | None
    sps: float | None
    mean_return: float | None
    reward_threshold: float | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summary(run: Run) -> Summary:
    """Read the files of a run; never raises for what is in them."""
    config = _config(run)
    env = config.get("env", {}).get("id")
    row = _last_row(run)
    options = config.get("run", {})
    return Summary(
        run_id=run.id,
        env=_kind(env, str),
        state=_state(run),
        started=_kind(run.read_info().get("date"), str),
        seed=_kind(options.get("seed"), int),
        steps=_whole(row.get("steps")),
        total_steps=_kind(options.get("total_steps"), int),
        seconds=row.get("seconds"),
        sps=row.get("sps"),
        mean_return=row.get("mean_return"),
        reward_threshold=_threshold(env),
    )


def _config(run: Run) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(read_bounded(run.config_file, 1 << 20).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def _last_row(run: Run) -> dict[str, float]:
    try:
        table = read_csv(run.csv_file)
    except (OSError, ValueError):
        return {}
    last = {name: float(column[-1]) for name, column in table.items() if len(column)}
    return {name: value for name, value in last.items() if np.isfinite(value)}


def _state(run: Run) -> str | None:
    try:
        with MetricsReader(run.mmap_file) as reader:
            return reader.read().state()
    except (OSError, ValueError):
        return None


def _threshold(env: Any) -> float | None:
    try:
        return get_env(env).reward_threshold if isinstance(env, str) else None
    except ValueError:
        return None


def _kind(value: Any, kind: type) -> Any:
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
