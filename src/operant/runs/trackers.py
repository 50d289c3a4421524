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

from operant.toolchain.files import check_folder


class TensorBoardLog:
    """Writes event files into `folder`, which must be no link; a row's step is its ``steps``.

    Give `up_to`, the last step that counts, when a run resumes: TensorBoard then drops later ones
    that were written before. Needs no torch and no TensorFlow.

    Raises:
        ValueError: TensorBoard is not installed.
        OSError: `folder` is a symbolic link or a file.
    """

    def __init__(self, folder: Path, up_to: float | None = None) -> None:
        name = "TensorBoard"
        check_folder(folder)
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
    on under its `run_id`. W&B runs no git here, which would obey the configuration of whatever
    repository one stands in, and reports nothing to its makers unless ``WANDB_ERROR_REPORTING``
    says so, which does not count offline.

    Attributes:
        problem: why rows are kept although they should be sent: no network, say; else empty.

    Raises:
        ValueError: W&B is not installed, or would take settings, such as where to send the key,
            from a file in the working directory or in `folder`.
        OSError: what is to be W&B's folder is a symbolic link or a file.
    """

    def __init__(
        self, folder: Path, run_id: str, config: Mapping[str, Any], project: str = "operant"
    ) -> None:
        self.problem = ""
        folder.mkdir(parents=True, exist_ok=True)
        _check_wandb_folders(folder)
        mode = _wandb_mode()
        _set_wandb_variables(offline=mode == "offline")
        wandb = _extra("wandb", "wandb")
        options = {
            "dir": str(folder),
            "id": run_id,
            "config": dict(config),
            "project": project,
            "resume": "allow",
            "settings": wandb.Settings(
                silent=True, quiet=True, console="off", disable_git=True, disable_code=True
            ),
        }
        try:
            self._run = wandb.init(mode=mode, **options)
        except wandb.Error as error:  # no network, or a key that is refused
            reason = " ".join(str(error).split())[:200]
            kept = f"rows are kept in {folder / 'wandb'}, to be sent by: wandb sync"
            self.problem = f"W&B cannot be reached ({reason}); {kept}"
            wandb.teardown()  # it still holds the run's name
            self._run = wandb.init(mode="offline", **options)

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


def _check_wandb_folders(folder: Path) -> None:
    """Refuse files that W&B would obey and that may come from anyone, and links to elsewhere."""
    for place in (Path.cwd(), folder):
        for name in ("wandb", ".wandb"):
            if place == folder:
                check_folder(place / name)
            file = place / name / "settings"
            if os.path.lexists(file):
                raise ValueError(
                    f"W&B would obey {file}, which may send your key to another server; move it "
                    "away, and keep settings in ~/.config/wandb/settings or in variables, such as "
                    "WANDB_BASE_URL"
                )


def _set_wandb_variables(offline: bool) -> None:
    """What the user has not set: no reports to its makers, and an end to waiting for a network."""
    if offline:
        os.environ["WANDB_ERROR_REPORTING"] = "false"
    defaults = {"ERROR_REPORTING": "false", "INIT_TIMEOUT": "20", "FINISH_TIMEOUT": "120"}
    for name, value in defaults.items():
        os.environ.setdefault(f"WANDB_{name}", value)


def _wandb_mode() -> str | None:
    """None leaves it to W&B: its variable, else online."""
    variables = os.environ
    if variables.get("WANDB_MODE") == "offline":
        return "offline"
    if any(variables.get(f"WANDB_{name}") for name in ("MODE", "API_KEY", "IDENTITY_TOKEN_FILE")):
        return None
    host = urlsplit(variables.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    file = variables.get("NETRC") or Path.home() / ".netrc"
    try:
        known = netrc.netrc(str(file)).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return "offline"
    return None if known else "offline"
