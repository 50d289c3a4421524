"""Files of results: read with distrust, and sorted by what they are about."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.toolchain.files import read_bounded

LARGEST_BYTES = 16 << 20
_MOST_RECORDS = 100_000


@dataclass(frozen=True)
class Source:
    """A file of results, see `operant.bench.frame`."""

    name: str
    machine: str
    """In words."""
    versions: str
    commit: str
    date: str
    records: tuple[dict[str, Any], ...]

    def where(self) -> str:
        """What a figure from it must be read with, in a line."""
        parts = (self.machine, self.versions, f"commit {self.commit}", self.date[:10])
        return " · ".join(part for part in parts if part)


@dataclass
class Found:
    """Sources, and what could not be read."""

    sources: list[Source] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """A sentence for each file that is none."""


def find_sources(places: Iterable[Path]) -> Found:
    """Every JSON file of `places`, files or folders (theirs, not below), the oldest first."""
    found = Found()
    for place in places:
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        for file in files:
            try:
                found.sources.append(read_source(file))
            except ValueError as error:
                found.troubles.append(str(error))
    found.sources.sort(key=lambda one: (one.date, one.name))
    return found


def read_source(path: Path) -> Source:
    """The results in a file.

    Raises:
        ValueError: unreadable, or no file of results; one sentence with its name.
    """
    try:
        data = json.loads(read_bounded(path, LARGEST_BYTES).decode("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    records = data.get("results") if isinstance(data, dict) else None
    if not isinstance(records, list) or not isinstance(data.get("machine"), dict):
        raise ValueError(f"{path} has no results with a machine: see docs/benchmarks.md")
    kept = tuple(one for one in records[:_MOST_RECORDS] if isinstance(one, dict))
    machine = data["machine"]
    return Source(
        path.name,
        _machine(machine),
        _versions(machine.get("versions")),
        _text(data.get("commit"))[:12] or "unknown",
        _text(data.get("date")),
        kept,
    )


def _machine(machine: dict[str, Any]) -> str:
    cores = machine.get("cores")
    names = [_text(machine.get("gpu")), _text(machine.get("cpu"))]
    if isinstance(cores, int) and not isinstance(cores, bool):
        names.append(f"{cores} cores")
    return ", ".join(name for name in names if name)


def _versions(versions: Any) -> str:
    shown = ("torch", "triton", "numba")
    known = versions if isinstance(versions, dict) else {}
    return ", ".join(f"{name} {_text(known[name])}" for name in shown if name in known)


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def number(record: dict[str, Any], name: str) -> float | None:
    """A finite number of a record; None if it has none of that name."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def text(record: dict[str, Any], *names: str) -> str:
    """Texts of a record, those that there are, with spaces between."""
    return " ".join(_text(record.get(name)) for name in names if _text(record.get(name)))


@dataclass(frozen=True)
class Speed:
    """Steps a second of one system on one environment."""

    env: str
    system: str
    num_envs: int
    sps: float
    low: float
    high: float
    trains: bool
    """Steps that were trained on, too."""
    ours: bool


_OURS = ("operant", "eager", "graph", "fused")
"""Systems that are this library: by its name, or by that of an engine beside another."""


def speeds(source: Source) -> list[Speed]:
    """What `operant bench env` and `operant bench ppo` measured."""
    found = []
    for record in source.records:
        figures = [number(record, name) for name in ("sps", "sps_min", "sps_max", "num_envs")]
        sps, low, high, count = (0.0 if one is None else one for one in figures)
        if min(sps, low, high, count) <= 0 or not text(record, "env") or not text(record, "system"):
            continue
        trains = isinstance(record.get("engine"), str)
        found.append(
            Speed(
                text(record, "env"),
                _system(record, trains),
                int(count),
                sps,
                low,
                high,
                trains,
                text(record, "system").split()[0] in _OURS,
            )
        )
    return found


def _system(record: dict[str, Any], trains: bool) -> str:
    """Who did it, and how, in a few words."""
    system = text(record, "system")
    words = ["operant" if system in _OURS else system]
    words += [text(record, *(("engine", "precision") if trains else ("backend",)))]
    threads = number(record, "threads" if trains else "workers")
    words += [f"{threads:.0f} threads"] if threads and threads > 1 else []
    if trains and text(record, "compile") not in ("", "off"):
        words.append(f"compile={text(record, 'compile')}")
    if trains and record.get("hidden") not in (None, [64, 64]):
        words.append(f"hidden {str(record['hidden'])[:20]}")
    return " ".join(word for word in words if word)


Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """Learning curves of several seeds: return by steps."""

    env: str
    what: str
    curves: tuple[Curve, ...]


def curves(source: Source) -> list[Curves]:
    """Learning curves, by environment and way."""
    groups: dict[tuple[str, str], list[Curve]] = {}
    for record in source.records:
        points = record.get("curve")
        if not isinstance(points, list) or not text(record, "env"):
            continue
        curve = [pair for pair in map(_pair, points) if pair is not None]
        if len(curve) > 1:
            groups.setdefault((text(record, "env"), text(record, "what")), []).append(curve)
    return [Curves(env, what, tuple(found)) for (env, what), found in groups.items()]


def _pair(point: Any) -> tuple[float, float] | None:
    if not isinstance(point, list) or len(point) != 2:
        return None
    both = [number({"x": value}, "x") for value in point]
    return None if both[0] is None or both[1] is None else (both[0], both[1])


@dataclass(frozen=True)
class Solved:
    """Seconds of training until an environment was solved, by seed; None where it was not."""

    env: str
    how: str
    seconds: tuple[float | None, ...]


def solved(source: Source) -> list[Solved]:
    """Times to a threshold."""
    groups: dict[tuple[str, str], list[float | None]] = {}
    for record in source.records:
        seconds = number(record, "seconds")
        reached = record.get("reached")
        if seconds is None or not isinstance(reached, bool) or not text(record, "env"):
            continue
        key = (text(record, "env"), text(record, "engine", "device"))
        groups.setdefault(key, []).append(seconds if reached else None)
    return [Solved(env, how, tuple(found)) for (env, how), found in groups.items()]


@dataclass(frozen=True)
class Figure:
    """A case of the suite; see `operant.bench.suite`."""

    name: str
    unit: str
    median: float
    low: float
    high: float


def suite_figures(source: Source) -> list[Figure]:
    """What `operant bench run` measured."""
    found = []
    for record in source.records:
        values = [number(record, name) for name in ("median", "low", "high")]
        if text(record, "name") and text(record, "unit") and None not in values:
            found.append(Figure(text(record, "name"), text(record, "unit"), *values))  # type: ignore[arg-type]
    return found


def histories(sources: Sequence[Source]) -> dict[str, list[tuple[Source, Figure]]]:
    """Cases of the suite that several files of one machine have, by name; the oldest first."""
    by_machine: dict[str, dict[str, list[tuple[Source, Figure]]]] = {}
    for source in sources:
        for figure in suite_figures(source):
            cases = by_machine.setdefault(source.machine, {})
            cases.setdefault(figure.name, []).append((source, figure))
    several = [
        {name: found for name, found in cases.items() if len(found) > 1}
        for cases in by_machine.values()
    ]
    return max(several, key=len, default={})
