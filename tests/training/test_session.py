"""Run directories: what a session writes, resuming, and readers that trust nothing."""

from __future__ import annotations

import csv
import json
import os
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from operant.ppo.config_file import read_config, resolved
from operant.ppo.ppo import METRICS
from operant.ppo.session import Session
from operant.runs import logs
from operant.runs.checkpoint import list_checkpoints, load_checkpoint
from operant.runs.directory import Run, check_run_id, find_run, list_runs, new_run_id
from operant.runs.hardware import HARDWARE
from operant.runs.metrics_file import MetricsReader
from operant.runs.summary import summary
from operant.training import session as module
from operant.training.callbacks import Callback
from operant.training.evaluate import evaluate
from operant.training.guard import NonFiniteError
from operant.training.snapshot import load_agent

from ..environments import Endless

ROLLOUT = 8 * 16
VALUES = {
    "env.num_envs": 8,
    "env.backend": "reference",
    "ppo.num_steps": 16,
    "ppo.epochs": 1,
    "ppo.minibatches": 2,
    "policy.hidden": [8],
    "run.total_steps": 6 * ROLLOUT,
    "run.checkpoint_seconds": 0.0,
    "run.threads": 1,
    "run.eval_episodes": 10,
}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


class StopAfter(Callback):
    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def on_update(self, ppo, metrics):
        if ppo.iteration >= self.iterations:
            ppo.stop()


def start(name: str = "r", **values) -> Session:
    return Session.start(resolved("CartPole-v1", VALUES, values), "CartPole-v1", name)


def weights(run: Run) -> dict[str, np.ndarray]:
    return load_checkpoint(list_checkpoints(run.checkpoints)[-1]).arrays["model"]


def rows(run: Run) -> list[dict[str, str]]:
    with run.csv_file.open() as file:
        return list(csv.DictReader(file))


def test_a_run_directory_holds_everything(tmp_path):
    session = start()
    session.train()
    report = session.report(session.evaluate())
    run = find_run("latest")
    assert run.path == tmp_path / "runs" / "r"
    assert resolved("CartPole-v1", read_config(run.config_file)) == session.ppo.config
    info = run.read_info()
    assert info["machine"]["versions"]["torch"] == metadata.version("torch")
    assert {"date", "command", "git", "operant_commit", "machine"} <= set(info)
    assert [int(row["iteration"]) for row in rows(run)] == [1, 2, 3, 4, 5, 6]
    assert list(rows(run)[0]) == list(METRICS)
    lines = [json.loads(line) for line in run.jsonl_file.read_text().splitlines()]
    assert [line["steps"] for line in lines] == [ROLLOUT * k for k in range(1, 7)]
    with MetricsReader(run.mmap_file) as reader:
        live = reader.read()
    assert (live.run_id, live.state(), live.fields) == ("r", "finished", (*METRICS, *HARDWARE))
    assert live.rows[:, 1].tolist() == [ROLLOUT * k for k in range(1, 7)]
    steps = [int(path.name) for path in list_checkpoints(run.checkpoints)]
    assert steps[-3:] == [ROLLOUT * k for k in (4, 5, 6)]  # keeps three, and the best
    assert len(steps) <= 4
    log = run.log_file.read_text()
    assert "started: CartPole-v1" in log
    assert f"finished at step {6 * ROLLOUT}" in log
    wanted = {"run_id", "steps", "seconds", "sps", "mean_return", "engine", "device", "solved"}
    assert wanted <= set(report)
    assert (report["steps"], report["engine"], report["solved"]) == (6 * ROLLOUT, "eager", False)
    assert json.loads(json.dumps(report)) == report
    found = summary(run)
    assert (found.env, found.state, found.steps) == ("CartPole-v1", "finished", 6 * ROLLOUT)


def test_a_stopped_run_resumes_to_the_bit():
    whole = start("whole")
    whole.train()
    part = start("part")
    part.train([StopAfter(2)])
    assert not part.finished
    assert summary(part.run).state == "interrupted"
    resumed = Session.resume(find_run("part"))
    assert resumed.resumed == 2 * ROLLOUT
    resumed.train()
    one, other = weights(whole.run), weights(resumed.run)
    assert all((one[name] == other[name]).all() for name in one)
    figures = [name for name in METRICS if name not in ("seconds", "sps") and "seconds" not in name]
    assert [[row[n] for n in figures] for row in rows(whole.run)] == [
        [row[n] for n in figures] for row in rows(resumed.run)
    ]


