"""Switches of ``train``: names without a version, several seeds, weights of another run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from operant.cli import bench, detach, main, train_seeds
from operant.cli.screen import output
from operant.cli.target import env_name, load_env
from operant.cli.train import Given
from operant.envs.classic.cartpole import CartPole
from operant.ppo.config_file import read_config
from operant.ppo.session import Session
from operant.runs.checkpoint import list_checkpoints, load_checkpoint
from operant.runs.directory import Run, find_run

SMALL = ["--set", "env.backend=reference", "--num-envs", "8", "--set", "ppo.num_steps=16"]
SMALL += ["--set", "policy.hidden=[8]", "--set", "run.eval_episodes=5", "--threads", "1"]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A home and a working directory for all tests here."""
    home, here = tmp_path_factory.mktemp("home"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "80")
        os.chdir(home)
        yield home
        os.chdir(here)


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


@pytest.fixture
def base(cli):
    """A run called `base`, 256 steps of CartPole."""
    try:
        return find_run("base")
    except ValueError:
        cli("train", "CartPole", *SMALL, "--timesteps", "256", "--run-id", "base", "--seed", "7")
        return find_run("base")


# Names ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["CartPole", "cartpole", "CartPole-v1", "cartpole-v1", "operant/CartPole-v1"]
)
def test_a_name_needs_no_version(name):
    assert env_name(name) == "CartPole-v1"
    assert load_env(name) is CartPole


def test_what_is_no_name_of_ours_stays_as_it_is(tmp_path, monkeypatch):
    for name in ("CartPol", "file.py:CartPole", "LunarLander-v3", "libgame.so", ""):
        assert env_name(name) == name
    (tmp_path / "pendulum.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert env_name("pendulum") == "pendulum"  # a module of the user's, here
    assert env_name("Pendulum") == "Pendulum-v1"


def test_verbs_take_a_name_without_a_version(cli, base):
    tables = json.loads(cli("config", "cartpole", "--json")[0])
    assert tables["env"]["id"] == "CartPole-v1"
    assert tables["ppo"]["gamma"] == 0.98  # of the shipped configuration
    played = cli("eval", "base", "--env", "CartPole", "--episodes", "2", "--json")[0]
    assert json.loads(played)["env"] == "CartPole-v1"
    arguments = ["--num-envs", "4", "--seconds", "0.001", "--repeats", "1", "--json", "-"]
    rows = json.loads(cli("bench", "env", "--env", "cartpole", *arguments)[0])["results"]
    assert {row["env"] for row in rows} == {"CartPole-v1"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["eval", "FrozenLake-v1"], "is an environment, not a run; train it first: operant train"),
        (["record", "FrozenLake-v1"], "is an environment, not a run; train it first: operant"),
        (["tune", "FrozenLake-v1"], "operant tune is for environments that operant compiles"),
        (["play", "FrozenLake-v1"], "operant play is for environments that operant compiles"),
        (["bench", "ppo", "--env", "FrozenLake-v1"], "bench ppo is for environments that operant"),
        (["train", "FrozenLak-v1"], "did you mean FrozenLake-v1"),
    ],
)
def test_what_cannot_be_done_with_other_libraries_environments(cli, base, arguments, sentence):
    assert sentence in " ".join(cli(*arguments, code=2)[1].split())


def test_who_names_an_environment_is_told_its_run(cli, base):
    _, err = cli("eval", "CartPole", code=2)
    assert "CartPole is an environment, not a run; its newest run is " in err
    assert "operant train Pendulum-v1" in cli("record", "Pendulum", code=2)[1]
    assert "did you mean CartPole-v1" in cli("train", "CartPol-v1", code=2)[1]


# Switches -------------------------------------------------------------------------------------
def test_switches_are_names_of_options(cli):
    more = ["--learning-rate", "1e-3", "--eval-every", "1e2", "--timesteps", "1_28"]
    out, _ = cli("train", "CartPole", *SMALL, *more, "--run-id", "switches", "--json")
    assert json.loads(out)["eval_sampled_return"] is not None
    values = read_config(find_run("switches").config_file)
    assert (values["env.num_envs"], values["run.threads"]) == (8, 1)
    assert (values["ppo.learning_rate"], values["run.eval_every"]) == (1e-3, 100)
    assert (values["run.total_steps"], values["env.id"]) == (128, "CartPole-v1")


