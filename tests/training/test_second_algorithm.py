"""A second algorithm, in one file, with everything a run has: directory, metrics, checkpoints."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.cli import app
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import Run, find_run
from operant.runs.logs import read_csv
from operant.toolchain import paths
from operant.training.config_file import resolved
from operant.training.session import Session

sys.path.insert(0, str(Path(__file__).parent))
from reinforce import Config, Reinforce

ROLLOUT = 16 * 32
VALUES = {
    "env.num_envs": 16,
    "reinforce.num_steps": 32,
    "policy.hidden": [16],
    "run.total_steps": 12 * ROLLOUT,
    "run.checkpoint_seconds": 0.0,
    "run.eval_episodes": 0,
}

VICTIM = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from test_second_algorithm import ReinforceSession, VALUES, start
from operant.training.callbacks import Callback

class Reached(Callback):
    def on_update(self, trainer, metrics):
        if trainer.iteration == 3:
            print("going", flush=True)
        if trainer.iteration == 9:
            signal.pause()  # never ends by itself

start("killed").train([Reached()])
"""


class ReinforceSession(Session[Reinforce]):
    trainer_type = Reinforce


def start(name: str, **others: Any) -> ReinforceSession:
    config = resolved(Config, "CartPole-v1", VALUES)
    return ReinforceSession.start(config, "CartPole-v1", name, **others)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Path(paths.home()) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


def end_of(run: Run) -> dict[str, np.ndarray]:
    found = load_checkpoint(latest_checkpoint(run.checkpoints))
    assert found.step == VALUES["run.total_steps"]
    arrays = {f"{g}.{name}": a for g, part in found.arrays.items() for name, a in part.items()}
    table = read_csv(run.csv_file)
    timed = ("seconds", "sps")
    arrays |= {f"metrics.{name}": table[name] for name in table if name not in timed}
    facts = {key: value for key, value in found.facts.items() if key != "seconds"}
    return arrays | {"facts": np.array(json.dumps(facts))}


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_it_is_short_and_uses_nothing_of_the_other_algorithm() -> None:
    text = Path(__file__).with_name("reinforce.py").read_text()
    assert len(text.splitlines()) <= 120
    assert "operant.ppo import" not in text
    assert "from operant.ppo" not in text


def test_it_learns() -> None:
    trainer = Reinforce("CartPole-v1", num_envs=32, normalize_obs=False, seed=0)
    assert trainer.learn(32 * 64 * 80, progress=False).mean_return >= 150


def test_killed_and_resumed_to_the_bit(unmeasured: Any) -> None:
    whole = start("whole")
    whole.train()
    here = str(Path(__file__).parent)
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, here], env=unmeasured(), stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "going\n"
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    run = find_run("killed")
    session = ReinforceSession.resume(run)
    assert session.resumed is not None
    assert 2 * ROLLOUT <= session.resumed < VALUES["run.total_steps"]
    session.train()
    assert_equal(end_of(run), end_of(whole.run))
    assert read_csv(run.csv_file)["iteration"].tolist() == list(range(1, 13))


def test_what_a_run_of_it_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    session = start("said")
    session.train()
    assert session.evaluate() is None
    assert session.report(None)["engine"] == "eager"
    columns = list(read_csv(session.run.csv_file))
    assert columns == [*Reinforce.metrics]
    assert "[reinforce]\nnum_steps = 32" in session.run.config_file.read_text()
    for words in (["eval", "said", "--episodes", "5", "--json"], ["plot", "said"], ["runs"]):
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.chdir(tmp_path)
            app(words, standalone_mode=False)
    out = capsys.readouterr().out
    assert json.loads(out[: out.index("\n")])["episodes"] == 5


def test_copies_and_checkpoints_go_on_as_it_does(tmp_path: Path) -> None:
    trainer = Reinforce("CartPole-v1", num_envs=4, num_steps=8, seed=3)
    trainer.learn(64, progress=False)
    trainer.save(tmp_path / "saved")
    loaded = Reinforce.load(tmp_path / "saved")
    copied = copy.deepcopy(trainer)  # restores the global generator: made last
    for one in (copied, loaded):
        assert one.steps == 64
        assert one.optimizer_steps == trainer.optimizer_steps == 2
        for name, tensor in trainer.optimizer_tensors().items():
            assert one.optimizer_tensors()[name].equal(tensor)
    assert len(trainer.evaluated().greedy.returns) == trainer.config.run.eval_episodes
    with pytest.raises(ValueError, match=r"run\.eval_every must be at least 1, got 0"):
        trainer.evaluator()


def test_the_nan_guard_puts_its_policy_back() -> None:
    from operant.training.callbacks import Callback
    from operant.training.guard import NonFiniteError

    class Spoil(Callback):
        def on_rollout(self, trainer: Any, buffer: Any) -> None:
            trainer.policy.actor[0].weight.data.fill_(7.0)
            trainer.optimizer_steps += 5
            raise NonFiniteError("reward", trainer.iteration, 0, "a test")

    trainer = Reinforce("CartPole-v1", num_envs=4, num_steps=8, seed=3)
    before = copy.deepcopy(trainer.policy.state_dict())
    with pytest.raises(NonFiniteError):
        trainer.learn(64, Spoil(), progress=False)
    assert trainer.optimizer_steps == 0
    for name, tensor in trainer.policy.state_dict().items():
        assert tensor.equal(before[name])