def test_a_run_whose_metrics_were_thinned_resumes_to_the_bit(monkeypatch):
    whole = start("whole")
    whole.train()
    monkeypatch.setattr(logs, "MOST_BYTES", 1200)  # about three rows
    part = start("part")
    part.train([StopAfter(4)])
    assert [int(row["iteration"]) for row in rows(part.run)] in ([1, 3, 4], [1, 4])
    monkeypatch.setattr(logs, "MOST_BYTES", 600)  # as if it came from before the bound
    resumed = Session.resume(part.run, checkpoint=str(3 * ROLLOUT))
    assert [int(row["iteration"]) for row in rows(part.run)][-1:] <= [3]
    monkeypatch.setattr(logs, "MOST_BYTES", 1 << 20)
    resumed.train()
    one, other = weights(whole.run), weights(resumed.run)
    assert all((one[name] == other[name]).all() for name in one)
    found = [int(row["iteration"]) for row in rows(resumed.run)]
    assert found == sorted(set(found))
    assert found[-3:] == [4, 5, 6]


def test_a_long_log_is_cut_when_its_run_is_resumed(monkeypatch):
    monkeypatch.setattr(module, "MOST_LOG_BYTES", 2000)
    session = start()
    session.train([StopAfter(1)])
    session.run.log_file.write_text("old\n" * 1000 + "the last\n")
    Session.resume(session.run).train([StopAfter(1)])
    text = session.run.log_file.read_text()
    assert len(text) < 2000
    assert "the last\n" in text
    assert "resumed at step" in text


def test_rows_after_the_checkpoint_are_not_doubled():
    session = start()
    session.train([StopAfter(4)])
    resumed = Session.resume(session.run, checkpoint=str(2 * ROLLOUT))
    resumed.train()
    assert [int(row["iteration"]) for row in rows(resumed.run)] == [1, 2, 3, 4, 5, 6]
    whole = start("whole")
    whole.train()
    one, other = weights(whole.run), weights(resumed.run)
    assert all((one[name] == other[name]).all() for name in one)


def test_a_finished_run_can_be_made_longer():
    start().train()
    longer = Session.resume(find_run("r"), changes={"run.total_steps": 8 * ROLLOUT})
    longer.train()
    assert longer.ppo.steps == 8 * ROLLOUT
    assert read_config(longer.run.config_file)["run.total_steps"] == 8 * ROLLOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [("env.num_envs", 3), ("policy.hidden", [3]), ("run.seed", 3), ("ppo.normalize_reward", True)],
)
def test_what_a_run_is_made_of_cannot_change(name, value):
    start().train([StopAfter(1)])
    with pytest.raises(ValueError, match=f"{name} cannot change"):
        Session.resume(find_run("r"), changes={name: value})


def test_what_stays_the_same_may_be_said_again():
    start().train([StopAfter(1)])
    changes = {"env.num_envs": 8.0, "env.id": "CartPole-v1", "policy.hidden": [8], "ppo.clip": 0.1}
    assert Session.resume(find_run("r"), changes=changes).ppo.config.ppo.clip == 0.1


