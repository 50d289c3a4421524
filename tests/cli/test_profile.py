"""``operant profile`` as a user types it; in this process, since PyTorch is slow to load."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from operant.bench.artifact import read_artifact
from operant.cli import main, meter

Profile = Callable[..., tuple[int, str, str]]
SMALL = ["--set", "env.backend=reference", "--set", "ppo.num_steps=16", "--num-envs", "8"]
SMALL += ["--set", "policy.hidden=[8]", "--set", "run.threads=1", "--eval-every", "100"]
SMALL += ["--eval-episodes", "4", "--seconds", "0.001", "--repeats", "2", "--device", "cpu"]
TRAINER = ["CartPole-v1", *SMALL, "--mode", "trainer"]
FOLDER = Path("artifacts") / "throughput"

POISON = """
from math import nan
from typing import NamedTuple
from gymnasium.spaces import Box, Discrete
import operant

class Poison(operant.Env):
    class State(NamedTuple):
        count: float
    observation_space = Box(-1e9, 1e9, (1,))
    action_space = Discrete(2)
    def reset(random):
        return Poison.State(0.0)
    def step(state, action):
        return Poison.State(state.count + action), state.count * nan, False
    def observe(state):
        return (state.count,)
"""


@pytest.fixture
def profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Profile:
    """Runs the command in an empty folder; its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "profile", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def only_artifact() -> Path:
    (path,) = FOLDER.iterdir()
    return path


def test_table_and_artifact(profile: Profile) -> None:
    code, out, err = profile("CartPole-v1", *SMALL)
    assert code == 0, err
    path = only_artifact()
    found = read_artifact(path)
    commit = found["commit"] if found["commit"] == "none" else found["commit"][:7]
    name = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d_" + commit + r"(-dirty)?_cartpole-v1_[0-9a-f]{8}\.json"
    assert re.fullmatch(name, path.name)
    assert str(path) in out
    assert [mode["mode"] for mode in found["modes"]] == ["env_only", "trainer", "trainer_eval"]
    assert found["config"]["env"]["num_envs"] == 8
    assert found["config"]["ppo"]["gamma"] == 0.98  # the shipped one
    assert found["measurement"] == {"seconds": 0.001, "repeats": 2}
    assert found["target"]["steps_per_sec"] == 100_000
    assert found["floor"] is None
    for mode in found["modes"]:
        assert len(mode["sps"]["rounds"]) == 2
        assert sum(mode["split"].values()) == pytest.approx(1)
        assert mode["target"]["delta"] == pytest.approx(mode["sps"]["median"] / 1e5 - 1, abs=1e-3)
        assert mode["mode"] in out
    assert found["modes"][2]["evaluation"] == {"every_steps": 128, "episodes": 4}
    assert "eval: 4 episodes every 128 training steps" in out


def test_json_is_the_artifact_and_nothing_else(profile: Profile) -> None:
    code, out, _ = profile(*TRAINER, "--json", "--out", "elsewhere/deep")
    assert code == 0
    (path,) = Path("elsewhere/deep").iterdir()
    assert json.loads(out) == read_artifact(path)
    assert not FOLDER.exists()


def test_modes_are_measured_once_each_in_the_order_given(profile: Profile) -> None:
    modes = ["--mode", "trainer", "--mode", "env_only", "--mode", "trainer"]
    code, out, _ = profile("CartPole-v1", *SMALL, *modes, "--json")
    assert code == 0
    assert [mode["mode"] for mode in json.loads(out)["modes"]] == ["trainer", "env_only"]


def test_a_target_that_is_enforced(profile: Profile) -> None:
    target = ["--mode", "env_only", "--target-steps-per-sec"]
    code, _, err = profile(*TRAINER, *target, "1e12")
    assert code == 0
    assert "trainer: target missed" in err
    code, out, err = profile(*TRAINER, *target, "1e12", "--enforce-target", "--json")
    assert code == 1
    assert re.search(r"^trainer: target missed, [\d,]+ of 1,000,000,000,000 steps/s", err, re.M)
    assert re.search(r"^env_only: target missed", err, re.M)
    found = json.loads(out)  # written all the same
    assert found["target"] == {"steps_per_sec": 1e12, "enforced": True, "met": False}
    code, out, err = profile(*TRAINER, *target, "1", "--enforce-target", "--json")
    assert code == 0, err
    assert json.loads(out)["target"]["met"] is True


