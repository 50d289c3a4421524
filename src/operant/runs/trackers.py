"""Logs that other programs show: TensorBoard and Weights & Biases, both optional extras."""

from __future__ import annotations

import importlib
import math
import netrc
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class TensorBoardLog:
    """Writes event files into `folder`; a row's step is its ``steps``.

    Give `up_to`, the last step that counts, when a run resumes: TensorBoard then drops later ones
    that were written before. Needs no torch and no TensorFlow.

    Raises:
        ValueError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, up_to: float | None = None) -> None:
        name = "TensorBoard"
        self._events = _extra("tensorboard.compat.proto.event_pb2", name)
        self._summaries = _extra("tensorboard.compat.proto.summary_pb2", name)
        writers = _extra("tensorboard.summary.writer.event_file_writer", name)
        self._writer = writers.EventFileWriter(str(folder), flush_secs=5)
        if up_to is not None:
            # A session's start discards what has its step or a later one.
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._add(int(up_to) + 1, session_log=start)

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row; values that are NaN are left out.

        Raises:
            ValueError: the row has no ``steps``.
        """
        step = _step(row)
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in row.items()
            if not math.isnan(value)
        ]
        self._add(step, summary=self._summaries.Summary(value=values))

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Write what is pending and close the file. May be repeated."""
        self._writer.close()


class WandbLog:
    """Sends rows to Weights & Biases, or keeps them in `folder` for ``wandb sync``.

    ``WANDB_MODE`` decides; without it, offline unless there is an API key. A run that resumes goes
    on under its `run_id`.

    Raises:
        ValueError: W&B is not installed.
    """

    def __init__(
        self, folder: Path, run_id: str, config: Mapping[str, Any], project: str = "operant"
    ) -> None:
        wandb = _extra("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            dir=str(folder),
            id=run_id,
            config=dict(config),
            project=project,
            resume="allow",
            mode=_wandb_mode(),
            settings=wandb.Settings(silent=True, quiet=True, console="off"),
        )

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row; values that are NaN are left out.

        Raises:
            ValueError: the row has no ``steps``.
        """
        values = {name: value for name, value in row.items() if not math.isnan(value)}
        # With its step: W&B ignores rows that a resumed run sends a second time.
        self._run.log(values, step=_step(row))

    def close(self) -> None:
        """Wait until W&B has everything. May be repeated."""
        self._run.finish()


def _extra(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and something of its own is missing
        raise ValueError(
            f"{name} is not installed: pip install 'operant[{name.lower()}]'"
        ) from None


def _step(row: Mapping[str, float]) -> int:
    try:
        return int(row["steps"])
    except KeyError:
        raise ValueError(f"the row has no 'steps'; it has {', '.join(row)}") from None


def _wandb_mode() -> str | None:
    """None leaves it to W&B: its variable, else online."""
    variables = os.environ
    if any(variables.get(f"WANDB_{name}") for name in ("MODE", "API_KEY", "IDENTITY_TOKEN_FILE")):
        return None
    host = urlsplit(variables.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    file = variables.get("NETRC") or Path.home() / ".netrc"
    try:
        known = netrc.netrc(str(file)).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return "offline"
    return None if known else "offline"