def test_what_was_typed_can_be_typed_again():
    typed = {"seed": 0, "total-steps": "1e6", "num-envs": 64, "learning-rate": 1e-3}
    given = Given("CartPole", Path("a.toml"), ["ppo.clip=0.1"], typed, "base", "best")
    assert given.arguments() == [
        *("CartPole", "--config=a.toml", "--seed=0", "--total-steps=1e6", "--num-envs=64"),
        *("--learning-rate=0.001", "--init-from=base", "--checkpoint=best"),
        *("--set", "ppo.clip=0.1"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPole", "--num-envs", "0"], "env.num_envs must be at least 1"),
        (["CartPole", "--learning-rate", "0"], "ppo.learning_rate must be above 0"),
        (["CartPole", "--threads", "-1"], "run.threads must be at least 0"),
        (["CartPole", "--eval-every", "often"], "--eval-every must be a number"),
        (["CartPole", "--timesteps", "100k"], "--total-steps must be a number, such as 1e5, got"),
        (["CartPole", "--set", "ppo.clip", "=", "0.1"], "--set takes one word, name=value without"),
        (["CartPole", "--eval-every", "9", "--set", "run.eval_episodes=0"], "needs run.eval_epis"),
        (["CartPole", "--seeds", "1"], "--seeds"),
        (["CartPole", "--seeds", "2", "--seed", "-1", "--detach"], "run.seed must be at least 0"),
        (["CartPole", "--seeds", "2", "--run-id", "a/b"], "a run's name"),
        (["CartPole", "--seeds", "2", "--seed", "-1"], "run.seed must be at least 0"),
        (["--resume", "base", "--seeds", "2"], "--seeds starts new runs"),
        (["--resume", "base", "--init-from", "base"], "choose one"),
        (["--resume", "base", "--eval-every", "100"], "run.eval_every can change"),
        (["CartPole", "--init-from", "nothing"], "no run 'nothing'"),
        (["CartPole", "--init-from", "base", "--checkpoint", "7"], "7"),
        (["Pendulum", "--init-from", "base"], "the observations differ: base was trained on"),
        (["CartPole", "--init-from", "base", "--set", "policy.hidden=[9]"], "policy.hidden = [8]"),
    ],
)
def test_a_mistake_is_one_sentence(cli, base, arguments, message):
    backend = ["--set", "env.backend=reference"] if "--resume" not in arguments else []
    _, err = cli("train", *arguments, *backend, code=2)
    assert message in " ".join(err.split())


# Several seeds --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--lr", "--learning-rate"),
        ("--n-envs", "--num-envs"),
        ("--clip-range", "--set ppo.clip=..."),
        ("--gamma", "--set ppo.gamma=..."),
        ("--env.params.gravity", "--set env.params.gravity=..."),
        ("--env", "operant train ENV, without --env"),
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(cli, option, ours):
    _, err = cli("train", "CartPole-v1", option, "1", code=2)
    assert " ".join(err.split()) == f"operant: there is no option {option}; here it is {ours}"


def test_several_seeds_are_several_runs_and_a_mean(cli):
    out, err = cli("train", "CartPole", *SMALL, "--timesteps", "512", "--seeds", "3", "--seed", "4")
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["seed 4", "seed 5", "seed 6"]
    assert lines[3].startswith("mean return ")
    assert "(95 % interval " in lines[3]
    assert lines[3].endswith(", 3 seeds, 0 solved")
    assert max(map(len, lines)) <= 80
    with Image.open(lines[4]) as picture:
        assert picture.width > 400
    stem = Path(lines[4]).stem
    assert f"{stem}-seed6: CartPole-v1 on cpu" in err
    values = [read_config(find_run(f"{stem}-seed{k}").config_file)["run.seed"] for k in (4, 5, 6)]
    assert values == [4, 5, 6]
    drawn = cli("plot", *(f"{stem}-seed{k}" for k in (4, 5, 6)), "--band", "--out", "b.svg")[0]
    assert drawn == "b.svg: 3 runs\n"
    assert "at least two runs" in cli("plot", f"{stem}-seed4", "--band", code=2)[1]


