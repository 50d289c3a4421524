"""Train, evaluate, record, plot, export, list: the commands as a user types them."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from operant.cli import main
from operant.cli.target import code_to_name
from operant.ppo.session import Session
from operant.runs.checkpoint import list_checkpoints
from operant.runs.directory import Run, find_run
from operant.toolchain import paths
from operant.training.recorder import Recorder

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "env.backend=reference", "--set", "env.num_envs=8", "--set", "ppo.num_steps=16"]
SMALL += ["--set", "policy.hidden=[8]", "--set", "run.eval_episodes=5", "--set", "run.threads=1"]

POISON = """
from math import nan
from typing import NamedTuple
from gymnasium.spaces import Box, Discrete
import operant
from operant.lang import where

class Poison(operant.Env):
    class State(NamedTuple):
        count: float
    observation_space = Box(-1e9, 1e9, (1,))
    action_space = Discrete(2)
    max_episode_steps = 50
    def reset(random):
        return Poison.State(0.0)
    def step(state, action):
        return Poison.State(state.count + 1.0), where(state.count >= 40.0, nan, 1.0), False
    def observe(state):
        return (state.count,)
"""

ENDLESS = """
from typing import NamedTuple
from gymnasium.spaces import Box, Discrete
import operant

class Endless(operant.Env):
    class State(NamedTuple):
        x: float
    observation_space = Box(-1.0, 1.0, (1,))
    action_space = Discrete(2)
    def reset(random):
        return Endless.State(random[0])
    def step(state, action):
        return state, 1.0, False
    def observe(state):
        return (state.x,)
    def render(state, canvas):
        canvas.circle(0.0, 0.0, 0.3, (90, 90, 90))
