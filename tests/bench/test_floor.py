"""Targets and floors: what is enforced where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operant.bench import floor
from operant.bench.artifact import Run
from operant.bench.floor import Floors, calibrated, check_work, judged, missed, safety_factor
from operant.bench.profile import Evaluations, Result
from operant.bench.training import Round
from operant.ppo.config_file import resolved

HERE = {"fingerprint": "aaaaaaaaaaaa", "cpu": "This", "usable_cores": 2}
RUN = Run("01234567", "2026-11-15T18:30:00+00:00", "none", "CartPole-v1", HERE, {})


def result(mode: str = "trainer", speeds: tuple[float, ...] = (95.0, 100.0, 105.0)) -> Result:
    found = Result(mode, "cpu", "cpu", 8, 1)
    found.rounds.extend(Round(int(100 * sps), 100.0, {"env": 1.0}) for sps in speeds)
    return found


def config(**options: Any) -> Any:
    return resolved("CartPole-v1", {key.replace("__", "."): v for key, v in options.items()})


def entry(**changes: Any) -> dict[str, Any]:
    return calibrated(result(), config(), RUN) | changes


def test_the_margin_follows_the_spread() -> None:
    assert safety_factor(0.0) == 0.9
    assert safety_factor(0.05) == 0.9
    assert safety_factor(0.1) == 0.8
    assert safety_factor(0.2) == 0.6
    assert safety_factor(3.0) == 0.5


def test_calibration_keeps_how_it_came_about(tmp_path: Path) -> None:
    found = calibrated(result(), config(), RUN)
    assert found["sps"] == 80.0  # 100 less twice the spread of 10 %
    assert (found["median"], found["spread"], found["factor"]) == (100.0, 0.1, 0.8)
    assert (found["rounds"], found["machine"]) == (3, HERE["fingerprint"])
    path = tmp_path / "folder" / "floor.json"
    floor.write_floors(path, [found])
    assert Floors.read(path).entries == [found]


def test_work_is_what_speed_depends_on() -> None:
    def work(mode: str, **options: Any) -> dict[str, Any]:
        return floor.work_of(config(**options), result(mode))

    assert work("trainer", run__seed=3, run__total_steps=10, run__keep=9) == work("trainer")
    assert work("trainer", env__num_envs=9) != work("trainer")
    assert work("trainer", run__threads=1) != work("trainer")
    assert work("env_only", ppo__epochs=9) == work("env_only")
    assert work("env_only", env__workers=2) != work("env_only")
    assert work("trainer")["run.device"] == "cpu"  # of "auto"
    evaluated = result("trainer_eval")
    evaluated.evaluations = Evaluations(10, 2)
    assert floor.work_of(config(), evaluated)["eval.episodes"] == 2


def test_other_work_is_not_compared() -> None:
    known = entry()
    check_work(known, floor.work_of(config(), result()), Path("f.json"))
    with pytest.raises(ValueError, match=r"calibrated with env.num_envs 128, this run has 9"):
        check_work(known, floor.work_of(config(env__num_envs=9), result()), Path("f.json"))


def test_a_floor_holds_for_its_machine_environment_and_mode() -> None:
    floors = Floors(Path("f.json"), [entry(), entry(mode="env_only", machine="b" * 12, cpu="That")])
    floors.check(RUN, ["trainer"])
    assert floors.find(RUN, "trainer") == entry()
    assert floors.find(RUN, "env_only") is None
    with pytest.raises(ValueError, match="has no floor for CartPole-v1 in mode env_only on this"):
        floors.check(RUN, ["trainer", "env_only"])
    with pytest.raises(ValueError, match=r"another machine .*That.* this is This, 2 usable cores"):
        Floors(Path("f.json"), floors.entries[1:]).check(RUN, ["env_only"])
    with pytest.raises(ValueError, match=r"has a floor for CartPole-v1 in mode trainer .* already"):
        floors.check_new(RUN, ["env_only", "trainer"])
    floors.check_new(RUN, ["env_only"])


def test_a_floor_file_must_follow_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "floor.json"
    for change, sentence in (
        ({"factor": 0.95}, r"floors\[0\].factor must be at most 0.9"),
        ({"sps": -1}, r"floors\[0\].sps must be above 0"),
        ({"machine": "me"}, r"floors\[0\].machine must look like"),
    ):
        path.write_text(json.dumps({"schema": floor.SCHEMA, "floors": [entry(**change)]}))
        with pytest.raises(ValueError, match=f"is not a floor file: {sentence}"):
            Floors.read(path)


def mode(name: str, sps: float, target: float, least: float | None) -> dict[str, Any]:
    known = None if least is None else entry(sps=least)
    return judged({"mode": name, "sps": {"median": sps}}, target, known)


def test_what_is_enforced() -> None:
    met, missing = mode("a", 100.0, 100.0, None), mode("b", 99.0, 100.0, None)
    kept, below = mode("c", 99.0, 1000.0, 90.0), mode("d", 80.0, 1000.0, 90.0)
    slower = mode("e", 150.0, 100.0, 160.0)  # the target is met, but it was faster before
    assert met["target"] == {"met": True, "delta": 0.0}
    assert missing["target"] == {"met": False, "delta": -0.01}
    assert kept["floor"] == {"sps": 90.0, "met": True, "delta": 0.1}
    assert met["floor"] is None
    assert missed([met, missing, kept, below, slower]) == ["b", "d", "e"]


def test_what_is_said() -> None:
    modes = [
        mode("met", 100.0, 100.0, None),
        mode("kept", 99.0, 1000.0, 90.0),
        mode("below", 80.0, 1000.0, 90.0),
    ]
    kept, target, below = floor.verdicts(modes, 1000.0)
    assert floor.verdicts(modes[:1], 100.0) == []
    assert kept.startswith("kept: target missed, 99 of 1,000 steps/s (-90.1%); out of reach here")
    assert "the calibrated floor is what is enforced, and it is kept (90, +10.0%)" in kept
    assert target == "below: target missed, 80 of 1,000 steps/s (-92.0%)"
    assert below == "below: below the calibrated floor, 80 of 90 steps/s (-11.1%)"
