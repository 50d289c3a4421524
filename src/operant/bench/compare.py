"""Artifacts side by side: two of them, or all of a folder over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operant.bench.artifact import short_commit
from operant.bench.rounds import clearly_different


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What changed from one artifact to another, by mode.

    ``exceeds_spread`` says whether all rounds of one are faster than all rounds of the other.

    Raises:
        ValueError: different environments, or no mode in common.
    """
    if one["env"] != other["env"]:
        raise ValueError(
            f"the first artifact is of {one['env']}, the second of {other['env']}; only artifacts "
            "of one environment can be compared"
        )
    modes = {mode["mode"]: mode for mode in other["modes"]}
    pairs = [(mode, modes[mode["mode"]]) for mode in one["modes"] if mode["mode"] in modes]
    if not pairs:
        raise ValueError("the two artifacts have no mode in common")
    return {
        "env": one["env"],
        "a": _identity(one),
        "b": _identity(other),
        "same_machine": one["machine"]["fingerprint"] == other["machine"]["fingerprint"],
        "config_changes": config_changes(one["config"], other["config"]),
        "modes": [
            {
                "mode": a["mode"],
                "a": a["sps"]["median"],
                "b": b["sps"]["median"],
                "ratio": round(b["sps"]["median"] / a["sps"]["median"], 4),
                "a_spread": a["sps"]["spread"],
                "b_spread": b["sps"]["spread"],
                "exceeds_spread": clearly_different(a["sps"]["rounds"], b["sps"]["rounds"]),
            }
            for a, b in pairs
        ],
    }


def _identity(artifact: Mapping[str, Any]) -> dict[str, Any]:
    return {key: artifact[key] for key in ("id", "date", "commit")}


def config_changes(
    one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Options whose values differ, by dotted name: the one and the other, None where missing."""
    return {
        f"{section}.{key}": [one[section].get(key), other[section].get(key)]
        for section in one
        for key in [*one[section], *(set(other[section]) - set(one[section]))]
        if one[section].get(key) != other[section].get(key)
    }


@dataclass(frozen=True)
class Line:
    """One environment's mode on one machine, through the artifacts."""

    env: str
    mode: str
    machine: str
    """Its fingerprint."""
    cpu: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Point:
    """What one artifact says about a line."""

    position: int
    """Of the artifact, the oldest being 0."""
    date: str
    commit: str
    median: float
    low: float
    high: float


def lines(artifacts: Sequence[Mapping[str, Any]]) -> list[Line]:
    """What to draw of artifacts, the oldest of which is the first; lines by their first points."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    names: dict[str, str] = {}
    for position, artifact in enumerate(artifacts):
        machine = artifact["machine"]
        names[machine["fingerprint"]] = machine["cpu"]
        for mode in artifact["modes"]:
            sps = mode["sps"]
            key = (artifact["env"], mode["mode"], machine["fingerprint"])
            found.setdefault(key, []).append(
                Point(
                    position,
                    artifact["date"],
                    short_commit(artifact["commit"]),
                    sps["median"],
                    sps["min"],
                    sps["max"],
                )
            )
    return [
        Line(env, mode, machine, names[machine], tuple(points))
        for (env, mode, machine), points in found.items()
    ]


def trend_records(found: Sequence[Line]) -> list[dict[str, Any]]:
    """Lines for JSON; ``change`` is the last figure relative to the first, less 1."""
    return [
        {
            "env": line.env,
            "mode": line.mode,
            "machine": line.machine,
            "cpu": line.cpu,
            "change": round(line.points[-1].median / line.points[0].median - 1, 4),
            "points": [
                {"date": p.date, "commit": p.commit, "sps": p.median, "min": p.low, "max": p.high}
                for p in line.points
            ],
        }
        for line in found
    ]
