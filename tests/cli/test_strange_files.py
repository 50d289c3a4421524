"""Links, pipes and folders at every name in a run directory: refused or left out, never followed,
never waited for."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.cli import main
from operant.ppo.config_file import resolved
from operant.ppo.ppo import PPO
from operant.ppo.session import Session
from operant.runs.control import trainer_of
from operant.runs.directory import Run
from operant.toolchain import paths

SMALL = {"env.backend": "reference", "env.num_envs": 4, "ppo.num_steps": 8, "policy.hidden": [4]}
SMALL |= {"ppo.minibatches": 1, "run.total_steps": 64, "run.threads": 1, "run.eval_episodes": 0}
NAMES = ("config.toml", "info.json", "metrics.csv", "metrics.jsonl", "metrics.mmap", "train.log")
NAMES += ("lock", "checkpoints", "checkpoints/latest", "checkpoints/best", "tensorboard")
NAMES += tuple(
    f"checkpoints/000000000064{file}"
    for file in ("", "/manifest.json", "/facts.json", "/model.safetensors")
)
CASES = [(name, kind) for name in NAMES for kind in ("link", "pipe")]
CASES += [(name, "other") for name in ("checkpoints", "checkpoints/latest", "metrics.mmap")]
CASES += [(name, "dangling") for name in ("checkpoints", "metrics.jsonl", "config.toml")]
Cli = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 64 steps, to be copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(tmp_path_factory.mktemp("home")))
        values = SMALL | {"run.tensorboard": True, "run.checkpoint_seconds": 0.0}
        session = Session.start(resolved("CartPole-v1", values), "CartPole-v1", "template")
        session.train()
        (session.run.checkpoints / "best").write_text('{"step": 64, "score": 1.0}')
    return session.run.path


@pytest.fixture
def victim(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another run; a home with it and with one called `strange`."""
    pytest.importorskip("tensorboard")
    kernels = paths.home() / "kernels"
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    for name in ("victim", "strange"):
        shutil.copytree(template, tmp_path / "runs" / name)
    return tmp_path / "runs" / "victim"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command; its exit code, 130 if it waits for ever, and what it says."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *words])
        code = 0
        signal.alarm(300)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.alarm(0)
        err = capfd.readouterr().err
        assert "Traceback" not in err
        return code, err

    return run


def put(kind: str, path: Path, target: Path) -> None:
    """In place of `path` something that nobody expects."""
    folder = path.is_dir()
    shutil.rmtree(path) if folder else path.unlink()
    if kind == "link":
        path.symlink_to(target)
    elif kind == "dangling":
        path.symlink_to(target.with_name("nowhere"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif folder:
        path.write_bytes(b"x")
    else:
        path.mkdir()


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file, with its content and its time."""
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mtime_ns} "
        + (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder")
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_at_every_name(name: str, kind: str, victim: Path, cli: Cli) -> None:
    run = victim.with_name("strange")
    put(kind, run / name, victim / name)
    before = fingerprint(victim)
    for words in (["runs"], ["monitor", "strange", "--json"], ["stop", "strange"], ["logs"]):
        code, said = cli(*words, *(["strange"] if words == ["logs"] else []))
        assert code in (0, 2), said
    if name.startswith("checkpoints"):
        code, said = cli("eval", "strange", "--episodes=1", "--max-episode-steps=1")
        assert code in (0, 2), said
        assert said.count("\n") <= 1
    if name == "metrics.csv":
        code, said = cli("plot", "strange", "--out=x.png")
        assert code == 2
        assert said.count("\n") <= 1
    code, said = cli("train", "--resume=strange", "--total-steps=128")
    assert code in (0, 2), said
    assert fingerprint(victim) == before
    if "/" not in name:
        assert code == 2
        assert said.startswith("operant: cannot read or write ")
        assert said.count("\n") == 1
    code, said = cli("runs", "rm", "strange")
    assert code == 0, said
    assert fingerprint(victim) == before


def test_the_checkpoints_of_another_run_survive(victim: Path, cli: Cli) -> None:
    """An older checkpoint is resumed, and everything after it would be removed."""
    run = victim.with_name("strange")
    put("link", run / "checkpoints", victim / "checkpoints")
    before = fingerprint(victim)
    code, said = cli("train", "--resume=strange", "--checkpoint=0", "--set=run.keep=1")
    assert code == 2
    assert "checkpoints: is a symbolic link" in said
    assert fingerprint(victim) == before


def test_a_folder_that_the_user_names_may_be_a_link(victim: Path, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "models").symlink_to(tmp_path / "big")
    PPO.load(victim).save(tmp_path / "models")
    assert PPO.load(tmp_path / "models").steps == 64
    (tmp_path / "named").symlink_to(victim)
    assert PPO.load(tmp_path / "named").steps == 64


def test_stop_does_not_reach_another_run(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forged run names the process of another, whose lock it links to."""
    from operant.runs.metrics_file import MetricsWriter

    run = Run(victim.with_name("strange"))
    lock = Run(victim).lock()
    with MetricsWriter(run.mmap_file, ["steps"], run_id="strange"):
        put("link", run.path / "lock", victim / "lock")
        assert trainer_of(run) is None
    with MetricsWriter(Run(victim).mmap_file, ["steps"], run_id="victim"):
        assert trainer_of(Run(victim)) == os.getpid()
    lock.close()