def test_another_rollout_length_draws_new_numbers():
    session = start(**{"run.total_steps": 4 * ROLLOUT})
    session.train([StopAfter(2)])
    resumed = Session.resume(session.run, changes={"ppo.num_steps": 8})
    resumed.ppo.engine.collect(2, resumed.ppo.steps // 8)
    assert (resumed.ppo.engine._noise[0] != session.ppo.engine._noise).any()
    session.ppo.engine.collect(2, session.ppo.steps // 8)
    assert (resumed.ppo.engine._noise[0] == session.ppo.engine._noise[0]).all()


def test_a_branch_forgets_what_came_after():
    session = start(**{"run.keep": 9})
    session.train([StopAfter(5)])
    branch = Session.resume(
        session.run, checkpoint=str(2 * ROLLOUT), changes={"run.total_steps": 3 * ROLLOUT}
    )
    del branch  # killed at once: what it was told is on the disk already
    steps = [int(path.name) for path in list_checkpoints(session.run.checkpoints)]
    assert steps == [0, ROLLOUT, 2 * ROLLOUT]
    again = Session.resume(session.run)
    assert (again.resumed, again.ppo.config.run.total_steps) == (2 * ROLLOUT, 3 * ROLLOUT)
    again.train()
    assert [int(row["iteration"]) for row in rows(again.run)] == [1, 2, 3]


def test_a_start_that_fails_leaves_nothing(monkeypatch):
    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr("operant.training.recorder.save_checkpoint", fail)
    with pytest.raises(OSError, match="disk full"):
        start("broken")
    assert list_runs() == []
    monkeypatch.undo()


def test_a_last_save_that_fails_ends_the_session(monkeypatch):
    session = start(**{"run.checkpoint_seconds": 100.0})

    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr("operant.training.recorder.save_checkpoint", fail)
    with pytest.raises(OSError, match="disk full"):
        session.train([StopAfter(1)])
    assert summary(session.run).state == "failed"


def test_a_log_that_is_a_link_is_not_followed(tmp_path):
    session = start()
    session.run.log_file.unlink()
    target = tmp_path / "elsewhere"
    target.write_text("mine")
    session.run.log_file.symlink_to(target)
    with pytest.raises(OSError):
        session.run.log("x")
    assert target.read_text() == "mine"


def test_other_callbacks_may_add_figures():
    class Mine(Callback):
        def on_update(self, ppo, metrics):
            metrics["mine"] = 7.0

    session = start()
    session.train([Mine(), StopAfter(2)])
    assert list(rows(session.run)[0]) == list(METRICS)
    assert json.loads(session.run.jsonl_file.read_text().splitlines()[0])["mine"] == 7.0


def test_a_run_that_never_saved_starts_again():
    session = start()
    whole = start("whole")
    whole.train()
    run = session.run
    session.recorder.live.close()
    del session  # and with it the claim on the run
    for path in run.checkpoints.iterdir():
        path.rename(run.path / f"gone-{path.name}")
    again = Session.resume(run)
    assert again.resumed is None
    again.train()
    one, other = weights(whole.run), weights(again.run)
    assert all((one[name] == other[name]).all() for name in one)


def test_a_damaged_checkpoint_is_named_and_the_one_before_offered():
    session = start()
    session.train()
    newest = list_checkpoints(session.run.checkpoints)[-1]
    file = newest / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(data)
    offered = rf"model.safetensors.*--checkpoint {5 * ROLLOUT}"
    with pytest.raises(ValueError, match=offered):
        Session.resume(session.run)
    with pytest.raises(ValueError, match=offered):
        load_agent(session.run.path)
    assert Session.resume(session.run, checkpoint=str(5 * ROLLOUT)).resumed == 5 * ROLLOUT


def _rewrite(path: Path, change) -> None:
    """Change the facts of a checkpoint as an attacker would: with a manifest that agrees."""
    import hashlib

    facts = json.loads((path / "facts.json").read_text())
    change(facts)
    data = json.dumps(facts).encode()
    (path / "facts.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    entry = manifest["files"]["facts.json"]
    entry["size"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def _config(old: str, new: str):
    def change(facts):
        assert old in facts["config"]
        facts["config"] = facts["config"].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("config"), "no configuration"),
        (_config("hidden = [8]", "hidden = [999999999999]"), "hidden layer 0"),
        (_config("hidden = [8]", 'hidden = "wide"'), "list of integers"),
        (_config("hidden = [8]", "hidden = [["), "not a TOML file"),
        (_config("num_envs = 8", "num_envs = 536870912"), "too large"),
        (_config("num_envs = 8", "num_envs = 9"), "9"),
        (_config('id = "CartPole-v1"', 'id = "os.py:system"'), "not registered"),
        (_config("[run]", "[pickle]\nx = 1\n[run]"), "no section"),
        (lambda f: f.update(config={}), "no configuration"),
        (lambda f: f.update(iteration="many"), "iteration must be a whole number"),
        (lambda f: f.update(steps=None), "steps must be a whole number"),
        (lambda f: f.update(recent=[[1]]), "recent"),
        (lambda f: f.update(recent=[[10**400, 1]]), "recent"),
        (lambda f: f.update(optimizer_steps=True), "optimizer_steps"),
        (lambda f: f.update(optimizer_steps=-1), "optimizer_steps"),
        (lambda f: f.update(iteration=-5), "iteration"),
        (lambda f: f.update(steps=7), "steps is 7"),
        (lambda f: f.update(seconds=float("1e99")), "seconds"),
        (_config("num_steps = 16", "num_steps = 99_999_999"), "this machine has"),
    ],
)
def test_facts_that_lie_are_refused(change, message):
    session = start()
    session.train([StopAfter(1)])
    path = list_checkpoints(session.run.checkpoints)[-1]
    _rewrite(path, change)
    with pytest.raises(ValueError, match=message):
        Session.resume(session.run)


def test_arrays_of_another_shape_are_refused():
    from operant.runs.checkpoint import save_checkpoint

    session = start()
    session.train([StopAfter(1)])
    good = load_checkpoint(list_checkpoints(session.run.checkpoints)[-1])
    bad = {
        "model": ("actor.0.weight", np.zeros((8, 5), np.float32)),
        "optimizer": ("actor.0.weight.exp_avg", np.zeros(3, np.float32)),
        "environment": ("state.x", np.zeros(7, np.float32)),
        "engine": ("return_carry", np.zeros(7, np.float32)),
        "random": ("torch", np.zeros(3, np.uint8)),
    }
    for group, (name, array) in bad.items():
        arrays = {**good.arrays, group: {**good.arrays[group], name: array}}
        save_checkpoint(session.run.checkpoints, 10**6, arrays, good.facts)
        with pytest.raises(ValueError, match=f"{group}.safetensors"):
            Session.resume(session.run)
        del arrays[group]
        save_checkpoint(session.run.checkpoints, 10**6, arrays, good.facts)
        with pytest.raises(ValueError):
            Session.resume(session.run)


def test_the_nan_guard_leaves_the_last_good_checkpoint():
    class Spoil(Callback):
        def on_rollout(self, ppo, buffer):
            if ppo.iteration == 3:
                buffer.reward[2, 5] = float("inf")

    session = start()
    with pytest.raises(NonFiniteError):
        session.train([Spoil()])
    assert summary(session.run).state == "failed"
    assert "NaN guard" in session.run.log_file.read_text()
    assert Session.resume(session.run).resumed == 3 * ROLLOUT


def test_an_error_in_a_callback_is_logged():
    class Fail(Callback):
        def on_update(self, ppo, metrics):
            raise KeyError("mine")

    session = start()
    with pytest.raises(KeyError):
        session.train([Fail()])
    assert "failed: KeyError" in session.run.log_file.read_text()
    assert summary(session.run).state == "failed"


def test_parameters_of_the_environment_are_kept():
    params = {"gravity": 1.6, "kinematics_integrator": "semi-implicit euler"}
    session = start(**{"env.params": params})
    session.train([StopAfter(1)])
    assert Session.resume(session.run).ppo.config.env.params == params


def test_the_best_checkpoint_is_kept():
    session = start()

    class Score(Callback):
        """Makes the second iteration look best."""

        def on_update(self, ppo, metrics):
            ppo.recent.clear()
            ppo.recent.append((9.0 if ppo.iteration == 2 else 1.0, 5))

    session.train([Score()])
    steps = [int(path.name) for path in list_checkpoints(session.run.checkpoints)]
    assert steps == [ROLLOUT * k for k in (2, 4, 5, 6)]
    agent, config, _ = load_agent(session.run.path, which="best")
    assert config.env.id == "CartPole-v1"
    assert agent.act(np.zeros(4, np.float32)).shape == ()


def test_evaluation_counts_each_environment_alike():
    session = start()
    agent, env = session.ppo.agent, session.ppo.env.rules.env
    found = evaluate(agent, env, session.ppo.config.env, episodes=37, seed=4)
    again = evaluate(agent, env, session.ppo.config.env, episodes=37, seed=4)
    other = evaluate(agent, env, session.ppo.config.env, episodes=37, seed=5)
    assert found.returns.shape == found.lengths.shape == (37,)
    assert (found.returns == again.returns).all()
    assert not (found.returns == other.returns).all()
    assert (found.returns == found.lengths).all()  # CartPole: one for each step
    drawn = evaluate(agent, env, session.ppo.config.env, episodes=5, deterministic=False, seed=4)
    assert len(drawn.returns) == 5
    with pytest.raises(ValueError, match="at least 1"):
        evaluate(agent, env, session.ppo.config.env, episodes=0)


def test_a_run_that_is_being_trained_is_left_alone():
    session = start()
    with pytest.raises(ValueError, match="being trained by another process"):
        Session.resume(session.run)
    session.train([StopAfter(1)])
    assert Session.resume(session.run).resumed == ROLLOUT


def test_without_a_time_limit_there_is_no_evaluation():
    config = resolved("endless.py:Endless", VALUES)
    session = Session.start(config, Endless, "endless")
    session.train([StopAfter(1)])
    assert session.ppo.config.env.id == "endless.py:Endless"
    assert session.evaluate() is None
    report = session.report(None)
    assert (report["mean_return"], report["solved"]) == (None, None)
    with pytest.raises(ValueError, match="has no time limit"):
        evaluate(session.ppo.agent, Endless, config.env)
    limited = config.replaced({"env.max_episode_steps": 9}).env
    assert evaluate(session.ppo.agent, Endless, limited, episodes=3).mean_length == 9


def test_tensorboard_and_wandb_are_written_when_asked_for(monkeypatch):
    pytest.importorskip("tensorboard")
    written = []

    class Wandb:
        problem = "W&B cannot be reached"

        def __init__(self, folder, run_id, config):
            written.append((folder, run_id, config["run"]["wandb"]))

        def write(self, row):
            written.append(row["iteration"])

        def close(self):
            written.append("closed")

    monkeypatch.setattr("operant.runs.trackers.WandbLog", Wandb)
    session = start(**{"run.tensorboard": True, "run.wandb": True})
    session.train([StopAfter(2)])
    assert list((session.run.path / "tensorboard").glob("events.out.tfevents.*"))
    assert written == [(session.run.path, "r", True), 1, 2, "closed"]
    assert session.notes == ("W&B cannot be reached",)
    assert "W&B cannot be reached" in session.run.log_file.read_text()
    resumed = Session.resume(session.run, changes={"run.wandb": True})
    assert resumed.notes == ("W&B cannot be reached",)
    resumed.train([StopAfter(3)])
    resumed = Session.resume(session.run)
    (note,) = resumed.notes
    assert "resume it with --set run.wandb=true" in note
    assert resumed.ppo.config.run.tensorboard
    assert not resumed.ppo.config.run.wandb


# Names --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["latest", "a b", "../x", "", ".hidden", "-v", "x" * 101, "a/b"])
def test_names_that_cannot_be(name):
    with pytest.raises(ValueError, match="a run's name"):
        check_run_id(name)


def test_a_name_is_given_once():
    start("twice")
    with pytest.raises(ValueError, match=r"already.*--resume twice"):
        start("twice")


def test_new_names_are_free(monkeypatch):
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    first = new_run_id("path/to/my_env.py:Lander")
    assert first == "lander-20260101-000000"
    Run.create(first)
    assert new_run_id("x.py:Lander") == "lander-20260101-000000-2"


def test_runs_are_found_by_name_path_and_age(tmp_path):
    with pytest.raises(ValueError, match="no runs yet"):
        find_run("latest")
    for k, name in enumerate(("old", "new", "middle")):
        run = Run.create(name)
        run.write_info({})
        os.utime(run.info_file, (0, [1, 3, 2][k]))
    assert [run.id for run in list_runs()] == ["old", "middle", "new"]
    assert find_run("latest").id == "new"
    with pytest.raises(ValueError, match="did you mean middle"):
        find_run("midle")
    moved = tmp_path / "elsewhere"
    (tmp_path / "runs" / "old").rename(moved)
    (moved / "config.toml").write_text("")
    assert find_run(str(moved)).path == moved
    find_run("new").remove()
    assert [run.id for run in list_runs()] == ["middle"]


def test_a_summary_survives_anything(tmp_path):
    run = Run.create("odd")
    for name in ("config.toml", "info.json", "metrics.csv", "metrics.mmap"):
        (run.path / name).write_bytes(os.urandom(300))
    found = summary(run)
    assert found.run_id == "odd"
    assert found.to_dict()["steps"] is None
    run.config_file.write_text('env = 3\n[run]\nseed = "x"\ntotal_steps = true\n')
    run.info_file.write_text("[1]")
    assert (summary(run).seed, summary(run).total_steps, summary(run).started) == (None,) * 3
