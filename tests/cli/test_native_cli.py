"""Libraries as environments of the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from operant.cli import main
from operant.runs.checkpoint import list_checkpoints, load_checkpoint
from operant.runs.directory import find_run
from operant.toolchain import paths

SMALL = ["--set", "env.num_envs=8", "--set", "ppo.num_steps=16", "--set", "policy.hidden=[8]"]
SMALL += ["--set", "run.eval_episodes=5", "--set", "run.threads=1", "--set", "run.device=cpu"]
SMALL += ["--set", "ppo.learning_rate_schedule=constant"]  # a longer run begins as a shorter one
Cli = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "120")
        yield


@pytest.fixture
def snake(build_library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> str:
    library = build_library("examples/native/snake.c", "-O2", name="snake")
    monkeypatch.chdir(library.parent)
    return f"./{library.name}"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *arguments])
        found: object = 0
        try:
            main()
        except SystemExit as end:
            found = end.code or 0
        out, err = capsys.readouterr()
        assert found == code, out + err
        assert "Traceback" not in err
        return out, err

    return run


def test_check_passes_the_example(cli: Cli, snake: str) -> None:
    report = json.loads(cli("check", snake, "--json")[0])["checks"][0]
    assert report["passed"], report
    found = {finding["name"]: finding["detail"] for finding in report["findings"]}
    assert found["definition"] == "Snake keeps to operant_env.h"
    assert found["parity"] == "only one implementation, the library"
    assert "1 and 2 workers on native" in found["determinism"]
    assert found["masks"].startswith("the same after a step and from the state alone; every state")
    assert "mean length" in found["episodes"]
    assert list(report["sps"]) == ["native"]


def test_check_refuses_a_liar(cli: Cli, build_library: Callable[..., Path]) -> None:
    liar = build_library("tests/vector/native/walk.c", "-DLIE=DRAWS")
    out, _ = cli("check", str(liar), code=1)
    assert "FAIL definition" in out
    assert "was refused: the same environment, played twice, gave other rewards" in out
    _, err = cli("train", str(liar), code=2)
    assert f"{liar.name} was refused: " in err
    _, err = cli("check", "./nowhere.so", code=2)
    assert "there is no file './nowhere.so'" in err


def test_train_eval_and_resume_to_the_bit(cli: Cli, snake: str) -> None:
    whole = ["train", snake, *SMALL, "--run-id", "whole", "--total-steps", "512", "--json"]
    found = json.loads(cli(*whole)[0].splitlines()[-1])
    assert (found["env"], found["engine"], found["finished"]) == (snake, "fused", True)
    out, _ = cli("train", snake, *SMALL, "--run-id", "part", "--total-steps", "256")
    assert f"next: operant eval part --env {snake}" in out
    _, err = cli("train", "--resume", "part", "--total-steps", "512", code=2)
    assert "its code is not run unless you name it" in err
    cli("train", snake, "--resume", "part", "--total-steps", "512", "--json")
    folders = [find_run(run).checkpoints for run in ("whole", "part")]
    one, other = (load_checkpoint(list_checkpoints(folder)[-1]).arrays for folder in folders)
    for name in ("model", "environment"):
        for key, array in one[name].items():
            assert array.tobytes() == other[name][key].tobytes(), (name, key)
    played = json.loads(cli("eval", "part", "--env", snake, "--episodes", "3", "--json")[0])
    assert (played["episodes"], played["env"]) == (3, snake)
    assert f'id = "{snake}"' in cli("config", snake)[0]


def test_bench_env(cli: Cli, snake: str) -> None:
    sizes = ["--num-envs", "16", "--repeats", "1", "--seconds", "0.01", "--workers", "1"]
    out = cli("bench", "env", "--env", snake, *sizes, "--workers", "2", "--json", "-")[0]
    rows = json.loads(out)["results"]
    assert [(row["env"], row["backend"], row["workers"]) for row in rows] == [
        (snake, "native", 1),
        (snake, "native", 2),
    ]
