"""Targets and calibrated floors: what a speed is judged by.

A *target* is a wish, the same on every machine. A *floor* is what one machine was seen to reach,
less a margin for its noise. Where a floor is given, it is what is enforced: a machine on which the
target is out of reach is still held to what it can do, and missing the target is said all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.bench.artifact import Run, plain
from operant.bench.profile import Result
from operant.bench.schema import read_checked
from operant.ppo.config import Config
from operant.toolchain.files import make_folder, replace_file

SCHEMA = "operant/floor/1"
LEAST_FACTOR, MOST_FACTOR = 0.5, 0.9
_NOT_WORK = {"env.id", "run.total_steps", "run.seed", "run.checkpoint_seconds", "run.keep"}
_NOT_WORK |= {"run.eval_episodes", "run.tensorboard", "run.wandb"}
"""Options that a round's speed does not depend on."""


def safety_factor(spread: float) -> float:
    """What a median is multiplied with to become a floor: 1 less twice the spread of the rounds,
    but 0.9 at most and 0.5 at least. Runs of another day differ by more than rounds of one run.

    >>> [safety_factor(spread) for spread in (0.0, 0.1, 0.9)]
    [0.9, 0.8, 0.5]
    """
    return round(min(max(1 - 2 * spread, LEAST_FACTOR), MOST_FACTOR), 4)


def work_of(config: Config, result: Result) -> dict[str, Any]:
    """What a mode does, by dotted name: speeds of different work are not compared."""
    sections = ("env",) if result.mode == "env_only" else ("env", "policy", "ppo", "run")
    tables = config.to_dict()
    work = {
        f"{section}.{key}": plain(value)
        for section in sections
        for key, value in tables[section].items()
        if f"{section}.{key}" not in _NOT_WORK
    }
    work["run.device"] = result.device  # of "auto"
    if result.evaluations is not None:
        work["eval.every_steps"] = result.evaluations.every_steps
        work["eval.episodes"] = result.evaluations.episodes
    return work


@dataclass(frozen=True)
class Floors:
    """The entries of a floor file."""

    path: Path
    entries: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Floors:
        """The entries of a file.

        Raises:
            ValueError: unreadable, or not a floor file.
        """
        return cls(path, read_checked(path, "floor")["floors"])

    def find(self, run: Run, mode: str) -> dict[str, Any] | None:
        """The entry of a mode of the run's environment on its machine, if there is one."""
        wanted = (run.env, mode, run.machine["fingerprint"])
        for entry in self.entries:
            if (entry["env"], entry["mode"], entry["machine"]) == wanted:
                return entry
        return None

    def check(self, run: Run, modes: Sequence[str]) -> None:
        """Refuse a run that there is no floor for.

        Raises:
            ValueError: another machine's file, or an environment or mode that it does not have.
        """
        machine = run.machine
        here = [one for one in self.entries if one["machine"] == machine["fingerprint"]]
        if not here:
            known = ", ".join(sorted({one["cpu"] for one in self.entries}))
            raise ValueError(
                f"{self.path} was calibrated on another machine ({known}; this is "
                f"{machine['cpu']}, {machine['usable_cores']} usable cores): a floor holds where "
                "it was measured; add this machine's with --calibrate"
            )
        for mode in modes:
            if self.find(run, mode) is None:
                raise ValueError(
                    f"{self.path} has no floor for {run.env} in mode {mode} on this machine; add "
                    "it with --calibrate"
                )

    def check_new(self, run: Run, modes: Sequence[str]) -> None:
        """Refuse to calibrate again: a floor that follows every slow run protects nothing.

        Raises:
            ValueError: one of the modes has a floor on this machine.
        """
        for mode in modes:
            if self.find(run, mode) is not None:
                raise ValueError(
                    f"{self.path} has a floor for {run.env} in mode {mode} on this machine "
                    "already; leave out --calibrate to compare with it, or remove the file"
                )


def check_work(entry: Mapping[str, Any], work: Mapping[str, Any], path: Path) -> None:
    """Refuse to compare speeds of different work.

    Raises:
        ValueError: the configuration is not the one that the floor was calibrated with.
    """
    known = entry["work"]
    for name in sorted({*known, *work}):
        if known.get(name) != work.get(name):
            raise ValueError(
                f"{path}: the floor for mode {entry['mode']} was calibrated with {name} "
                f"{known.get(name)}, this run has {work.get(name)}; calibrate a file of its own"
            )


def calibrated(result: Result, config: Config, run: Run) -> dict[str, Any]:
    """The entry for a floor file that a mode's rounds amount to."""
    sps = result.sps
    factor = safety_factor(sps.spread)
    return {
        "env": run.env,
        "mode": result.mode,
        "machine": run.machine["fingerprint"],
        "cpu": run.machine["cpu"],
        "work": work_of(config, result),
        "sps": round(sps.median * factor, 1),
        "median": round(sps.median, 1),
        "spread": round(sps.spread, 4),
        "factor": factor,
        "rounds": len(sps.sps),
        "commit": run.commit,
        "date": run.date,
    }


def write_floors(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write a floor file.

    Raises:
        OSError: it cannot be written.
    """
    make_folder(path.absolute().parent)
    data = {"schema": SCHEMA, "floors": list(entries)}
    replace_file(path, (json.dumps(data, indent=2) + "\n").encode())


def judged(
    record: Mapping[str, Any], target: float, entry: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A mode's record with its ``target`` and its ``floor``, which is None without an `entry`."""
    sps = record["sps"]["median"]
    return {
        **record,
        "target": {"met": sps >= target, "delta": round(sps / target - 1, 4)},
        "floor": None
        if entry is None
        else {
            "sps": entry["sps"],
            "met": sps >= entry["sps"],
            "delta": round(sps / entry["sps"] - 1, 4),
        },
    }


def missed(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Modes that miss what is enforced: their floor where they have one, else the target."""
    return [mode["mode"] for mode in modes if not (mode["floor"] or mode["target"])["met"]]


def verdicts(modes: Sequence[Mapping[str, Any]], target: float) -> list[str]:
    """What is to be said about modes that miss the target or their floor, a sentence each."""
    found = []
    for mode in modes:
        goal, floor, sps = mode["target"], mode["floor"], mode["sps"]["median"]
        if not goal["met"]:
            text = f"{mode['mode']}: target missed, {sps:,.0f} of {target:,.0f} steps/s"
            text += f" ({goal['delta']:+.1%})"
            if floor is not None and floor["met"]:
                text += "; out of reach here: the calibrated floor is what is enforced, and it is"
                text += f" kept ({floor['sps']:,.0f}, {floor['delta']:+.1%})"
            found.append(text)
        if floor is not None and not floor["met"]:
            text = f"{mode['mode']}: below the calibrated floor, {sps:,.0f} of {floor['sps']:,.0f}"
            found.append(f"{text} steps/s ({floor['delta']:+.1%})")
    return found
