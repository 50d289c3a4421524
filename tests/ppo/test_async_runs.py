"""Asynchronous runs in run directories: repeated, killed and resumed, refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import Run, find_run
from operant.runs.logs import read_csv
from operant.runs.metrics_layout import Status
from operant.runs.schedule import read_schedule
from operant.training.callbacks import Callback

ITERATIONS = 12
VALUES = {
    "env.num_envs": 8,
    "ppo.num_steps": 16,
    "ppo.epochs": 2,
    "policy.hidden": [16],
    "run.mode": "async",
    "run.max_lag": 2,
    "run.total_steps": 128 * ITERATIONS,
    "run.checkpoint_seconds": 0.0,
    "run.eval_episodes": 0,
    "run.threads": 1,
    "run.device": "cpu",
}


@pytest.fixture(autouse=True)
def _runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.runs.directory.home", lambda: tmp_path)


def trained(run_id: str, callback: Callback | None = None, **values: Any) -> Run:
    config = resolved("CartPole-v1", {**VALUES, **values})
    session = Session.start(config, "CartPole-v1", run_id)
    session.train([] if callback is None else [callback])
    return session.run


def final(run: Run) -> dict[str, np.ndarray]:
    """Weights and the optimiser's memory."""
    arrays = load_checkpoint(latest_checkpoint(run.checkpoints)).arrays
    return {f"{group}.{k}": v for group in ("model", "optimizer") for k, v in arrays[group].items()}


def assert_same(first: Run, second: Run) -> None:
    one, other = final(first), final(second)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], name)


class After(Callback):
    """Does something after an iteration."""

    def __init__(self, iteration: int, what: Callable[[Any], object]) -> None:
        self._iteration, self._what = iteration, what

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        if trainer.iteration == self._iteration:
            self._what(trainer)


def replayed(source: Run, run_id: str = "again", **changes: Any) -> Run:
    session = Session.replay(source, changes=changes, run_id=run_id)
    session.train()
    return session.run


def test_a_replay_ends_with_the_same_weights() -> None:
    first = trained("first")
    again = replayed(first, **{"run.threads": 2, "run.checkpoint_seconds": 30.0})
    assert_same(first, again)
    assert first.schedule_file.read_bytes() == again.schedule_file.read_bytes()
    assert "follows the schedule of first" in again.log_file.read_text()
    columns = [read_csv(run.csv_file) for run in (first, again)]
    for name in ("mean_return", "policy_loss", "lag", "lag_max"):
        np.testing.assert_array_equal(columns[0][name], columns[1][name], name)
    assert columns[0]["lag_max"].max() <= 2


def test_a_replay_of_a_run_that_was_stopped_ends_where_that_ended() -> None:
    first = trained("first", After(5, lambda ppo: ppo.stop()))
    again = replayed(first)
    assert len(read_schedule(first.schedule_file)) == 5
    assert_same(first, again)


def test_a_resumed_run_is_repeated_as_a_whole() -> None:
    first = trained("first", After(5, lambda ppo: ppo.stop()))
    Session.resume(first).train()
    assert len(read_schedule(first.schedule_file)) == ITERATIONS
    assert_same(first, replayed(first))


KILLED = """
import os, signal, sys
from pathlib import Path
from operant.runs import directory
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.training.callbacks import Callback

class Kill(Callback):
    def on_update(self, trainer, metrics):
        if trainer.iteration == 7:
            os.kill(os.getpid(), signal.SIGKILL)

directory.home = lambda: Path(sys.argv[2])  # kernels are where they are
values = eval(sys.argv[1])
Session.start(resolved("CartPole-v1", values), "CartPole-v1", "killed").train([Kill()])
"""


def test_killed_it_resumes_and_the_whole_is_repeated(tmp_path: Any, unmeasured: Any) -> None:
    command = [sys.executable, "-c", KILLED, repr(VALUES), str(tmp_path)]
    child = subprocess.run(command, env=unmeasured(), timeout=120, check=False)
    assert child.returncode == -signal.SIGKILL
    run = find_run("killed")
    assert len(read_schedule(run.schedule_file)) == 7
    assert int(latest_checkpoint(run.checkpoints).name) == 6 * 128
    session = Session.resume(run)
    assert session.ppo.iteration == 6
    session.train()
    assert len(read_schedule(run.schedule_file)) == ITERATIONS
    assert read_csv(run.csv_file)["iteration"].tolist() == list(range(1, ITERATIONS + 1))
    assert_same(run, replayed(run))


def test_other_options_are_noted_before_anything_is_collected() -> None:
    first = trained("first", After(3, lambda ppo: ppo.stop()))
    session = Session.resume(first, changes={"ppo.learning_rate": 0.05})
    session.recorder.close(Status.FAILED)  # as a kill leaves it
    session._lock.close()
    Session.resume(first).train()
    with pytest.raises(ValueError, match="resumed before iteration 3, and it went on with other"):
        Session.replay(first)


def test_a_synchronous_run_is_resumed_without_its_configuration() -> None:
    """The checkpoint has it."""
    first = trained("first", After(2, lambda ppo: ppo.stop()), **{"run.mode": "sync"})
    first.config_file.write_text("[ppo\n")
    Session.resume(first).train()


def test_the_trainer_goes_on_after_the_session() -> None:
    session = Session.start(resolved("CartPole-v1", VALUES), "CartPole-v1", "first")
    session.train([After(2, lambda ppo: ppo.stop())])
    assert session.ppo.learn(4 * 128).iteration == 4
    assert len(read_schedule(session.run.schedule_file)) == 2


# Refusals -----------------------------------------------------------------------------------
def test_what_cannot_be_repeated_is_refused() -> None:
    plain = trained("plain", **{"run.mode": "sync"})
    with pytest.raises(ValueError, match=r"run\.mode=sync, and has no schedule: the same"):
        Session.replay(plain)
    first = trained("first", After(5, lambda ppo: ppo.stop()))
    with pytest.raises(ValueError, match="learning_rate would change what is learnt"):
        Session.replay(first, changes={"ppo.learning_rate": 0.5})
    Session.resume(first, changes={"ppo.learning_rate": 0.5}).train()
    with pytest.raises(ValueError, match="resumed before iteration 5, and it went on with other"):
        Session.replay(first)
    first.schedule_file.write_bytes(first.schedule_file.read_bytes()[:32])
    with pytest.raises(ValueError, match="its schedule is empty"):
        Session.replay(first)
    first.schedule_file.unlink()
    with pytest.raises(ValueError, match=r"cannot read .*schedule\.bin"):
        Session.replay(first)


def test_a_schedule_of_another_configuration_is_refused_and_nothing_is_left() -> None:
    first = trained("first")
    other = trained("other", **{"run.max_lag": 1})
    other.schedule_file.write_bytes(first.schedule_file.read_bytes())
    with pytest.raises(ValueError, match="the schedule is one of Shape"):
        Session.replay(other, run_id="again")
    assert not (first.path.parent / "again").exists()


def test_the_mode_cannot_change_in_the_middle_of_a_run() -> None:
    first = trained("first", After(5, lambda ppo: ppo.stop()))
    for name, value in (("run.mode", "sync"), ("run.max_lag", 1)):
        with pytest.raises(ValueError, match=f"{name} cannot change"):
            Session.resume(first, changes={name: value})
