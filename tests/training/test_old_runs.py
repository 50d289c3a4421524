"""Runs that were written before there was a training layer are read, and go on, as they did then.

What the code of that day made of them is in ``expected.json``; `make.py` beside it wrote both.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from operant import PPO
from operant.cli import app
from operant.ppo.session import Session
from operant.runs.directory import find_run
from operant.toolchain import paths
from operant.toolchain.machine import machine

DATA = Path(__file__).parents[1] / "data" / "old_runs"
EXPECTED = json.loads((DATA / "expected.json").read_text())
SAME_MACHINE = EXPECTED["cpu"] == machine()["cpu"] and all(
    EXPECTED["versions"][name] == machine()["versions"].get(name) for name in ("numba", "torch")
)
"""Another processor or another PyTorch may round differently."""
ENGINES = ("eager", "fused")


def made_by() -> Any:
    spec = importlib.util.spec_from_file_location("old_runs_make", DATA / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Path(paths.home()) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    for engine in ENGINES:
        shutil.copytree(DATA / f"old-{engine}", tmp_path / "runs" / f"old-{engine}")
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_resumed_to_the_bit(engine: str) -> None:
    session = Session.resume(find_run(f"old-{engine}"))
    assert (session.resumed, session.ppo.engine.name) == (256, engine)
    session.train()
    found, expected = made_by().end_of(session.run), dict(EXPECTED[engine]["end"])
    assert found.keys() == expected.keys()
    del found["facts.config"], expected["facts.config"]  # options have been added since
    if SAME_MACHINE:
        assert found == expected
    else:  # these are the same wherever the run goes on
        for name in ("facts.iteration", "facts.optimizer_steps"):
            assert found[name] == expected[name]
    old, new = (
        tomllib.loads((runs / f"old-{engine}" / "config.toml").read_text())
        for runs in (DATA, session.run.path.parent)
    )
    assert {name: {**new[name], **values} for name, values in old.items()} == new


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluated_plotted_and_exported(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"old-{engine}"
    app(["eval", name, "--episodes", "5", "--json"], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    expected = EXPECTED[engine]["eval"]
    if not SAME_MACHINE:
        report, expected = ({k: r[k] for k in ("run", "env", "seed")} for r in (report, expected))
    assert {key: report[key] for key in expected} == expected
    app(["plot", name, "--out", str(tmp_path / "chart.png")], standalone_mode=False)
    assert (tmp_path / "chart.png").stat().st_size > 1000
    pytest.importorskip("onnxruntime")
    app(["export", name, "--onnx", str(tmp_path / "policy.onnx")], standalone_mode=False)
    assert (tmp_path / "policy.onnx").stat().st_size > 500


@pytest.mark.parametrize("engine", ENGINES)
def test_loaded_and_taken_weights_of(engine: str) -> None:
    ppo = PPO.load(f"old-{engine}")
    assert (ppo.steps, ppo.iteration, ppo.engine.name) == (256, 4, engine)
    settings = ("ppo.num_steps=16", "num_envs=4", "eval_episodes=0")
    words = [word for setting in settings for word in ("--set", setting)]
    new = ["--init-from", f"old-{engine}", "--run-id", "new", "--total-steps", "64"]
    app(["train", *new, *words], standalone_mode=False)
    assert find_run("new").origin()["step"] == 256
