"""Evaluations while a policy trains: what they write, what they choose, what they leave alone."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from operant.ppo.config_file import resolved
from operant.ppo.ppo import METRICS, PPO
from operant.ppo.session import Session
from operant.runs.checkpoint import list_checkpoints, load_checkpoint, read_best
from operant.runs.directory import Run, find_run
from operant.runs.metrics_file import MetricsReader
from operant.toolchain import paths
from operant.training.callbacks import Callback, only_watches
from operant.training.evaluator import EVAL_METRICS, Evaluator
from operant.training.recorder import Recorder

from ..environments import Endless

ROLLOUT = 8 * 16
VALUES = {
    "env.num_envs": 8,
    "env.backend": "reference",
    "ppo.num_steps": 16,
    "ppo.epochs": 1,
    "ppo.minibatches": 2,
    "ppo.learning_rate": 0.01,
    "policy.hidden": [8],
    "policy.normalize_obs": True,
    "run.total_steps": 7 * ROLLOUT,
    "run.checkpoint_seconds": 1e6,
    "run.threads": 1,
    "run.eval_episodes": 6,
    "run.eval_every": 2 * ROLLOUT,
}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    kernels = paths.home() / "kernels"  # compiled once for all tests
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


def start(name: str, env="CartPole-v1", **values) -> Session:
    env_id = env if isinstance(env, str) else env.__name__
    return Session.start(resolved(env_id, VALUES, values), env, name)


def everything(run: Run) -> dict[str, np.ndarray]:
    """All arrays of the last checkpoint: weights, optimiser, environments, random numbers."""
    arrays = load_checkpoint(list_checkpoints(run.checkpoints)[-1]).arrays
    return {f"{file}/{name}": a for file, group in arrays.items() for name, a in group.items()}


def rows(run: Run) -> list[dict[str, str]]:
    with run.csv_file.open() as file:
        return list(csv.DictReader(file))


def evaluations(run: Run) -> dict[int, list[str]]:
    """The figures of evaluations by step."""
    return {
        int(row["steps"]): [row[name] for name in EVAL_METRICS]
        for row in rows(run)
        if row["eval/return"]
    }


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_training_comes_to_the_same_bits_with_evaluations_as_without(engine):
    backend = "reference" if engine == "eager" else "cpu"
    values = {"env.backend": backend, "run.engine": engine}
    start("with", **values).train()
    start("without", **values, **{"run.eval_every": 0}).train()
    assert evaluations(find_run("with"))
    assert_same(everything(find_run("with")), everything(find_run("without")))


def test_figures_are_in_the_files_of_the_run():
    session = start("r")
    session.train()
    run = session.run
    assert list(rows(run)[0]) == [*METRICS, *EVAL_METRICS]
    found = evaluations(run)
    assert list(found) == [k * ROLLOUT for k in (2, 4, 6, 7)]  # the end too
    with MetricsReader(run.mmap_file) as reader:
        live = reader.read()
    column = live.rows[:, live.fields.index("eval/return")]
    assert np.isfinite(column).sum() == 4
    final = session.evaluate()
    assert final is not None
    assert [float(text) for text in found[7 * ROLLOUT]] == [
        final.greedy.mean_return,
        final.greedy.std_return,
        final.greedy.mean_length,
        final.sampled.mean_return,
    ]
    report = session.report(final)
    assert report["eval_return"] == pytest.approx(final.greedy.mean_return, abs=1e-4)
    assert report["eval_sampled_return"] == pytest.approx(final.sampled.mean_return, abs=1e-4)
    assert (report["eval_episodes"], len(final.sampled.returns)) == (6, 6)


def test_the_best_is_chosen_by_evaluations_and_is_what_was_evaluated(monkeypatch):
    scores = iter([5.0, 9.0, 7.0, 8.0])

    def on_update(self, ppo, metrics):
        if self._due(ppo, ppo.steps):
            metrics["eval/return"] = next(scores)

    monkeypatch.setattr(Evaluator, "on_update", on_update)
    session = start("r", **{"run.keep": 1})
    session.train()
    folder = session.run.checkpoints
    assert read_best(folder) == (4 * ROLLOUT, 9.0)  # whatever the mean return of training was
    assert [int(path.name) for path in list_checkpoints(folder)] == [4 * ROLLOUT, 7 * ROLLOUT]
    report = session.report(None)
    assert (report["best_step"], report["best_return"]) == (4 * ROLLOUT, 9.0)


class StopAfter(Callback):
    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def on_update(self, ppo, metrics):
        if ppo.iteration >= self.iterations:
            ppo.stop()


@pytest.mark.parametrize("stop", [3, 4])
def test_a_run_resumes_to_the_bit_with_evaluations(stop):
    start("whole").train()
    start("parts").train([StopAfter(stop)])
    session = Session.resume(find_run("parts"))
    assert session.resumed == stop * ROLLOUT
    session.train()
    whole, parts = find_run("whole"), find_run("parts")
    assert_same(everything(parts), everything(whole))
    assert evaluations(parts) == evaluations(whole)
    assert read_best(parts.checkpoints) == read_best(whole.checkpoints)


def test_evaluations_are_not_switched_on_or_off_in_the_middle():
    start("on").train([StopAfter(1)])
    start("off", **{"run.eval_every": 0}).train([StopAfter(1)])
    for name, every in (("on", 0), ("off", 100)):
        with pytest.raises(ValueError, match=r"run.eval_every can change.*but not from or to 0"):
            Session.resume(find_run(name), changes={"run.eval_every": every})
    Session.resume(find_run("on"), changes={"run.eval_every": 3 * ROLLOUT}).train()
    assert list(evaluations(find_run("on"))) == [k * ROLLOUT for k in (3, 6, 7)]


def test_only_iterations_that_are_looked_at_hold_the_next_one_up():
    ppo = PPO("CartPole-v1", resolved("CartPole-v1", VALUES))
    evaluator, waited = Evaluator(ppo), []

    class Note(Callback):
        def on_rollout(self, ppo, buffer):
            waited.append(not only_watches(evaluator))

    ppo.learn(callbacks=[evaluator, Note()])
    assert waited == [False, True, False, True, False, True, True]


def test_what_cannot_be_evaluated_is_refused_and_leaves_nothing():
    with pytest.raises(ValueError, match="Endless has no time limit"):
        start("endless", Endless)
    with pytest.raises(ValueError, match=r"run.eval_every needs run.eval_episodes"):
        start("none", **{"run.eval_episodes": 0})
    for name in ("endless", "none"):
        with pytest.raises(ValueError, match="no run"):
            find_run(name)


def test_without_evaluations_nothing_of_them_is_written():
    session = start("r", **{"run.eval_every": 0})
    assert session.evaluator is None
    session.train()
    assert list(rows(session.run)[0]) == list(METRICS)
    best = read_best(session.run.checkpoints)
    assert best is not None
    assert math.isfinite(best[1])
    assert Recorder.watches_only
