"""A run as the monitor sees it: everything is read from its directory, and nothing is trusted.

Numbers come from the live metrics, and what these no longer hold from the CSV. Texts are printable
and short. Nothing here raises for what a file holds, and nothing waits for a writer.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.runs.directory import Run
from operant.runs.logs import power_of_two, read_csv
from operant.runs.metrics_file import MetricsReader, Snapshot
from operant.runs.summary import config_tables, threshold_of
from operant.toolchain.files import open_plain
from operant.toolchain.text import printable

MOST_ROWS = 1 << 17
"""Rows that are kept of a run; of more, the older are thinned."""
PATIENCE_S = 3.0
"""Seconds without a heartbeat after which a run whose process cannot be seen counts as stale."""
_LOG_BYTES = 1 << 14
_TEXT = 200


@dataclass(frozen=True, eq=False)
class View:
    """What was known of a run at one moment. Numbers that are not known are NaN, texts ``"?"``."""

    run_id: str
    status: str
    """See `Snapshot.state`; ``"unreadable"`` where there are no metrics to read."""
    problem: str = ""
    """Why it is unreadable, or what is wrong with it."""
    env: str = "?"
    engine: str = "?"
    device: str = "?"
    host: str = "?"
    pid: int = 0
    started: float = math.nan
    heartbeat: float = math.nan
    total_steps: float = math.nan
    threshold: float = math.nan
    """The mean return at which the environment counts as solved."""
    table: dict[str, np.ndarray] = field(default_factory=dict)
    """Columns, float64 ``[rows]``, oldest first; shared, not to be changed."""
    log: tuple[str, ...] = ()
    torn: int = 0
    """Records that could not be read whole."""

    @property
    def live(self) -> bool:
        """Whether a process is at work on it."""
        return self.status in ("running", "starting", "saving")

    def last(self, name: str) -> float:
        """The newest figure of a name."""
        column = self.table.get(name)
        return float(column[-1]) if column is not None and len(column) else math.nan

    def newest(self, name: str) -> float:
        """The newest figure of a name that only some rows have."""
        column = self.table.get(name, np.empty(0))
        known = column[np.isfinite(column)]
        return float(known[-1]) if len(known) else math.nan

    def x(self) -> tuple[str, np.ndarray]:
        """What the others are drawn over: steps where there are any, else the row's number."""
        for name in ("steps", "step"):
            if name in self.table:
                return name, self.table[name]
        rows = len(next(iter(self.table.values()))) if self.table else 0
        return "row", np.arange(rows, dtype=np.float64)

    @property
    def mean_sps(self) -> float:
        """Steps a second since the beginning."""
        seconds = self.last("seconds")
        return self.last("steps") / seconds if seconds > 0 else math.nan

    @property
    def progress(self) -> float:
        """Share of the steps that were taken, 0 to 1."""
        share = self.last("steps") / self.total_steps if self.total_steps > 0 else math.nan
        return min(max(share, 0.0), 1.0) if share == share else math.nan

    @property
    def eta_s(self) -> float:
        """Seconds to go, if it goes on as it did lately."""
        left = self.total_steps - self.last("steps")
        speed = self.last("sps")
        return max(left, 0.0) / speed if self.live and speed > 0 else math.nan

    def heartbeat_age(self, now: float | None = None) -> float:
        """Seconds since the writer was there last."""
        return (time.time() if now is None else now) - self.heartbeat

    def to_dict(self, now: float | None = None) -> dict[str, Any]:
        """For JSON, which has no NaN: null."""
        steps, total = self.last("steps"), self.total_steps
        return {
            "run_id": self.run_id,
            "status": self.status,
            "problem": self.problem or None,
            "env": self.env,
            "engine": self.engine,
            "device": self.device,
            "host": self.host,
            "pid": self.pid or None,
            "steps": _whole(steps),
            "total_steps": _whole(total),
            "sps": _finite(self.last("sps")),
            "mean_sps": _finite(self.mean_sps),
            "mean_return": _finite(self.last("mean_return")),
            "iteration": _whole(self.last("iteration")),
            "eta_s": _finite(self.eta_s),
            "heartbeat_age_s": _finite(self.heartbeat_age(now)),
            "metrics": {name: _finite(self.last(name)) for name in self.table},
        }


