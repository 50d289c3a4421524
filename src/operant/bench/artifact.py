"""Throughput artifacts: one JSON file a run of ``operant profile``, and what may be read from one.

The format is ``throughput.schema.json`` beside this file.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.bench.schema import read_checked
from operant.toolchain.files import replace_file
from operant.toolchain.machine import commit, machine, usable_cores

SCHEMA = "operant/throughput/1"
FOLDER = Path("artifacts") / "throughput"
"""Where artifacts go, below the current folder."""
_IDENTITY = ("cpu", "cores", "usable_cores", "system", "gpu")


def fingerprint(found: Mapping[str, Any]) -> str:
    """Stands for a machine: two runs whose figures may be compared have the same."""
    identity = [found.get(key) for key in _IDENTITY]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]


def this_machine() -> tuple[dict[str, Any], dict[str, str]]:
    """The machine with its fingerprint, and the versions of what runs on it."""
    import torch  # noqa: F401  (a GPU is seen only once it is loaded)

    found = machine()
    versions = {"python": found.pop("python"), **found.pop("versions")}
    found["usable_cores"] = usable_cores()
    return {"fingerprint": fingerprint(found), **found}, versions


@dataclass(frozen=True)
class Run:
    """What identifies a run: when, of what, of which code, on which machine."""

    id: str
    date: str
    """In UTC."""
    commit: str
    env: str
    machine: dict[str, Any]
    versions: dict[str, str]

    @classmethod
    def start(cls, env: str) -> Run:
        """A run of an environment, by its name in a configuration, that begins now."""
        return cls(
            secrets.token_hex(4),
            datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            commit() or "none",
            env.removeprefix("operant:").removeprefix("operant/"),
            *this_machine(),
        )

    @property
    def name(self) -> str:
        """For a file: ``2026-11-15T18-30-00_0a1b2c3_cartpole-v1_5e6f7a8b``."""
        date = self.date[:19].replace(":", "-")
        return f"{date}_{short_commit(self.commit)}_{env_slug(self.env)}_{self.id}"

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "date": self.date,
            "commit": self.commit,
            "env": self.env,
            "machine": self.machine,
            "versions": self.versions,
        }


def short_commit(name: str) -> str:
    """The first seven digits, and whether it was changed."""
    head, dash, changed = name.partition("-")
    return head[:7] + dash + changed


def env_slug(env: str) -> str:
    """A name as a part of a file's: ``cartpole-v1``; of ``file.py:Class``, the class."""
    name = env.rpartition(":")[2].rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9.-]+", "-", name)[:60].strip(".-") or "env"


def plain(value: Any) -> Any:
    """`value` for JSON, which has no infinities: they become strings."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_artifact(folder: Path, run: Run, data: Mapping[str, Any]) -> Path:
    """Write a run's artifact into `folder`, which exists, under the run's name; the file.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / f"{run.name}.json"
    replace_file(path, (json.dumps(data, indent=2) + "\n").encode())
    return path


def read_artifact(path: Path) -> dict[str, Any]:
    """An artifact; nothing in the file is trusted.

    Raises:
        ValueError: unreadable or not an artifact; one sentence, with the file's name.
    """
    data = read_checked(path, "throughput")
    names = [mode["mode"] for mode in data["modes"]]
    trouble = None
    if len(set(names)) < len(names):
        trouble = "a mode is there twice"
    for number, mode in enumerate(data["modes"]):
        sps, total = mode["sps"], sum(mode["split"].values())
        if abs(total - 1) > 1e-3:
            trouble = f"modes[{number}].split sums to {total:.4g}, not to 1"
        if not sps["min"] <= sps["median"] <= sps["max"]:
            trouble = f"modes[{number}].sps.median is not between min and max"
    if trouble is not None:
        raise ValueError(f"{path} is not a throughput artifact: {trouble}")
    return data


def read_folder(folder: Path) -> list[dict[str, Any]]:
    """The artifacts of a folder, the oldest first.

    Raises:
        ValueError: there is none, or a ``.json`` file is not an artifact.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise ValueError(f"cannot read {folder}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"cannot read {str(folder)!r}: {error}") from None
    if not paths:
        raise ValueError(f"there is no artifact in {folder}; `operant profile ENV` writes one")
    return by_date(read_artifact(path) for path in paths)


def by_date(artifacts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The oldest first."""
    return sorted(artifacts, key=lambda one: (one["date"], one["id"]))