def test_several_seeds_as_one_object(cli, monkeypatch):
    monkeypatch.setattr(train_seeds, "FOLDER", Path("charts"))
    arguments = [*SMALL, "--timesteps", "512", "--seeds", "2", "--run-id", "two", "--json"]
    found = json.loads(cli("train", "CartPole", *arguments)[0])
    assert [one["run_id"] for one in found["runs"]] == ["two-seed0", "two-seed1"]
    returns = [one["eval_return"] for one in found["runs"]]
    assert found["mean_return"] == pytest.approx(np.mean(returns), abs=1e-3)
    half = 12.706 * np.std(returns, ddof=1) / np.sqrt(2)
    assert found["interval"] == pytest.approx(
        [np.mean(returns) - half, np.mean(returns) + half], abs=1e-2
    )
    assert (found["finished"], found["solved"], found["plot"]) == (True, 0, "charts/two.png")
    assert Path("charts/two.png").is_file()
    _, err = cli("train", "CartPole", *arguments, code=2)
    assert "there is a run 'two-seed0' already" in err


def test_a_signal_ends_the_series_and_says_how_to_go_on(cli, monkeypatch):
    train = Session.train

    def interrupted(self, callbacks=()):
        if self.run.id.endswith("seed1"):
            os.kill(os.getpid(), signal.SIGTERM)
        train(self, callbacks)

    monkeypatch.setattr(Session, "train", interrupted)
    arguments = [*SMALL, "--timesteps", "256", "--seeds", "3", "--run-id", "cut"]
    out, _ = cli("train", "CartPole", *arguments)
    assert "stopped; continue with: operant train --resume cut-seed1" in out
    assert ", 1 of 3 seeds" in out
    with pytest.raises(ValueError, match="no run"):
        find_run("cut-seed2")


