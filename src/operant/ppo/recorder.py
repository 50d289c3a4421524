"""`Recorder`: the callback that writes a run directory."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from operant.ppo.callbacks import Callback
from operant.ppo.snapshot import snapshot
from operant.ppo.trainer import METRICS, PPO
from operant.runs.checkpoint import mark_best, prune_checkpoints, save_checkpoint
from operant.runs.directory import Run
from operant.runs.logs import CsvLog, JsonlLog, Log, read_csv
from operant.runs.metrics_file import MetricsWriter
from operant.runs.metrics_layout import Status

_HISTORY = 4096


class Recorder(Callback):
    """Writes metrics after each iteration and a checkpoint from time to time.

    Args:
        run: the directory; this process is its only writer.
        ppo: what is trained. Rows that a killed process wrote after its last checkpoint are
            dropped, so that each iteration is in the files once.
    """

    def __init__(self, run: Run, ppo: PPO) -> None:
        self.run = run
        options = ppo.config.run
        csv = CsvLog.resume(run.csv_file, METRICS, "iteration", ppo.iteration)
        jsonl = JsonlLog.resume(run.jsonl_file, "iteration", ppo.iteration)
        self.logs: list[Log] = [csv, jsonl]
        if options.tensorboard:
            from operant.runs.trackers import TensorBoardLog

            folder = run.path / "tensorboard"
            self.logs.append(TensorBoardLog(folder, ppo.steps if ppo.steps else None))
        if options.wandb:
            from operant.runs.trackers import WandbLog

            self.logs.append(WandbLog(run.path, run.id, ppo.config.to_dict()))
        self.live = MetricsWriter(
            run.mmap_file, METRICS, run_id=run.id, capacity=_HISTORY, history=_history(run.csv_file)
        )
        self.saved_step: int | None = ppo.steps if ppo.iteration else None
        self._saved_at = time.monotonic()

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Write a row everywhere; save a checkpoint if it is time."""
        for log in self.logs:
            log.write(metrics)
        self.live.append([metrics[name] for name in METRICS])
        if time.monotonic() - self._saved_at >= ppo.config.run.checkpoint_seconds:
            self.save(ppo)

    def save(self, ppo: PPO) -> Path:
        """Save a checkpoint now; the best so far is marked, old ones are removed."""
        score = ppo.mean_return
        best = bool(np.isfinite(score)) and (ppo.best_return is None or score > ppo.best_return)
        if best:
            ppo.best_return = score
        folder = self.run.checkpoints
        path = save_checkpoint(folder, ppo.steps, *snapshot(ppo))
        if best:
            mark_best(folder, ppo.steps, score)
        prune_checkpoints(folder, ppo.config.run.keep)
        self.saved_step, self._saved_at = ppo.steps, time.monotonic()
        return path

    def close(self, status: Status) -> None:
        """Finish all files."""
        self.live.finish(status)
        self.live.close()
        for log in self.logs:
            log.close()


def _history(csv_file: Path) -> list[list[float]]:
    table = read_csv(csv_file)
    rows: list[list[float]] = np.column_stack([table[name] for name in METRICS]).tolist()
    return rows[-_HISTORY:]
