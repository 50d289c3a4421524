"""``operant train --ranks``: processes that torchrun starts, and what it does when one dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.numpy import load_file

from operant import PPO
from operant.cli import main
from operant.runs.checkpoint import list_checkpoints
from operant.runs.directory import find_run
from operant.toolchain import paths

OPTIONS: dict[str, Any] = {
    "env.num_envs": 16,
    "ppo.num_steps": 32,
    "ppo.minibatches": 2,
    "run.shards": 2,
    "run.total_steps": 40_000,
    "run.checkpoint_seconds": 0.3,
    "run.eval_episodes": 0,
    "run.engine": "eager",
    "run.device": "cpu",
}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "120")
        yield home


def refused(monkeypatch: Any, capsys: Any, *arguments: str) -> str:
    """What a command says that ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["operant", "train", "CartPole-v1", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return str(capsys.readouterr().err)


def started(*arguments: str) -> subprocess.Popen[str]:
    words = [word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")]
    return subprocess.Popen(
        [sys.executable, "-m", "operant", "train", "CartPole-v1", *words, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks_of(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The processes that train, by rank, once the run has been saved."""
    found = {}
    for child in psutil.Process(process.pid).children():
        with_rank = child.environ().get("RANK")
        if with_rank is not None:
            found[int(with_rank)] = child
    return found


def wait_for_rows(file: Path, count: int, process: subprocess.Popen[str]) -> None:
    while not file.exists() or len(file.read_text().splitlines()) <= count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_a_killed_rank_begins_again_and_changes_no_bit(home: Path) -> None:
    process = started("--ranks=2", "--restarts=1", "--run-id=two")
    wait_for_rows(home / "runs" / "two" / "metrics.csv", 5, process)
    ranks = ranks_of(process)
    assert set(ranks) == {0, 1}
    ranks[1].kill()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "operant: rank 1 died; two is saved up to step" in err
    assert out.count("next: operant eval two") == 1
    run = find_run("two")
    log = run.log_file.read_text()
    assert "2 shards on 2 ranks" in log
    assert "resumed at step" in log
    assert (run.path / "rank_1.log").exists()
    psutil.wait_procs(ranks.values(), timeout=10)
    assert not any(rank.is_running() for rank in ranks.values())
    names = {name.partition(".")[2]: value for name, value in OPTIONS.items()}
    alone = PPO("CartPole-v1", **names).learn(progress=False)
    weights = load_file(list_checkpoints(run.checkpoints)[-1] / "model.safetensors")
    for name, tensor in alone.policy.state_dict().items():
        assert (weights[name] == tensor.numpy()).all(), name


def test_a_mistake_is_one_sentence(home: Path) -> None:
    process = started("--ranks=2", "--set", "run.shards=3", "--run-id=three")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "run.shards is 3, which 2 ranks cannot share evenly" in err
    assert err.count("operant: ") == 1
    assert "Traceback" not in err
    assert not (home / "runs" / "three").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--restarts", "1"], "--restarts is for several processes"),
        (["--ranks", "2", "--seeds", "2"], "each in one process, not on ranks"),
    ],
)
def test_switches_that_do_not_go_together(
    monkeypatch: Any, capsys: Any, arguments: list[str], words: str
) -> None:
    assert words in refused(monkeypatch, capsys, *arguments)


def test_torchrun_has_started_the_ranks_already(monkeypatch: Any, capsys: Any) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    words = "torchrun has started the ranks already; leave out --ranks"
    assert words in refused(monkeypatch, capsys, "--ranks", "2")
