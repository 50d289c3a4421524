"""``operant train --ranks``: the processes it starts, and what it does when one dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from safetensors.numpy import load_file

from operant import PPO
from operant.cli import launch_ranks, main
from operant.cli.screen import Interrupted
from operant.cli.train_ranks import note_run, run_of_restart
from operant.runs.checkpoint import list_checkpoints
from operant.runs.directory import Run, find_run
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


def started(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    words = [word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")]
    return subprocess.Popen(
        [sys.executable, "-m", "operant", "train", "CartPole-v1", *words, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
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
        (["--ranks", "1", "--restarts", "1"], "--restarts is for several processes"),
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


def test_all_listen_on_loopback_alone_and_end_with_the_launcher(
    home: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    others = [name for name in psutil.net_if_addrs() if not name.startswith("lo")]
    env = unmeasured() | ({"GLOO_SOCKET_IFNAME": others[0]} if others else {})
    process = started("--ranks=2", "--run-id=lonely", "--set", "run.total_steps=1e9", env=env)
    wait_for_rows(home / "runs" / "lonely" / "metrics.csv", 1, process)
    ranks = ranks_of(process)
    listening = []
    for one in (psutil.Process(process.pid), *ranks.values()):
        listening += [c.laddr.ip for c in one.net_connections() if c.status == psutil.CONN_LISTEN]
    process.kill()
    gone, left = psutil.wait_procs(ranks.values(), timeout=30)
    for one in left:
        one.kill()
    process.communicate()
    assert len(gone) == 2, "the ranks outlived what started them"
    assert len(listening) >= 3  # the store, and each rank for the other
    assert set(listening) <= {"127.0.0.1", "::1"}


MAKE_ENV = """
import os
import gymnasium

def make_env():
    if os.environ["RANK"] == "1":
        raise ValueError("no such level")
    return gymnasium.make("CartPole-v1")
"""


def test_why_a_rank_cannot_begin(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(launch_ranks, "_PATIENCE_S", 2.0)  # rank 0 may be about to say it
    file = tmp_path / "level.py"
    file.write_text(MAKE_ENV)
    with pytest.raises(typer.Exit) as ended:
        launch_ranks.launch([f"{file}:make_env", "--run-id=level"], ranks=2, restarts=2)
    assert ended.value.exit_code == 2
    said = capfd.readouterr().err
    assert said.count("operant: rank 1 stopped: ") == 1
    assert "no such level" in said
    assert "rank 0" not in said


def tiny_ranks(monkeypatch: Any, tmp_path: Path, script: str) -> Path:
    """Ranks run `script` from now on. Returns a file with a line for each time rank 0 began."""
    began = tmp_path / "began"
    script = (
        "import os, signal, sys\n"
        f"if os.environ['RANK'] == '0': print('began', file=open({str(began)!r}, 'a'))\n{script}"
    )
    command = [sys.executable, "-c", script]
    monkeypatch.setattr(launch_ranks, "python_command", lambda *_: command)
    return began


@pytest.mark.parametrize(("code", "attempts"), [(1, 3), (2, 1), (3, 1)])
def test_only_what_may_get_better_is_tried_again(
    monkeypatch: Any, tmp_path: Path, code: int, attempts: int
) -> None:
    began = tiny_ranks(monkeypatch, tmp_path, f"sys.exit({code})")
    with pytest.raises(typer.Exit) as ended:
        launch_ranks.launch([], ranks=2, restarts=2)
    assert ended.value.exit_code == code
    assert len(began.read_text().splitlines()) == attempts


def test_after_ctrl_c_nothing_begins_again(monkeypatch: Any, tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGINT, lambda *_: os._exit(1))
if os.environ['RANK'] == '0':
    os.kill(os.getppid(), signal.SIGINT)
signal.pause()
"""
    began = tiny_ranks(monkeypatch, tmp_path, script)
    with pytest.raises(typer.Exit) as ended:
        launch_ranks.launch([], ranks=2, restarts=2)
    assert ended.value.exit_code == 130
    assert len(began.read_text().splitlines()) == 1


def test_a_second_ctrl_c_ends_all(monkeypatch: Any, tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGINT, lambda *_: os.kill(os.getppid(), signal.SIGINT))
if os.environ['RANK'] == '0':
    os.kill(os.getppid(), signal.SIGINT)
while True:
    signal.pause()
"""
    tiny_ranks(monkeypatch, tmp_path, script)
    with pytest.raises(Interrupted):
        launch_ranks.launch([], ranks=2, restarts=2)
    assert not [c for c in psutil.Process().children() if script in "".join(c.cmdline())]


def test_a_restart_finds_a_run_outside_the_runs_folder(
    home: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    _store, port = launch_ranks._store()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    for path, name in ((tmp_path / "moved", ""), (home / "runs" / "usual", "usual")):
        path.mkdir(parents=True)
        note_run(Run(path))
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
        assert run_of_restart("") == ""
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        assert run_of_restart("") == (name or str(path))