"""


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "120")
        yield home


@pytest.fixture
def cli(monkeypatch, capsys):
    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *arguments])
        found = 0
        try:
            main()
        except SystemExit as end:
            found = end.code or 0
        out, err = capsys.readouterr()
        assert found == code, err
        assert "Traceback" not in err
        return out, err

    return run


@pytest.fixture(scope="module")
def trained(home):
    """A run called `base`, 512 steps of CartPole."""
    command = [sys.executable, "-m", "operant", "train", "CartPole-v1", *SMALL]
    command += ["--total-steps", "512", "--run-id", "base", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_train_ends_with_one_object(trained, home):
    wanted = {"run_id", "steps", "seconds", "sps", "mean_return", "engine", "device", "solved"}
    assert wanted <= set(trained)
    assert (trained["run_id"], trained["steps"], trained["engine"]) == ("base", 512, "eager")
    assert (trained["device"], trained["solved"]) == ("cpu", False)
    assert trained["sps"] == pytest.approx(512 / trained["seconds"], rel=0.01)
    assert Path(trained["path"]) == home / "runs" / "base"


def test_train_speaks_to_people_too(cli):
    out, err = cli("train", "CartPole-v1", *SMALL, "--total-steps", "1e2", "--seed", "3")
    assert "not solved: return" in out
    assert " greedy, " in out
    assert " sampled (475 needed)\nover 5 episodes each; 128 steps in" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "CartPole-v1 on cpu, 8 environments" in err
    assert "engine eager: " in err
    run = find_run("latest")
    assert run.id.startswith("cartpole-v1-")
    assert "next: operant eval " + run.id in out


def test_eval(cli, trained):
    out, _ = cli("eval", "base", "--episodes", "7", "--json")
    found = json.loads(out)
    assert {"mean_return", "std_return", "mean_length", "episodes"} <= set(found)
    assert found["episodes"] == 7
    assert found["mean_return"] == found["mean_length"]  # CartPole
    assert found["min_return"] <= found["mean_return"] <= found["max_return"]
    again = json.loads(cli("eval", "base", "--episodes", "7", "--json")[0])
    assert again == found
    drawn = json.loads(cli("eval", "base", "--episodes", "7", "--stochastic", "--json")[0])
    assert drawn["mean_return"] != found["mean_return"]
    assert (found["deterministic"], drawn["deterministic"], drawn["sampled"]) == (True, False, None)
    assert {name: drawn[name] for name in found["sampled"]} == found["sampled"]
    alone = json.loads(cli("eval", "base", "--episodes", "7", "--greedy", "--json")[0])
    assert alone == {**found, "sampled": None}
    path = list_checkpoints(find_run("base").checkpoints)[0]
    out, _ = cli("eval", str(path), "--episodes", "7")
    assert "CartPole-v1, 7 episodes, checkpoint 000000000000\ngreedy   return" in out
    assert "sampled  return" in out
    assert "return" in cli("eval", str(find_run("base").path), "--episodes", "2")[0]


def test_resume_goes_on(cli, trained):
    out, err = cli("train", "CartPole-v1", *SMALL, "--total-steps", "256", "--run-id", "part")
    out, err = cli("train", "--resume", "part", "--total-steps", "512", "--json")
    assert "from step 256" in err
    found = json.loads(out.splitlines()[-1])
    assert (found["run_id"], found["steps"], found["finished"]) == ("part", 512, True)
    out, _ = cli("train", "--resume", "part", "--json")  # nothing is left to do
    assert json.loads(out.splitlines()[-1])["steps"] == 512


def test_runs_are_listed_and_removed(cli, trained):
    out, _ = cli("runs")
    assert "base" in out
    found = {row["run_id"]: row for row in json.loads(cli("runs", "--json")[0])["runs"]}
    assert found["base"]["state"] == "finished"
    assert (found["base"]["env"], found["base"]["steps"]) == ("CartPole-v1", 512)
    cli("train", "CartPole-v1", *SMALL, "--total-steps", "128", "--run-id", "short")
    cli("train", "CartPole-v1", *SMALL, "--total-steps", "128", "--run-id", "brief")
    assert json.loads(cli("runs", "rm", "brief", "brief", "--json")[0]) == {"removed": ["brief"]}
    assert " 128 " in next(line for line in cli("runs")[0].splitlines() if "short" in line)
    assert cli("runs", "rm", "short", "short")[0] == "removed short\n"
    assert "no run 'short'" in cli("runs", "rm", "short", code=2)[1]
    assert "is being trained" not in cli("runs", "rm", "base2", code=2)[1]


def test_names_in_a_run_cannot_command_the_terminal(cli, trained):
    run = Run.create("evil")
    run.config_file.write_text('[env]\nid = "\\u001b[2J\\u001b]0;owned\\u0007"\n')
    out, _ = cli("runs")
    assert "\x1b[2J" not in out
    assert "\x07" not in out
    run.remove()


def test_no_runs(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    assert "no runs yet" in cli("runs")[0]
    assert json.loads(cli("runs", "--json")[0]) == {"runs": []}
    assert "no runs yet" in cli("eval", "latest", code=2)[1]


def test_record(cli, trained, tmp_path):
    out, _ = cli("record", "base", "--out", str(tmp_path / "a.gif"), "--seconds", "1", "--json")
    found = json.loads(out)
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames > 1
        assert found["frames"] >= film.n_frames
    out, _ = cli("record", "base", "--out", str(tmp_path / "a.png"), "--seconds", "1")
    assert "a.png" in out
    with Image.open(tmp_path / "a.png") as strip:
        assert strip.width > strip.height
        assert len(np.unique(np.asarray(strip))) > 3
    assert "mp5" in cli("record", "base", "--out", str(tmp_path / "a.mp5"), code=2)[1]


def test_plot(cli, trained, tmp_path):
    file = tmp_path / "curve.png"
    assert "1 run" in cli("plot", "base", "--out", str(file))[0]
    with Image.open(file) as picture:
        assert picture.width > 400
    found = json.loads(cli("plot", "base", "base", "--out", str(file), "--json")[0])
    assert found["runs"] == ["base", "base"]
    assert "curve.jpg" in cli("plot", "base", "--out", str(tmp_path / "curve.jpg"), code=2)[1]


def test_export(cli, trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    file = tmp_path / "policy.onnx"
    found = json.loads(cli("export", "base", "--onnx", str(file), "--json")[0])
    assert found["largest_difference"] < 1e-4
    session = onnxruntime.InferenceSession(str(file))
    obs = np.random.default_rng(0).normal(0, 0.1, (50, 4)).astype(np.float32)
    (action,) = session.run(["action"], {"obs": obs})
    from operant.models import PPO

    assert (action == PPO.load(find_run("base").path).predict(obs)).all()


def test_config_prints_what_train_takes(cli, tmp_path):
    out, _ = cli("config", "CartPole-v1", "--set", "ppo.clip=0.125")
    assert "clip = 0.125" in out
    file = tmp_path / "ppo.toml"
    file.write_text(out)
    again, _ = cli("config", "CartPole-v1", "--config", str(file))
    assert again == out
    found = json.loads(cli("config", "CartPole-v1", "--config", str(file), "--json")[0])
    assert found["ppo"]["clip"] == 0.125
    small = [*SMALL, "--total-steps", "128", "--run-id", "file"]
    cli("train", "--config", str(file), *small)
    assert "clip = 0.125" in find_run("file").config_file.read_text()


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("games/lander.py:Lander", "games/lander.py:Lander"),
        ("games.lander:Lander", "games.lander:Lander"),
        ("./libgame.so", "./libgame.so"),
        ("my games/a.py:A", "'my games/a.py:A'"),
        ("$(reboot).py:A", "'$(reboot).py:A'"),
        ("x\x1b[2J.py:A", "'x?[2J.py:A'"),
        ("Lander", "file.py:Class"),
        ("a.py:A; reboot", "file.py:Class"),
        (":", "file.py:Class"),
    ],
)
def test_recorded_code_is_shown_as_it_is_typed(recorded, shown):
    assert code_to_name(recorded) == shown


def test_an_environment_of_ones_own(cli, trained):
    target = str(ROOT / "examples" / "lander.py") + ":Lander"
    out, _ = cli("train", target, *SMALL, "--total-steps", "128", "--run-id", "mine")
    assert f"next: operant eval mine --env {target}\n" in out
    _, err = cli("eval", "mine", "--episodes", "2", code=2)
    # A run directory does not choose which code is run; it is shown what it names.
    assert f"unless you name it; if you trust it, add --env {target}\n" in err
    assert "env=" not in err
    out, _ = cli("eval", "mine", "--episodes", "2", "--env", target, "--json")
    assert json.loads(out)["episodes"] == 2
    _, err = cli("train", "--resume", "mine", code=2)
    assert "not registered" in err
    assert f"if you trust it: operant train {target} --resume mine\n" in err
    out, _ = cli("train", target, "--resume", "mine", "--total-steps", "256")
    assert f"next: operant eval mine --env {target}\n" in out


def test_a_number_that_is_not_finite_ends_with_code_3(cli, tmp_path, trained):
    file = tmp_path / "poison.py"
    file.write_text(POISON)
    _, err = cli(
        "train", f"{file}:Poison", *SMALL, "--total-steps", "4096", "--run-id", "nan",
        "--set", "run.checkpoint_seconds=0", code=3,
    )  # fmt: skip
    assert "iteration 2: the reward of environment 0 is not finite: nan" in " ".join(err.split())
    assert "the checkpoint at step 256 is the last good one" in err
    assert list_checkpoints(find_run("nan").checkpoints)[-1].name.endswith("256")
    _, err = cli("record", "nan", "--env", f"{file}:Poison", code=2)
    assert "no render function" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "name an environment"),
        (["train", "CartPol-v1"], "did you mean CartPole-v1"),
        (["train", "CartPole-v1", "--set", "ppo.learning_rat=1"], "ppo.learning_rate"),
        (["train", "CartPole-v1", "--set", "ppo.epochs=four"], "ppo.epochs must be an integer"),
        (["train", "CartPole-v1", "--set", "ppo.epochs"], "name=value"),
        (["train", "CartPole-v1", "--total-steps", "many"], "--total-steps must be a number"),
        (["train", "CartPole-v1", "--total-steps", "1.5"], "run.total_steps must be an integer"),
        (["train", "CartPole-v1", "--seed", "-1"], "run.seed must be at least 0"),
        (["train", "CartPole-v1", "--engine", "warp"], "run.engine must be one of"),
        (["train", "CartPole-v1", "--device", "abacus"], "run.device must be"),
        (["train", "CartPole-v1", "--run-id", "a/b"], "a run's name"),
        (["train", "CartPole-v1", "--run-id", "base"], "already"),
        (["train", "CartPole-v1", "--config", "nowhere.toml"], "nowhere.toml"),
        (["train", "--resume", "nothing"], "no run 'nothing'"),
        (["train", "--resume", "base", "--run-id", "x"], "--run-id names a new run"),
        (["train", "--resume", "base", "--seed", "3"], "run.seed cannot change"),
        (["train", "--resume", "base", "--checkpoint", "7"], "7"),
        (["train", "CartPole-v1", "--checkpoint", "7"], "--checkpoint says where to go on"),
        (["train", "--set", "env.id=5"], "unknown environment '5'"),
        (["train", "CartPole-v1", "--set", "env.params.gravty=1"], "gravity"),
        (["train", "CartPole-v1", "--set", "policy.squash=true"], "squash is for Box actions"),
        (["eval", "nothing"], "no run 'nothing'"),
        (["eval", "base", "--checkpoint", "latst"], "latst"),
        (["record", "nothing"], "no run 'nothing'"),
        (["plot", "nothing"], "no run 'nothing'"),
        (["export", "nothing"], "no run 'nothing'"),
        (["config", "Nothing-v0"], "unknown environment"),
    ],
)
def test_a_mistake_is_one_sentence(cli, trained, arguments, message):
    if arguments[0] == "train" and len(arguments) > 1 and not arguments[1].startswith("-"):
        arguments = [*arguments, "--set", "env.backend=reference"]
    out, err = cli(*arguments, code=2)
    assert message in " ".join(err.split())
    assert "operant: " in err
    assert out == ""


def test_files_that_cannot_be_written_are_one_sentence(cli, trained, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(tmp_path / "file" / "home"))
        _, err = cli("train", "CartPole-v1", *SMALL, code=2)
        assert f"cannot read or write {tmp_path / 'file'}" in err
        assert err.endswith(": Not a directory\n")

    def full(self, ppo, *more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "save", full)
        _, err = cli("train", "CartPole-v1", *SMALL, "--run-id", "full-1", code=2)
        assert "cannot read or write a file: No space left on device" in err
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "on_update", full)
        _, err = cli("train", "CartPole-v1", *SMALL, "--run-id", "full-2", code=2)
        assert "No space left on device; full-2 is saved up to step 0; " in err
        assert err.endswith("continue with: operant train --resume full-2\n")


def test_a_film_has_an_end(cli, trained):
    for seconds in ("inf", "nan", "1e9"):
        assert "--seconds" in cli("record", "base", "--seconds", seconds, code=2)[1]


def test_a_log_without_the_columns_is_not_drawn(cli, trained, tmp_path):
    run = Run.create("columns")
    run.csv_file.write_text("iteration,steps\n1,2\n")
    _, err = cli("plot", "columns", "--out", str(tmp_path / "a.png"), code=2)
    assert "metrics.csv has no column 'mean_return' to draw" in err
    run.remove()


def test_without_a_time_limit(cli, trained, tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    target = f"{tmp_path / 'endless.py'}:Endless"
    out, _ = cli("train", target, *SMALL, "--total-steps", "128", "--run-id", "endless")
    assert "not evaluated; no episode has ended\n128 steps in" in out
    where = ["endless", "--env", target]
    _, err = cli("eval", *where, "--episodes", "3", code=2)
    assert "has no time limit" in err
    assert "--max-episode-steps N" in err
    limit = ["--max-episode-steps", "9"]
    found = json.loads(cli("eval", *where, "--episodes", "3", *limit, "--json")[0])
    assert (found["mean_length"], found["mean_return"]) == (9, 9)
    film = ["--out", str(tmp_path / "a.gif"), "--seconds", "1", "--json"]
    assert json.loads(cli("record", *where, *film)[0])["returns"] == []
    assert json.loads(cli("record", *where, *film, *limit)[0])["returns"] == [9]
    pytest.importorskip("onnxruntime")
    found = json.loads(cli("export", *where, "--onnx", str(tmp_path / "a.onnx"), "--json")[0])
    assert found["largest_difference"] < 1e-4


def test_text_of_a_run_is_neither_markup_nor_a_command(cli, trained, tmp_path):
    folder = tmp_path / "a[b]" / "x["
    folder.mkdir(parents=True)
    lander, _, _ = (ROOT / "examples" / "lander.py").read_text().partition("    def render(")
    (folder / "x]\x1b[2J.py").write_text(lander)
    target = f"{folder}/x]\x1b[2J.py:Lander"
    shown = "a[b]/x[/x]?[2J.py:Lander"
    out, err = cli("train", target, *SMALL, "--total-steps", "128", "--run-id", "odd")
    assert shown in err
    assert shown in out
    out2, err2 = cli("eval", "odd", "--episodes", "2", "--env", target)
    assert shown in out2
    _, err3 = cli("record", "odd", "--env", target, code=2)  # which quotes it
    assert shown in err3
    _, err4 = cli("eval", "odd", code=2)
    picture = str(folder / "c[c]\x07.png")
    out5, _ = cli("plot", "base", "--out", picture)
    assert "c[c]?.png" in out5
    assert not {"\x1b", "\x07"} & set(out + err + out2 + err2 + err3 + err4 + out5)


@pytest.mark.parametrize("verb", ["train", "eval", "record", "runs", "export", "plot", "config"])
def test_help_has_an_example(cli, verb):
    out, _ = cli(verb, "--help")
    assert "Example:" in out
    assert "--json" in out


# Signals ------------------------------------------------------------------------------------
def _endless(name: str, home: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "operant", "train", "CartPole-v1", *SMALL]
    process = subprocess.Popen(
        [*command, "--total-steps", "1e9", "--run-id", name],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    metrics = home / "runs" / name / "metrics.csv"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_text().count("\n") > 2):
        assert time.monotonic() < deadline, "it never began"
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("broken", ["pipe", "disk"])
def test_standard_error_that_breaks_does_not_end_a_training(home, broken):
    if broken == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-m", "operant", "train", "CartPole-v1", *SMALL, "--json"]
    done = subprocess.run(
        [*command, "--total-steps", "256", "--run-id", f"broken-{broken}"],
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    )
    os.close(writer)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["steps"], found["finished"]) == (256, True)


def test_an_interrupt_leaves_out_the_evaluation(cli, trained, monkeypatch):
    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    before = signal.getsignal(signal.SIGINT)  # ignored, where a shell started this with &
    monkeypatch.setattr(Session, "evaluate", interrupted)
    out, _ = cli("train", "CartPole-v1", *SMALL, "--total-steps", "256", "--run-id", "skipped")
    assert "not evaluated; mean return " in out
    assert "next: operant eval skipped" in out
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_at_another_time_says_what_was_saved(cli, trained, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "report", interrupted)
    small = [*SMALL, "--total-steps", "256", "--run-id", "cut"]
    _, err = cli("train", "CartPole-v1", *small, code=130)
    assert err.endswith(
        "operant: interrupted; cut is saved up to step 256; "
        "continue with: operant train --resume cut\n"
    )
    monkeypatch.setattr(Session, "start", interrupted)
    _, err = cli("train", "CartPole-v1", *SMALL, code=130)
    assert "saved" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_iteration_and_saves(home, number, unmeasured):
    name = f"signal-{number}"
    process = _endless(name, home, unmeasured())
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "stopped and saved" in out
    assert f"operant train --resume {name}" in out
    assert "Traceback" not in err
    lines = (home / "runs" / name / "metrics.csv").read_text().splitlines()
    newest = int(list_checkpoints(find_run(name).checkpoints)[-1].name)
    assert newest == int(lines[-1].split(",")[1]) > 0


def test_a_second_interrupt_stops_at_once(home, unmeasured):
    command = [sys.executable, "-m", "operant", "train", "CartPole-v1", *SMALL, "--run-id", "twice"]
    process = subprocess.Popen(
        [*command, "--set", "ppo.epochs=60000"],  # one iteration lasts for minutes
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=unmeasured(),
    )
    assert process.stderr is not None
    for line in process.stderr:  # the signals are handled from here on
        if line.startswith("engine"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "Ctrl-C again" in line:
            break
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "stopped at once; saved up to step 0" in err
    assert "stopped at once" in find_run("twice").log_file.read_text()
    assert [path.name for path in list_checkpoints(find_run("twice").checkpoints)] == ["0" * 12]


def test_stopping_at_once_gives_the_cursor_back(home, unmeasured):
    terminal, device = pty.openpty()
    command = [sys.executable, "-m", "operant", "train", "CartPole-v1", *SMALL, "--run-id", "pty"]
    process = subprocess.Popen(
        [*command, "--set", "ppo.epochs=60000"],
        stdout=subprocess.DEVNULL,
        stderr=device,
        env={**unmeasured(), "TERM": "xterm"},
    )
    os.close(device)
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1000)

    read_until(b"first iteration")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    read_until(b"Ctrl-C again")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    read_until(b"stopped at once; saved up to step 0")
    os.close(terminal)
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") >= 0
