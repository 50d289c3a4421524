"""What all processes of a sweep agree on, as a file in its folder that trusts nobody."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from operant.ppo.config import Config
from operant.runs.directory import run_name
from operant.sweep.space import Space, parse_space
from operant.toolchain.files import read_bounded, replace_file
from operant.toolchain.paths import home
from operant.training.config_file import parsed_config, to_toml

RETURN, SECONDS, BOTH = METRICS = ("return", "seconds_to_threshold", "both")
Direction = Literal["maximize", "minimize"]
FORMAT = 1
_LARGEST_BYTES = 1 << 18
_MOST_TRIALS = 1_000_000
_FIELDS = {
    **dict.fromkeys(("format", "trials", "seeds"), int),
    **dict.fromkeys(("env", "metric", "space", "base", "date"), str),
    "change_task": bool,
}


def sweeps_folder() -> Path:
    """Where sweeps are kept, beside the runs."""
    return home() / "sweeps"


def check_name(name: str) -> None:
    """Raise ValueError unless `name` can be the name of a sweep."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", name):
        raise ValueError(
            f"a sweep's name has letters, digits, '.', '_' and '-' only, 80 at most, got {name!r}"
        )


def free_name(env_id: str) -> str:
    """A name that no sweep has: environment, date and time."""
    name, number = run_name(env_id), 1
    while (sweeps_folder() / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return name if number == 1 else f"{name}-{number}"


@dataclass(frozen=True)
class Plan:
    """What is searched, from where, for what, and how long."""

    env: str
    """The environment, as it is typed."""
    metric: str
    """One of `METRICS`."""
    space: Space
    base: Config
    """The configuration that trial 0 has, values of ``[fixed]`` included."""
    trials: int
    """To be finished."""
    seeds: int
    """Trainings of a trial; the first has ``base.run.seed``."""
    change_task: bool = False
    """Whether the space may change the task."""
    date: str = ""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Of the metric, or of both."""
        if self.metric == BOTH:
            return ("maximize", "minimize")
        return ("maximize",) if self.metric == RETURN else ("minimize",)

    @property
    def trial_seeds(self) -> tuple[int, ...]:
        """The seeds that choose."""
        first = self.base.run.seed
        return tuple(range(first, first + self.seeds))

    def unseen_seeds(self, count: int) -> tuple[int, ...]:
        """Seeds that no trial has."""
        first = self.base.run.seed + max(1000, self.seeds)
        return tuple(range(first, first + count))

    def config(self, values: Mapping[str, Any]) -> Config:
        """The configuration of a trial.

        Raises:
            ValueError: values that contradict each other, or are none.
        """
        return self.base.replaced(dict(values))

    def write(self, folder: Path) -> None:
        """Write ``sweep.json``."""
        record = {
            "format": FORMAT,
            "env": self.env,
            "metric": self.metric,
            "space": self.space.to_toml(),
            "base": to_toml(self.base, comments=False),
            "trials": self.trials,
            "seeds": self.seeds,
            "change_task": self.change_task,
            "date": self.date or time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        replace_file(folder / "sweep.json", (json.dumps(record, indent=2) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """What `write` wrote; nothing in the file is trusted.

        Raises:
            ValueError: unreadable or damaged, in one sentence with the file's name.
        """
        path = folder / "sweep.json"
        try:
            record = json.loads(read_bounded(path, _LARGEST_BYTES))
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise ValueError(f"{path} is damaged: it is not JSON") from None
        return _plan(record, path)


def _plan(record: Any, path: Path) -> Plan:
    if not isinstance(record, dict):
        raise ValueError(f"{path} is damaged: it is no object")
    if record.get("format") != FORMAT:
        raise ValueError(f"{path} has format {record.get('format')!r}; this version reads {FORMAT}")
    for name, kind in _FIELDS.items():
        if type(record.get(name)) is not kind:
            raise ValueError(f"{path} is damaged: {name} must be {kind.__name__}")
    if record["metric"] not in METRICS:
        raise ValueError(f"{path} is damaged: metric {record['metric']!r} is unknown")
    if not (1 <= record["trials"] <= _MOST_TRIALS and 1 <= record["seeds"] <= 100):
        raise ValueError(f"{path} is damaged: so many trials or seeds there cannot be")
    try:
        space = parse_space(record["space"].encode(), f"{path}: space", record["change_task"])
        base = Config().replaced(parsed_config(Config, record["base"].encode(), f"{path}: base"))
    except UnicodeEncodeError:
        raise ValueError(f"{path} is damaged: it is not Unicode text") from None
    return Plan(
        record["env"],
        record["metric"],
        space,
        base,
        record["trials"],
        record["seeds"],
        record["change_task"],
        record["date"],
    )
