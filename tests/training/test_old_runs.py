"""Runs that were written before there was a training layer are read, and go on, as they did then.

What the code of that day made of them is in ``expected.json``; `make.py` above it wrote both.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from operant import PPO
from operant.cli import app
from operant.monitor.source import Source
from operant.ppo.session import Session
from operant.runs.directory import find_run
from operant.runs.logs import read_csv
from operant.toolchain import paths
from operant.toolchain.machine import machine

DATA = Path(__file__).parents[1] / "data" / "old_runs"
CASES = [(commit, engine) for commit in ("3559bed", "aa03ad8") for engine in ("eager", "fused")]


class Old(NamedTuple):
    """A copy of an old run, and what was expected of it."""

    name: str
    engine: str
    kept: Path
    expected: dict[str, Any]
    same_machine: bool
    """Another processor or another PyTorch may round differently."""
    same_rounding: bool
    """Compiled environments rounded otherwise at 3559bed."""


def made_by() -> Any:
    spec = importlib.util.spec_from_file_location("old_runs_make", DATA / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=CASES, ids="-".join)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Old:
    commit, engine = request.param
    kernels = Path(paths.home()) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    name, kept = f"old-{engine}", DATA / commit / f"old-{engine}"
    shutil.copytree(kept, tmp_path / "runs" / name)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    expected = json.loads((DATA / commit / "expected.json").read_text())
    here = machine()
    same = expected["cpu"] == here["cpu"] and all(
        expected["versions"][name] == here["versions"].get(name) for name in ("numba", "torch")
    )
    return Old(name, engine, kept, expected[engine], same, (commit, engine) != ("3559bed", "fused"))


def test_resumed_to_the_bit(old: Old) -> None:
    session = Session.resume(find_run(old.name))
    assert (session.resumed, session.ppo.engine.name) == (256, old.engine)
    session.train()
    found, expected = made_by().end_of(session.run), dict(old.expected["end"])
    assert found.keys() == expected.keys()
    del found["facts.config"], expected["facts.config"]  # options have been added since
    if old.same_machine and old.same_rounding:
        assert found == expected
    else:  # these are the same wherever the run goes on
        for name in ("facts.iteration", "facts.optimizer_steps"):
            assert found[name] == expected[name]
    if old.same_machine:  # differing in the last bits of a step, if at all
        for name, wanted in old.expected.get("weights", {}).items():
            weights = session.ppo.policy.state_dict()[name].flatten().tolist()
            np.testing.assert_allclose(weights, wanted, atol=1e-6, rtol=0, err_msg=name)
    before, now = (
        tomllib.loads((path / "config.toml").read_text()) for path in (old.kept, session.run.path)
    )
    # A section or an option that came later has its default.
    assert {name: {**values, **before.get(name, {})} for name, values in now.items()} == now


def test_resumed_with_a_metric_that_it_did_not_have(old: Old) -> None:
    run = find_run(old.name)
    rows = [line.split(",") for line in run.csv_file.read_text().splitlines()]
    place = rows[0].index("entropy")
    older = [",".join(row[:place] + row[place + 1 :]) for row in rows]
    run.csv_file.write_text("\n".join(older) + "\n")
    Session.resume(run).train()
    entropy = read_csv(run.csv_file)["entropy"]
    assert np.isnan(entropy).tolist() == [True] * 4 + [False] * 4


def test_evaluated_plotted_and_exported(
    old: Old, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app(["eval", old.name, "--episodes", "5", "--json"], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    expected = old.expected["eval"]
    if not old.same_machine:
        report, expected = ({k: r[k] for k in ("run", "env", "seed")} for r in (report, expected))
    assert {key: report[key] for key in expected} == expected
    app(["plot", old.name, "--out", str(tmp_path / "chart.png")], standalone_mode=False)
    assert (tmp_path / "chart.png").stat().st_size > 1000
    pytest.importorskip("onnxruntime")
    app(["export", old.name, "--onnx", str(tmp_path / "policy.onnx")], standalone_mode=False)
    assert (tmp_path / "policy.onnx").stat().st_size > 500


def test_read_by_the_monitor(old: Old) -> None:
    view = Source(find_run(old.name)).read()
    assert (view.env, view.engine, view.total_steps) == ("CartPole-v1", old.engine, 512)
    assert view.table["iteration"].tolist() == [1, 2, 3, 4]


def test_loaded_and_taken_weights_of(old: Old) -> None:
    ppo = PPO.load(old.name)
    assert (ppo.steps, ppo.iteration, ppo.engine.name) == (256, 4, old.engine)
    settings = ("ppo.num_steps=16", "num_envs=4", "eval_episodes=0")
    words = [word for setting in settings for word in ("--set", setting)]
    new = ["--init-from", old.name, "--run-id", "new", "--total-steps", "64"]
    app(["train", *new, *words], standalone_mode=False)
    assert find_run("new").origin()["step"] == 256
