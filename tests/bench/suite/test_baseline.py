"""Baselines: kept, read again with distrust, and compared."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from operant.bench.suite.baseline import (
    baseline_path,
    changes,
    load_baseline,
    machine_ratio,
    regressions,
    result_frame,
    save_baseline,
)
from operant.bench.suite.case import Case, Measured, Once
from operant.bench.suite.machine_noise import Noise
from operant.bench.suite.measure import Result


def found(speed: float = 1.0, machine: float = 1.0) -> dict[str, Any]:
    """What a suite of three cases gives; `speed` of our code, and of the machine."""

    def case(name: str, unit: str, rounds: list[float]) -> Measured:
        return Measured(Case(name, unit, lambda: Once(lambda: 0.0)), rounds)

    both = speed * machine
    measured = [
        case("vecenv_step/x", "steps/s", [one * both for one in (99.0, 100.0, 101.0)]),
        case("checkpoint_save", "s", [one / both for one in (0.99, 1.0, 1.01)]),
        case("env_memory", "B", [1000.0 / speed]),
    ]
    broken = case("start", "s", [])
    broken.trouble = "it cannot"
    return result_frame(
        Result([*measured, broken], Noise(1e7 * machine, 0.0, 0.0)), "quick", "cpu", 0.2
    )


def test_a_slower_day_is_no_regression() -> None:
    for machine in (0.5, 1.0, 2.0):
        then, now = found(), found(machine=machine)
        changed = changes(then, now)
        assert machine_ratio(then, now) == machine
        assert [one["name"] for one in changed] == [
            "vecenv_step/x",
            "checkpoint_save",
            "env_memory",
        ]
        assert [one["ratio"] for one in changed] == pytest.approx([1.0, 1.0, 1.0])
        assert regressions(changed, 0.95) == []


@pytest.mark.parametrize("machine", [0.5, 1.0])
def test_a_slower_version_is_one(machine: float) -> None:
    changed = changes(found(), found(0.9, machine))
    assert [one["ratio"] for one in changed] == pytest.approx([0.9, 0.9, 0.9], abs=1e-3)
    for one in changed:
        assert one["low"] <= one["ratio"] <= one["high"] < 1
    first, *others = regressions(changed, 0.95)
    assert len(others) == 2
    assert first.startswith("vecenv_step/x is at 0.900 of the baseline (0.882 to 0.918): 100")
    assert regressions(changed, 0.85) == []


def test_a_wide_interval_is_no_regression() -> None:
    then, now = found(), found(0.9)
    now["results"][0]["high"] = 120.0
    assert not any("vecenv_step" in line for line in regressions(changes(then, now), 0.95))


def test_what_is_not_comparable() -> None:
    then, now = found(), found()
    now["device"] = "cuda"
    with pytest.raises(ValueError, match="of cpu, this run of cuda"):
        changes(then, now)
    for row in then["results"]:
        row["name"] += "s"
    with pytest.raises(ValueError, match="no case in common"):
        changes(then, found())


def test_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="'a'; none was saved yet: operant bench save a"):
        load_baseline("a")
    path = save_baseline("a", found())
    assert path == baseline_path("a")
    assert (
        load_baseline("a")
        == load_baseline(str(path))
        == json.loads(path.read_text())
        == found() | {"date": json.loads(path.read_text())["date"]}
    )
    with pytest.raises(ValueError, match="'b'; there are a: operant bench save b"):
        load_baseline("b")
    for name in ("", "../a", ".a", "a b", "a" * 101):
        with pytest.raises(ValueError, match="a baseline's name has letters"):
            baseline_path(name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data.pop("noise"), "it has no 'noise'"),
        (lambda data: data["noise"].update(probe_speed=0), "noise.probe_speed must be above 0"),
        (lambda data: data.update(schema="operant/suite/2"), 'must be "operant/suite/1"'),
        (lambda data: data.update(device="a\x1b[2J"), "device must be one of"),
    ],
)
def test_a_damaged_one_is_a_sentence(tmp_path: Path, damage: Any, words: str) -> None:
    data = copy.deepcopy(found())
    damage(data)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="is not a baseline") as caught:
        load_baseline(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