class Source:
    """Follows one run; each `read` takes in what is new."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader: MetricsReader | None = None
        self._started = math.nan
        self._seen = 0  # records of the live metrics
        self._table: dict[str, np.ndarray] = {}
        self._facts: dict[str, Any] = {}

    def read(self, now: float | None = None) -> View:
        """The run as it is now."""
        facts = self._facts or self._read_facts()
        try:
            if self._reader is None:
                self._reader = MetricsReader(self.run.mmap_file)
                self._seen, self._started = 0, math.nan
            live = self._reader.read(self._seen)
            if self._is_new(live):
                live = self._reader.read()
                self._started, self._seen, facts = live.started, 0, self._read_facts()
                self._table = {name: np.empty(0) for name in live.fields}
        except (OSError, ValueError) as error:
            self._reader = None
            return self._without_live(facts, printable(str(error)))
        self._take_in(live)
        return View(
            run_id=_short(self.run.id),
            status=live.state(now, PATIENCE_S),
            host=_short(live.host),
            pid=live.pid,
            started=live.started,
            heartbeat=live.heartbeat,
            table=self._table,
            log=_log_tail(self.run),
            torn=live.torn,
            **facts,
        )

    def _is_new(self, live: Snapshot) -> bool:
        """Whether the file is another one than before: the run was resumed, or has new columns."""
        same = live.started == self._started and live.fields == tuple(self._table)
        return not same or live.head < self._seen

    def _take_in(self, live: Snapshot) -> None:
        if self._seen == 0 or live.first > self._seen:
            self._append(_from_csv(self.run, live, self._table))
        if len(live.rows):
            self._append(dict(zip(live.fields, live.rows.T, strict=True)))
        self._seen = live.head
        self._table = _thinned(self._table)

    def _append(self, more: dict[str, np.ndarray]) -> None:
        joined = {name: np.concatenate([self._table[name], more[name]]) for name in more}
        self._table = {**self._table, **joined}  # a new one: views have the old one

    def _without_live(self, facts: dict[str, Any], problem: str) -> View:
        """From the CSV alone."""
        try:
            table = _thinned(read_csv(self.run.csv_file))
        except (OSError, ValueError):
            table = {}
        return View(
            run_id=_short(self.run.id),
            status="unreadable",
            problem=problem[:_TEXT],
            table=table,
            log=_log_tail(self.run),
            **facts,
        )

    def _read_facts(self) -> dict[str, Any]:
        """What does not change while a run is at work."""
        info, config = self.run.read_info(), config_tables(self.run)
        env = info.get("env") or config.get("env", {}).get("id")
        total = config.get("run", {}).get("total_steps", info.get("total_steps"))
        facts = {
            "env": _short(env),
            "engine": _short(info.get("engine")),
            "device": _short(info.get("device")),
            "total_steps": _number(total),
            "threshold": _number(threshold_of(env)),
        }
        if any(value not in ("?",) and value == value for value in facts.values()):
            self._facts = facts
        return facts


def _from_csv(run: Run, live: Snapshot, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the CSV has of the rows after those known and before the first that `live` still holds.

    A resumed run's file begins with a part of its history, so its first record may be a later row.
    """
    if "iteration" not in live.fields or live.head == 0:
        return {}
    last = known["iteration"][-1] if len(known["iteration"]) else 0.0
    first = live.rows[0, live.fields.index("iteration")] if len(live.rows) else math.inf
    if not first > last + 1:
        return {}
    try:
        table = read_csv(run.csv_file)
    except (OSError, ValueError):
        return {}
    if "iteration" not in table:
        return {}
    missing = (table["iteration"] > last) & (table["iteration"] < first)
    unknown = np.full(int(missing.sum()), math.nan)
    return {name: table[name][missing] if name in table else unknown for name in live.fields}


def _thinned(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """At most `MOST_ROWS`: the newest quarter of that, and before it rows at equal distances."""
    rows = len(next(iter(table.values()))) if table else 0
    if rows <= MOST_ROWS:
        return table
    old = rows - MOST_ROWS // 4
    x = table.get("iteration", np.arange(rows))[:old]
    if not (np.diff(x) > 0).all():
        x = np.arange(old)
    parts = (x - x[0]) // power_of_two((x[-1] - x[0]) / (MOST_ROWS // 2 - 1))
    kept = np.r_[np.unique(parts, return_index=True)[1], old:rows]
    return {name: column[kept] for name, column in table.items()}


def _log_tail(run: Run) -> tuple[str, ...]:
    """The last lines of ``train.log``."""
    try:
        with open_plain(run.log_file) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode(errors="replace")
    except OSError:
        return ()
    lines = text.splitlines()
    lines = lines[1:] if size > _LOG_BYTES else lines  # the first is cut
    return tuple(printable(line)[:_TEXT] for line in lines)


def _short(value: Any) -> str:
    return printable(value)[:_TEXT] or "?" if isinstance(value, str) else "?"


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) >= 2**63:
        return math.nan
    return float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _whole(value: float) -> int | None:
    return int(value) if math.isfinite(value) and abs(value) < 2**63 else None
