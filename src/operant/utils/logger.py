"""`Logger`: metrics of any training loop, in a run directory that `operant monitor` shows."""

from __future__ import annotations

import datetime
import os
import sys
import time
from types import TracebackType
from typing import Any

import numpy as np

from operant.runs.directory import Run, check_run_id
from operant.runs.hardware import HARDWARE, Hardware
from operant.runs.logs import CsvLog, read_csv
from operant.runs.metrics_file import MetricsWriter
from operant.runs.metrics_layout import Status
from operant.toolchain.files import replace_file, replacing
from operant.toolchain.text import printable

_OWN = ("iteration", "steps", "seconds", "sps")
"""Columns that the logger fills in itself."""
_HISTORY = 4096


class Logger:
    """Writes rows of metrics to ``metrics.csv`` and to the live metrics of a new run.

    >>> with Logger("my-loop") as log:  # doctest: +SKIP
    ...     for step in range(1000):
    ...         log.log(step=step, return_=play(), loss=learn())

    A row may have any names; new ones may come later. Where the block ends by an exception the run
    counts as failed (by Ctrl-C: as interrupted), and everything that was logged is in the files.

    Args:
        name: of the run; a number is added if it is taken. See ``run_id``.
        total_steps: how many steps there will be, for the progress; 0 if nobody knows.
        env: what is trained on, to be shown.

    Raises:
        ValueError: a name that a run cannot have.
        OSError: the directory cannot be written.
    """

    def __init__(self, name: str = "run", *, total_steps: int = 0, env: str = "") -> None:
        self._run = _new_run(name, total_steps, env)
        self._lock = self._run.lock()
        self._run.write_info(_info(env, total_steps))
        self._run.log("started")
        self._began = time.perf_counter()
        self._fields: tuple[str, ...] = _OWN
        self._rows = 0
        self._last: tuple[float, float] | None = None  # step and time of the row before
        self._csv = CsvLog(self._run.csv_file, self._fields)
        self._live = self._new_live(self._fields, [])
        self._live.say(Status.STARTING)
        self._hardware = Hardware()
        self._open = True

    @property
    def run_id(self) -> str:
        """The run's name: ``operant monitor <run_id>`` shows it."""
        return self._run.id

    def log(self, step: float | None = None, **metrics: Any) -> None:
        """Add a row.

        Args:
            step: steps so far; by default the number of the row.
            metrics: numbers, or tensors and arrays of one number. An underscore at the end of a
                name is dropped, so that ``return_`` is possible.

        Raises:
            ValueError: closed, or a name that cannot be a column.
            TypeError: not a number.
        """
        if not self._open:
            raise ValueError(f"the logger of {self.run_id} is closed")
        row = {name.rstrip("_") or name: _number(name, value) for name, value in metrics.items()}
        count = self._rows + 1
        steps = _number("step", count if step is None else step)
        taken = sorted(set(row) & {*_OWN, *HARDWARE})
        if taken:
            raise ValueError(f"{', '.join(taken)}: such names are the logger's own; use others")
        new = [name for name in row if name not in self._fields]
        if new:
            self._widen((*self._fields, *new))
        now = time.perf_counter()
        own = {"iteration": float(count), "steps": steps, "seconds": now - self._began}
        own["sps"] = _speed(self._last, (steps, now))
        known = {**own, **row}
        self._csv.write(known)
        self._rows, self._last = count, (steps, now)
        values = [known.get(name, float("nan")) for name in self._fields]
        self._live.append([*values, *self._hardware.figures()])
        if self._rows == 1:
            self._live.say(Status.RUNNING)

    def close(self, status: Status = Status.FINISHED) -> None:
        """End the run. May be repeated."""
        if not self._open:
            return
        self._open = False
        self._hardware.close()
        self._live.say(status)
        self._live.close()
        self._csv.close()
        self._run.log(f"{status} after {self._rows} rows")
        self._lock.close()

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt | SystemExit):
            self.close(Status.INTERRUPTED)
        else:
            self._run.log(f"failed: {type(error).__name__}: {error}")
            self.close(Status.FAILED)

    def _widen(self, fields: tuple[str, ...]) -> None:
        """Give the files more columns; what is there stays, also where a name is refused."""
        table = read_csv(self._run.csv_file)
        count = len(table["iteration"])
        columns = [table.get(name, np.full(count, np.nan)) for name in fields]
        unknown = [np.full(count, np.nan) for _ in HARDWARE]
        with replacing(self._run.csv_file) as staged:
            wider = CsvLog(staged, fields)
            for values in zip(*columns, strict=True):
                wider.write({n: float(v) for n, v in zip(fields, values, strict=True) if v == v})
            wider.close()
            live = self._new_live(fields, np.column_stack(columns + unknown).tolist())
        self._csv.close()
        self._fields, self._live = fields, live
        self._csv = CsvLog(self._run.csv_file, fields)

    def _new_live(self, fields: tuple[str, ...], history: list[list[float]]) -> MetricsWriter:
        return MetricsWriter(
            self._run.mmap_file,
            (*fields, *HARDWARE),
            run_id=self._run.id,
            capacity=_HISTORY,
            history=history,
        )


def _new_run(name: str, total_steps: int, env: str) -> Run:
    check_run_id(name)
    run = Run.create_free(name)
    text = f"[env]\nid = {_quoted(env)}\n\n[run]\ntotal_steps = {int(total_steps)}\n"
    replace_file(run.config_file, text.encode())
    return run


def _quoted(text: str) -> str:
    plain = printable(text).replace('"', "?").replace("\\", "?")
    return f'"{plain}"'


def _info(env: str, total_steps: int) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "pid": os.getpid(),
        "env": env,
        "engine": "own loop",
        "device": "?",
        "total_steps": total_steps,
    }


def _number(name: str, value: Any) -> float:
    try:
        # item(): NumPy warns of float() of an array, PyTorch of a tensor with a gradient
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}") from None


def _speed(before: tuple[float, float] | None, now: tuple[float, float]) -> float:
    """Steps a second since the row before."""
    if before is None or now[1] <= before[1]:
        return float("nan")
    return (now[0] - before[0]) / (now[1] - before[1])
