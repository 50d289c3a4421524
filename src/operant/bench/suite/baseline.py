"""Results of the suite that were kept under a name, and what changed since."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operant.bench.frame import frame, write_json
from operant.bench.schema import read_checked
from operant.bench.suite.case import Case
from operant.bench.suite.measure import Result
from operant.toolchain.paths import home

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def result_frame(result: Result, suite: str, device: str, seconds: float) -> dict[str, Any]:
    """The JSON of a run of the suite."""
    found = frame([one.record() for one in result.measured])
    return {
        "schema": "operant/suite/1",
        **{key: value for key, value in found.items() if key != "results"},
        "suite": suite,
        "device": device,
        "seconds": seconds,
        "noise": result.noise.record(),
        "results": found["results"],
    }


def baseline_path(name: str) -> Path:
    """Where the baseline of that name is, or would be.

    Raises:
        ValueError: no name for a file.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"a baseline's name has letters, digits, '.', '_' and '-', got {name!r}")
    return home() / "baselines" / f"{name}.json"


def save_baseline(name: str, found: dict[str, Any]) -> Path:
    """Keep what `result_frame` gave; one of that name is replaced. Its file."""
    path = baseline_path(name)
    write_json(str(path), found)
    return path


def load_baseline(name: str) -> dict[str, Any]:
    """What was kept under that name, or in a file of that name.

    Raises:
        ValueError: there is none (the message names those there are), or it is damaged.
    """
    path = Path(name) if name.endswith(".json") else baseline_path(name)
    if not path.exists():
        known = sorted(one.stem for one in (home() / "baselines").glob("*.json"))
        there = f"there are {', '.join(known)}" if known else "none was saved yet"
        raise ValueError(f"no baseline is called {name!r}; {there}: operant bench save {name}")
    return read_checked(path, "suite")


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What both measured, a flat record each. ``ratio``: how many times better now: of speed, or of
    a size's inverse. What time it takes is first divided by how fast the machine itself was, so
    that a slower day is no regression. ``low`` and ``high`` bound it: the ends of both medians'
    intervals.

    Raises:
        ValueError: nothing in common, or another device.
    """
    if then["device"] != now["device"]:
        raise ValueError(f"the baseline is of {then['device']}, this run of {now['device']}")
    before = {row["name"]: row for row in then["results"] if "median" in row}
    pairs = [
        (before[r["name"]], r) for r in now["results"] if r["name"] in before and "median" in r
    ]
    if not pairs:
        raise ValueError("the baseline and this run have no case in common")
    return [_change(old, new, machine_ratio(then, now)) for old, new in pairs]


def machine_ratio(then: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """How fast the machine itself is now, over what it was."""
    return float(now["noise"]["probe_speed"] / then["noise"]["probe_speed"])


def _change(old: Mapping[str, Any], new: Mapping[str, Any], machine: float) -> dict[str, Any]:
    case = Case(new["name"], new["unit"], lambda: None)  # type: ignore[arg-type,return-value]
    faster = machine if case.is_time else 1.0

    def better(then: float, now: float) -> float:
        return now / then / faster if case.more_is_better else then / now / faster

    ends = (better(old["low"], new["high"]), better(old["high"], new["low"]))
    if not case.more_is_better:
        ends = (better(old["high"], new["low"]), better(old["low"], new["high"]))
    return {
        "name": new["name"],
        "unit": new["unit"],
        "then": old["median"],
        "now": new["median"],
        "ratio": round(better(old["median"], new["median"]), 4),
        "low": round(min(ends), 4),
        "high": round(max(ends), 4),
    }


def regressions(found: Sequence[Mapping[str, Any]], least: float) -> list[str]:
    """A sentence for each change that is below `least`, and whose interval leaves out 1."""
    return [
        f"{one['name']} is at {one['ratio']:.3f} of the baseline "
        f"({one['low']:.3f} to {one['high']:.3f}): {one['then']:.4g} {one['unit']} then, "
        f"{one['now']:.4g} now"
        for one in found
        if one["ratio"] < least and one["high"] < 1
    ]