def edited(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    for entry in data["floors"]:
        entry.update(changes)
    path.write_text(json.dumps(data))


def test_a_floor_is_calibrated_and_then_enforced(profile: Profile) -> None:
    floor, path = ["--floor", "floor.json"], Path("floor.json")
    code, _, err = profile(*TRAINER, *floor)
    assert code == 2
    assert "there is no floor file floor.json; write it with --calibrate" in err
    code, out, err = profile(*TRAINER, *floor, "--calibrate")
    assert code == 0, err
    assert "floor.json: floors of this run, for this machine" in out
    (entry,) = json.loads(path.read_text())["floors"]
    assert (entry["env"], entry["mode"]) == ("CartPole-v1", "trainer")
    assert entry["sps"] == pytest.approx(entry["median"] * entry["factor"], abs=0.1)
    out_of_reach = ["--enforce-target", "--target-steps-per-sec", "1e12"]

    edited(path, sps=1e-3)
    code, out, err = profile(*TRAINER, *floor, *out_of_reach)
    assert code == 0, err
    assert "the calibrated floor is what is enforced, and it is kept" in " ".join(err.split())
    code, out, err = profile(*TRAINER, *floor, *out_of_reach, "--json")
    found = json.loads(out)
    assert (found["target"]["met"], found["floor"]) == (False, {"file": "floor.json", "met": True})
    assert found["modes"][0]["floor"]["delta"] > 0

    edited(path, sps=1e12)
    code, _, err = profile(*TRAINER, *floor, "--target-steps-per-sec", "1")
    assert code == 0  # said, not enforced
    assert "trainer: below the calibrated floor" in err
    enforced = ["--enforce-target", "--target-steps-per-sec", "1"]
    code, _, err = profile(*TRAINER, *floor, *enforced)
    assert code == 1

    more = ["CartPole-v1", *SMALL, "--mode", "env_only", *floor, "--calibrate"]
    assert profile(*more)[0] == 0  # another mode is added
    assert [one["mode"] for one in json.loads(path.read_text())["floors"]] == [
        "trainer",
        "env_only",
    ]


def test_floors_that_do_not_fit_are_refused(profile: Profile) -> None:
    floor = ["--floor", "floor.json"]
    assert profile(*TRAINER, *floor, "--calibrate")[0] == 0
    for arguments, sentence in (
        ([*TRAINER, *floor, "--calibrate"], "has a floor for CartPole-v1 in mode trainer on this"),
        ([*TRAINER, *floor, "--mode", "env_only"], "no floor for CartPole-v1 in mode env_only"),
        ([*TRAINER, *floor, "--set", "ppo.epochs=2"], "calibrated with ppo.epochs 4, this run has"),
    ):
        code, _, err = profile(*arguments)
        assert code == 2
        assert sentence in " ".join(err.split())
    edited(Path("floor.json"), machine="0123456789ab", cpu="Another")
    code, _, err = profile(*TRAINER, *floor)
    assert code == 2
    assert "floor.json was calibrated on another machine (Another; this is" in err
    Path("floor.json").write_text("{}")
    code, _, err = profile(*TRAINER, *floor)
    assert code == 2
    assert "floor.json is not a floor file: it has no 'schema'" in err


def test_compare(profile: Profile) -> None:
    assert profile(*TRAINER)[0] == 0
    one = only_artifact()
    data = json.loads(one.read_text())
    for key in ("median", "min", "max", "iqr"):
        data["modes"][0]["sps"][key] *= 1000
    data["modes"][0]["sps"]["rounds"] = [1000 * x for x in data["modes"][0]["sps"]["rounds"]]
    Path("b.json").write_text(json.dumps(data | {"commit": "none"}))
    code, out, err = profile("--compare", str(one), "b.json")
    assert code == 0, err
    assert re.search(r"trainer +faster .* 1000\.000", out)
    code, out, _ = profile("--compare", "b.json", str(one), "--json")
    (mode,) = json.loads(out)["modes"]
    assert (mode["ratio"], mode["exceeds_spread"]) == (0.001, True)
    code, out, _ = profile("--compare", str(one), str(one))
    assert "within the spread" in out
    data["machine"]["fingerprint"] = "0123456789ab"
    data["config"]["ppo"]["epochs"] = 99
    Path("b.json").write_text(json.dumps(data))
    code, out, _ = profile("--compare", str(one), "b.json")
    assert "the machines differ" in out
    assert "ppo.epochs differs: 4 -> 99" in out


def test_trend(profile: Profile) -> None:
    assert profile(*TRAINER)[0] == 0
    data = json.loads(only_artifact().read_text())
    data |= {"date": "2000-01-01T00:00:00+00:00", "commit": "0123456789abcdef"}
    (FOLDER / "old.json").write_text(json.dumps(data))
    code, out, err = profile("--trend")
    assert code == 0, err
    assert re.search(r"^CartPole-v1 on machine [0-9a-f]{12}$", out, re.MULTILINE)
    assert re.search(r"^trainer +2 +0123456 ", out, re.MULTILINE)
    with Image.open(FOLDER / "trend.png") as picture:
        assert picture.size[0] > 1000
    code, out, _ = profile("--trend", str(FOLDER), "--out", "speed.svg", "--json")
    found = json.loads(out)
    assert found["file"] == "speed.svg"
    assert found["lines"][0]["points"][0]["commit"] == "0123456"
    assert "<svg" in Path("speed.svg").read_text()
    code, out, _ = profile("--trend", str(FOLDER), "--out", "charts")
    assert Path("charts/trend.png").is_file()


def test_environments_of_ones_own(profile: Profile) -> None:
    Path("mine.py").write_text(POISON.replace("state.count * nan", "1.0"))
    code, _, err = profile("mine.py", *SMALL)
    assert code == 2
    assert "mine.py has no time limit, so an evaluation might never end" in " ".join(err.split())
    code, out, err = profile("mine.py:Poison", *SMALL, "--mode", "trainer", "--json")
    assert code == 0, err
    assert json.loads(out)["env"] == "mine.py:Poison"
    assert only_artifact().name.split("_")[2] == "poison"


def test_a_number_that_is_not_finite(profile: Profile) -> None:
    Path("mine.py").write_text(POISON)
    code, _, err = profile("mine.py", *SMALL, "--mode", "trainer")
    assert code == 3
    assert "the reward of environment 0 is not finite" in " ".join(err.split())
    assert "Traceback" not in err


def test_progress_is_shown_without_a_terminal(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "_LINE_EVERY_S", 0.0)
    code, out, err = profile(*TRAINER, "--json")
    assert code == 0
    assert "1/2: round 1 of 2: trainer" in err
    json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name one environment, such as CartPole-v1"),
        (["CartPole-v1", "Acrobot-v1"], "name one environment"),
        (["Cartpol-v1"], "did you mean CartPole-v1"),
        (
            ["CartPole-v1", "--mode", "fast"],
            "--mode must be one of env_only, trainer, trainer_eval",
        ),
        (["CartPole-v1", "--calibrate"], "name it with --floor FILE"),
        (["CartPole-v1", "--target-steps-per-sec", "0"], "must be a number above 0, got 0"),
        (["CartPole-v1", "--target-steps-per-sec", "inf"], "must be a number above 0, got inf"),
        (["CartPole-v1", "--seconds", "0"], "--seconds"),
        (["CartPole-v1", "--repeats", "0"], "--repeats"),
        (["CartPole-v1", "--set", "ppo.clop=1"], "there is no option 'ppo.clop'"),
        (["CartPole-v1", "--config", "none.toml"], "cannot read none.toml"),
        (["CartPole-v1", "--engine", "warp"], "run.engine must be one of"),
        (["CartPole-v1", "--device", "tpu"], "run.device must be auto, cpu, cuda or cuda:N"),
        (["CartPole-v1", *SMALL, "--out", "/proc/nowhere"], "cannot read or write"),
        (["--compare", "a.json"], "--compare takes two artifacts"),
        (["--compare", "a.json", "b.json"], "cannot read a.json: No such file or directory"),
        (["--compare", "bad.json", "bad.json"], "bad.json is not a throughput artifact: it has no"),
        (["--trend"], "cannot read artifacts/throughput: No such file or directory"),
        (["--trend", "."], "bad.json is not a throughput artifact"),
        (["--trend", "a", "b"], "--trend takes one folder"),
        (["--trend", "--compare"], "choose one"),
    ],
)
def test_mistakes_are_one_sentence(profile: Profile, arguments: list[str], sentence: str) -> None:
    Path("bad.json").write_text("{}")
    code, out, err = profile(*arguments)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""


def test_help_has_an_example(profile: Profile) -> None:
    code, out, _ = profile("--help")
    assert code == 0
    assert "Example:" in out