def test_a_chart_that_cannot_be_written_loses_no_training(cli, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(train_seeds, "FOLDER", tmp_path / "file" / "inside")
    arguments = [*SMALL, "--timesteps", "256", "--seeds", "2", "--run-id", "full"]
    out, err = cli("train", "CartPole", *arguments)
    assert "mean return " in out
    assert "no chart: " in err


def test_several_seeds_in_the_background(cli, monkeypatch):
    started = []
    monkeypatch.setattr(detach, "start_detached", lambda words, run: started.append((words, run)))
    out, err = cli("train", "cartpole", "--seeds", "3", "--seed", "5", "--detach", "--run-id", "bg")
    ((words, run),) = started
    assert words == ["cartpole", "--seed=5", "--run-id=bg", "--seeds=3"]
    assert (run.id, out) == ("bg-seed5", "bg-seed5\n")
    assert "operant stop latest" in err


# Weights of another run -----------------------------------------------------------------------
def test_a_run_starts_from_the_weights_of_another(cli, base):
    out, err = cli("train", "--init-from", "base", *SMALL[:-6], "--timesteps", "128",
                   "--run-id", "next", "--json")  # fmt: skip
    assert "weights of base at step 256" in err
    assert json.loads(out)["env"] == "CartPole-v1"
    theirs = load_checkpoint(list_checkpoints(base.checkpoints)[-1]).arrays["model"]
    first, *_ = list_checkpoints(find_run("next").checkpoints)
    ours = load_checkpoint(first).arrays["model"]
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    rows = {row["run_id"]: row for row in json.loads(cli("runs", "--json")[0])["runs"]}
    assert (rows["next"]["init_from"], rows["base"]["init_from"]) == ("base", None)
    again = str(list_checkpoints(base.checkpoints)[0])
    _, err = cli("train", "CartPole", "--init-from", again, *SMALL, "--timesteps", "128")
    assert "at step 0" in err


def test_code_is_run_only_where_it_is_named(cli, base):
    lander = str(Path(__file__).parents[2] / "examples" / "lander.py") + ":Lander"
    cli("train", lander, *SMALL, "--timesteps", "128", "--run-id", "mine")
    _, err = cli("train", "--init-from", "mine", *SMALL, code=2)
    assert f"if you trust it: operant train {lander} --init-from mine" in err
    _, err = cli("train", lander, "--init-from", "mine", *SMALL, "--timesteps", "128")
    assert "weights of mine" in err


# Eighty columns -------------------------------------------------------------------------------
def test_runs_leave_out_what_has_no_room_and_say_so(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    name = "cartpole-v1-20261118-014403-seed0"
    Run.create(name, '[env]\nid = "CartPole-v1"\n')
    whole, _ = cli("runs")  # to a file: everything
    monkeypatch.setattr(type(output), "is_terminal", property(lambda self: True))
    for width, heads in (
        (80, "run env state steps return seconds"),
        (70, "run env state steps return"),
        (60, "run state steps return"),
    ):
        monkeypatch.setattr(output, "_width", width)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", cli("runs")[0]).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].split() == heads.split()
        assert lines[1].startswith(name)
        left_out = [head for head in whole.split()[:6] if head not in heads]
        assert not left_out or lines[2].endswith(f"--json: {', '.join(left_out)}")


def test_a_table_that_is_too_wide_lies_on_its_side(capsys, monkeypatch):
    heads, rows = ["mode", "engine", *(f"figure {k}" for k in range(9))], [["one"] * 11] * 2
    bench.print_figures(heads, rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 80  # to a file: whole
    monkeypatch.setattr(type(output), "is_terminal", property(lambda self: True))
    bench.print_figures(heads, rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 11
    assert all(head in line for head, line in zip(heads, lines, strict=True))


def test_a_configuration_fits(cli):
    assert max(map(len, cli("config", "CartPole")[0].splitlines())) <= 80


@pytest.mark.parametrize("verb", ["train", "eval", "record", "plot", "profile", "runs", "config"])
def test_no_name_of_a_switch_is_cut_in_the_help(cli, verb):
    out, _ = cli(verb, "--help")
    assert "…" not in out
    assert "Example:" in out


def test_evaluations_name_the_best(cli):
    more = ["--eval-every", "128", "--timesteps", "512", "--set", "ppo.learning_rate=0.05"]
    out, _ = cli("train", "CartPole", *SMALL, *more, "--run-id", "watched", "--json")
    found = json.loads(out)
    assert found["best_step"] % 128 == 0
    assert found["best_return"] >= found["eval_return"]
    played = cli(
        "eval", "watched", "--checkpoint", "best", "--seed", "1", "--episodes", "5", "--json"
    )
    assert json.loads(played[0])["mean_return"] == pytest.approx(found["best_return"], abs=1e-3)


# Asynchronous runs ----------------------------------------------------------------------------
def test_an_asynchronous_run_is_repeated(cli):
    steps = ("--timesteps", "1024", "--mode", "async", "--run-id", "overlapped")
    cli("train", "CartPole", *SMALL, *steps)
    out, _ = cli("train", "--replay", "overlapped", "--run-id", "again", "--threads", "2", "--json")
    assert json.loads(out)["steps"] == 1024
    files = [
        list_checkpoints(find_run(name).checkpoints)[-1] / "model.safetensors"
        for name in ("overlapped", "again")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    _, err = cli("train", "--replay", "overlapped", "--learning-rate", "0.5", code=2)
    assert "learning_rate would change what is learnt" in " ".join(err.split())


@pytest.mark.parametrize(
    "others", [("--resume", "base"), ("--init-from", "base"), ("--seeds", "2")]
)
def test_a_replay_has_nothing_beside_it(cli, base, others):
    _, err = cli("train", "--replay", "base", *others, code=2)
    assert f"leave out {others[0]}" in err


def test_a_run_without_a_schedule_is_not_repeated(cli, base):
    _, err = cli("train", "--replay", "base", code=2)
    assert "was trained with run.mode=sync" in " ".join(err.split())
    assert "Traceback" not in err
