"""``operant sweep`` as a user types it: tiny trainings, in this process where that is possible."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from operant.cli import main, sweep_report
from operant.envs.classic.cartpole import CartPole
from operant.ppo.config_file import read_config, resolved
from operant.sweep import trial as trials
from operant.sweep.search import Search
from operant.sweep.study import Study
from operant.toolchain.child import python_command, python_environment

Sweep = Callable[..., tuple[int, str, str]]
SMALL = ["--set", "policy.hidden=[8]", "--set", "env.num_envs=4", "--set", "ppo.num_steps=16"]
SMALL += ["--set", "run.eval_episodes=4", "--set", "ppo.epochs=1", "--set", "run.threads=1"]
SMALL += ["--set", "run.total_steps=768", "--device", "cpu"]
QUICK = ["CartPole-v1", *SMALL, "--trials", "4", "--verify-seeds", "2"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the kernels of all tests, and with sweeps and runs of its own."""
    kernels = Path(os.environ["OPERANT_HOME"]) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def sweep(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sweep:
    """Runs the command; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "sweep", *arguments])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def states(home: Path, name: str) -> list[str]:
    with Study.open(name) as study:
        return [one.state for one in study.trials()]


def test_from_a_space_to_a_configuration_that_train_takes(
    sweep: Sweep, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_report, "_LINE_EVERY_S", 0.0)
    code, out, err = sweep(*QUICK, "--study", "first", "--json", str(home / "found.json"))
    assert code == 0, err
    report = json.loads((home / "found.json").read_text())
    assert report["trials"] == 4
    assert report["start"]["trial"] == 0
    assert report["choosing_seeds"] == [0, 1]
    unseen = report["verification"]
    assert unseen["unseen_seeds"] == [1000, 1001]
    names = [f"first-best-seed{seed}" for seed in (1000, 1001)]
    # The winner's trainings are runs; trials, and the configuration it began with, are not.
    assert unseen["best"]["runs"] == names
    assert sorted(path.name for path in (home / "runs").iterdir()) == names
    assert [one["seed"] for one in unseen["best"]["seeds"]] == [1000, 1001]

    config = resolved("CartPole-v1", read_config(Path(report["files"]["config"])))
    assert config.replaced(report["best"]["values"]) == config
    assert config.run.total_steps == 768
    assert config.env.id == "CartPole-v1"
    for name in ("history", "slices"):
        with Image.open(report["files"][name]) as image:
            assert image.width > 500

    lines = [line for line in out.splitlines() if str(home) not in line]
    assert lines
    assert max(map(len, lines)) <= 80
    for word in ("began with", "ppo.learning_rate", "unseen seeds 1000, 1001 ", "0, 1"):
        assert word in out
    assert f"next: operant train CartPole-v1 --config {home}/sweeps/first/best.toml" in out
    assert "0/4 | trial 0 4% " in err
    assert max(map(len, err.splitlines())) <= 80


def test_json_alone_is_one_object(sweep: Sweep) -> None:
    code, out, _ = sweep(*QUICK, "--trials", "1", "--no-verify", "--json", "-")
    assert code == 0
    report = json.loads(out)
    assert report["best"]["trial"] == 0
    assert report["verification"] is None


def test_a_sweep_for_speed_and_for_both(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPole, "reward_threshold", 10.0)
    base = [*QUICK, "--trials", "2", "--seeds", "1", "--set", "run.total_steps=12800"]
    code, out, _ = sweep(*base, "--metric", "seconds_to_threshold", "--json", "-")
    assert code == 0
    found = json.loads(out)
    assert found["best"]["seconds_to_threshold"] > 0
    assert "return" not in found["best"]
    assert found["verification"]["best"]["seconds_to_threshold"] > 0
    code, out, _ = sweep(*base, "--metric", "both", "--no-verify")
    assert code == 0
    assert "front: trial" in out
    assert "front.png" in out


def test_a_failed_trial_is_no_crash(sweep: Sweep, home: Path) -> None:
    space = home / "space.toml"
    space.write_text("minibatches = { choices = [1, 4096] }\n")
    code, out, err = sweep(*QUICK, "--space", str(space), "--trials", "6", "--no-verify")
    assert code == 0, err
    assert "ppo.minibatches is 4096, but a rollout has only 64 samples" in out
    assert "failed" in states(home, next((home / "sweeps").iterdir()).name)


def test_nan_is_a_failed_trial_and_without_any_result_the_exit_code_is_1(
    sweep: Sweep, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "evaluated_return", lambda ppo: float("nan"))
    code, out, _ = sweep(*QUICK, "--study", "nan", "--trials", "2")
    assert code == 1
    assert "failed: its result is nan" in out
    assert "no trial came to its end" in out
    assert "failed" in states(home, "nan")


def test_the_budget_ends_the_search(
    sweep: Sweep, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.cli.sweep_run.time.monotonic", _clock := _Clock())
    shown = Search._try

    def late(self: Search, drawn: Any) -> None:
        if drawn.number == 2:
            _clock.now += 100.0
        shown(self, drawn)

    monkeypatch.setattr(Search, "_try", late)
    code, out, _ = sweep(*QUICK, "--study", "b", "--budget", "1m", "--no-verify")
    assert code == 0
    assert out.startswith("2 trials in")
    # The one that ran did not come to its end: it is tried again if the sweep goes on.
    assert states(home, "b")[2:] == ["cut", "waiting"]


class _Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


def test_ctrl_c_shows_what_was_found_and_the_sweep_goes_on(
    sweep: Sweep, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Search._try

    def interrupted(self: Search, drawn: Any) -> None:
        if drawn.number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        shown(self, drawn)

    monkeypatch.setattr(Search, "_try", interrupted)
    code, out, err = sweep(*QUICK, "--study", "c")
    assert code == 130
    assert out.startswith("1 trials in")
    assert "continue with: operant sweep CartPole-v1 --study c" in err
    assert (home / "sweeps/c/best.toml").exists()
    assert not (home / "runs").exists()
    monkeypatch.setattr(Search, "_try", shown)
    code, out, err = sweep("CartPole-v1", "--study", "c", "--verify-seeds", "1")
    assert code == 0
    assert "1 are finished" in err
    assert out.startswith("4 trials in")
    assert states(home, "c").count("cut") == 1


def start(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_command("-m", "operant", "sweep", *words),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(condition: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def test_who_joins_leaves_the_end_to_the_host(sweep: Sweep, home: Path) -> None:
    assert sweep(*QUICK, "--study", "h", "--trials", "1", "--no-verify")[0] == 0
    with Study.open("h") as host:
        assert host.claim()
        code, out, err = sweep("CartPole-v1", "--study", "h", "--trials", "2")
    assert (code, out) == (0, "h is trained to its end by the process that began it\n")
    assert "another process trains the winner in the end; this one helps" in err
    assert len(states(home, "h")) == 2


def test_two_processes_one_killed_and_continued(
    sweep: Sweep, home: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    long = [*QUICK, "--study", "k", "--set", "run.total_steps=64_000_000", "--seeds", "1"]
    journal = home / "sweeps/k/journal.jsonl"
    env = unmeasured()  # a signal that arrives while coverage holds its lock would wait for ever
    with start(env, *long) as one, start(env, *long) as other:  # whoever comes second joins
        until(lambda: journal.exists() and journal.read_text().count('"worker"') == 2, one, other)
        assert states(home, "k") == ["running", "running"]
        os.kill(one.pid, signal.SIGKILL)
        other.send_signal(signal.SIGINT)
        said = other.communicate()[0]
    assert other.returncode == 130, said
    # Both of their trials are tried again, and nothing else was lost.
    plan = home / "sweeps/k/sweep.json"
    plan.write_text(plan.read_text().replace("64_000_000", "768"))
    code, out, _ = sweep("CartPole-v1", "--study", "k", "--trials", "2", "--no-verify")
    assert code == 0
    assert out.startswith("2 trials in")
    assert sorted(states(home, "k")) == ["complete", "complete", "cut", "cut"]


def test_jobs_share_a_sweep(sweep: Sweep, home: Path) -> None:
    code, out, err = sweep(*QUICK, "--study", "j", "--jobs", "2", "--trials", "3", "--no-verify")
    assert code == 0, err
    assert out.startswith("3 trials in")
    assert "jobs ended early" not in err
    assert list((home / "sweeps/j/workers").iterdir()) == []


def test_a_job_ends_with_its_command(sweep: Sweep, home: Path) -> None:
    assert sweep(*QUICK, "--study", "o", "--trials", "1", "--no-verify")[0] == 0
    # The process that it is a job of is gone, so it trains nothing.
    assert sweep("CartPole-v1", "--study", "o", "--trials", "2", "--job-of=999999999")[0] == 0
    assert states(home, "o") == ["complete"]


def test_optuna_is_needed_and_nothing_else_imports_it(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "optuna" else found(name)
    )
    assert sweep("CartPole-v1") == (
        2,
        "",
        "operant: operant sweep needs Optuna: pip install 'operant[sweep]'\n",
    )
    code = "import sys, operant.cli, operant.sweep.plan; sys.exit('optuna' in sys.modules)"
    assert subprocess.run(python_command("-c", code), env=python_environment()).returncode == 0


REFUSED: list[tuple[list[str], str]] = [
    (["CartPole-v1", "--metric", "speed"], "--metric must be return, seconds_to_threshold, both"),
    (["CartPole-v1", "--budget", "soon"], "--budget must be a time such as 120s, 5m or 1h, got"),
    (["CartPole-v1", "--space", "none.toml"], "cannot read none.toml: No such file"),
    (["CartPole-v1", "--study", "../up"], "a sweep's name has letters, digits"),
    (["CartPole-v1", "--set", "gama=1"], "there is no option 'gama'; did you mean ppo.gamma?"),
    (["NoSuchEnv-v0"], "NoSuchEnv-v0"),
    (
        ["Pendulum-v1", *SMALL, "--set", "env.backend=reference", "--metric", "both"],
        "has no reward_threshold",
    ),
]


@pytest.mark.parametrize(("words", "why"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_in_a_sentence(sweep: Sweep, words: list[str], why: str) -> None:
    code, out, err = sweep(*words)
    assert (code, out) == (2, "")
    assert why in err
    assert "Traceback" not in err


def test_what_a_sweep_is_about_does_not_change(sweep: Sweep, home: Path) -> None:
    space = home / "space.toml"
    space.write_text("gamma = { low = 0.9, high = 1.0 }\n")
    assert sweep(*QUICK, "--study", "s", "--trials", "1", "--no-verify")[0] == 0
    for words, why in [
        (["--metric", "both"], "was begun with another --metric; leave it out"),
        (["--seeds", "3"], "was begun with another --seeds"),
        (["--space", str(space)], "was begun with another --space"),
        (["--set", "gamma=0.5"], "was begun with another --config, --set or --device"),
    ]:
        code, _, err = sweep("CartPole-v1", "--study", "s", *words)
        assert (code, why in err) == (2, True), err
    code, _, err = sweep("Acrobot-v1", "--study", "s")
    assert (code, "the sweep 's' is about CartPole-v1, not Acrobot-v1" in err) == (2, True)
    path = home / "sweeps/s/sweep.json"
    text = path.read_text()
    path.write_text(text.replace("wrappers = []", 'wrappers = [\\"os:system\\"]'))
    code, _, err = sweep("CartPole-v1", "--study", "s")
    assert (code, "names code, which is not run unless you name it too" in err) == (2, True), err
    path.write_text(text)
    with (home / "sweeps/s/journal.jsonl").open("a") as file:
        file.write("not a journal\n")
    code, _, err = sweep("CartPole-v1", "--study", "s")
    assert (code, "journal.jsonl is damaged: line" in err) == (2, True), err
    assert "Traceback" not in err
