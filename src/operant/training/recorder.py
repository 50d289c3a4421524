"""`Recorder`: the callback that writes a run directory."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np

from operant.runs.checkpoint import (
    CheckpointError,
    list_checkpoints,
    mark_best,
    prune_checkpoints,
    read_best,
    save_checkpoint,
)
from operant.runs.directory import Run
from operant.runs.hardware import HARDWARE, Hardware
from operant.runs.logs import CsvLog, JsonlLog, Log, read_csv
from operant.runs.metrics_file import MetricsWriter
from operant.runs.metrics_layout import Status
from operant.toolchain.files import discard
from operant.training.callbacks import Callback
from operant.training.ranks import first_says
from operant.training.snapshot import snapshot
from operant.training.trainer import Trainer

_HISTORY = 4096


class Recorder(Callback):
    """Writes metrics after each iteration and a checkpoint from time to time; to be called last.

    Args:
        run: the directory; this process is its only writer.
        trainer: what is trained. Rows that a killed process wrote after its last checkpoint are
            dropped, so that each iteration is in the files once.
        added: names of figures that other callbacks add to its own.

    Attributes:
        best: step and score of the best checkpoint; None before there is one.
        notes: what the user should know, a sentence each.
    """

    watches_only = True

    def __init__(self, run: Run, trainer: Trainer, added: tuple[str, ...] = ()) -> None:
        self.run = run
        self.notes: list[str] = []
        options = trainer.config.run
        self.fields = (*trainer.metric_names, *added)
        self.csv = CsvLog.resume(run.csv_file, self.fields, "iteration", trainer.iteration)
        self.logs: list[Log] = [JsonlLog.resume(run.jsonl_file, "iteration", trainer.iteration)]
        if options.tensorboard:
            from operant.runs.trackers import TensorBoardLog

            folder = run.path / "tensorboard"
            self.logs.append(TensorBoardLog(folder, trainer.steps if trainer.steps else None))
        if options.wandb:
            from operant.runs.trackers import WandbLog

            wandb = WandbLog(run.path, run.id, trainer.config.to_dict())
            self.notes += [wandb.problem] if wandb.problem else []
            self.logs.append(wandb)
        self.live = MetricsWriter(
            run.mmap_file,
            (*self.fields, *HARDWARE),
            run_id=run.id,
            capacity=_HISTORY,
            history=_history(run.csv_file, self.fields),
        )
        self.live.say(Status.STARTING)
        self.hardware = Hardware(trainer.device.index if trainer.device.type == "cuda" else None)
        try:
            self.best = _forget_after(run.checkpoints, trainer.steps)
            self.save(trainer)  # from here on a kill loses nothing that cannot be resumed
        except BaseException:
            self.close(Status.FAILED)
            raise

    def on_update(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Write a row everywhere; save a checkpoint if it is time."""
        known = {name: metrics.get(name, math.nan) for name in self.fields}
        self.csv.write(known)
        for log in self.logs:
            log.write(metrics)  # with what other callbacks added
        self.live.append([*known.values(), *self.hardware.figures()])
        if self.live.status is not Status.RUNNING:
            self.live.say(Status.RUNNING)
        score = metrics.get("eval/return", math.nan)
        due = time.monotonic() - self._saved_at >= trainer.config.run.checkpoint_seconds
        if first_says(trainer.shards.group, due or self._is_best(score)):
            self.save(trainer, score)

    def _is_best(self, score: float) -> bool:
        return math.isfinite(score) and (self.best is None or score > self.best[1])

    def save(self, trainer: Trainer, evaluated: float = math.nan) -> Path:
        """Save a checkpoint now; the best so far is marked, old ones are removed.

        `evaluated` is the mean return of an evaluation of just this policy. Where the run has
        evaluations, they alone say what is best; else the mean return of training does.
        """
        folder = self.run.checkpoints
        score = evaluated if trainer.config.run.eval_every else trainer.mean_return
        if trainer.iteration:
            self.live.say(Status.SAVING)
        path = save_checkpoint(folder, trainer.steps, *snapshot(trainer))
        if self._is_best(score):
            mark_best(folder, trainer.steps, score)
            self.best = trainer.steps, score
        prune_checkpoints(folder, trainer.config.run.keep)
        self.saved_step, self._saved_at = trainer.steps, time.monotonic()
        if trainer.iteration:
            self.live.say(Status.RUNNING)
        return path

    def close(self, status: Status) -> None:
        """Finish all files."""
        self.hardware.close()
        self.live.say(status)
        self.live.close()
        for log in (self.csv, *self.logs):
            log.close()


def _history(csv_file: Path, fields: tuple[str, ...]) -> list[list[float]]:
    table = read_csv(csv_file)
    columns = [table[name][-_HISTORY:] for name in fields]
    unknown = [np.full(len(columns[0]), np.nan) for _ in HARDWARE]
    rows: list[list[float]] = np.column_stack(columns + unknown).tolist()
    return rows


def _forget_after(folder: Path, step: int) -> tuple[int, float] | None:
    """Remove checkpoints of a future that will not be; step and score of the best before it."""
    try:
        best = read_best(folder)
        good = best is None or best[0] <= step
    except CheckpointError:
        good = False
    if not good:
        discard(folder / "best")
        best = None
    for path in reversed(list_checkpoints(folder)):
        if int(path.name) > step:
            discard(path)
    return best
