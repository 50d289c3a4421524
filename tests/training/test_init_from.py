"""Starting from the weights of another run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete

import operant
from operant.envs.classic.cartpole import CartPole
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import CheckpointError, list_checkpoints, load_checkpoint
from operant.runs.directory import Run, find_run
from operant.runs.summary import summary
from operant.toolchain.files import discard
from operant.training.init_from import Origin

VALUES = {
    "env.num_envs": 8,
    "env.backend": "reference",
    "ppo.num_steps": 16,
    "ppo.epochs": 1,
    "ppo.minibatches": 2,
    "policy.hidden": [8],
    "policy.normalize_obs": True,
    "run.total_steps": 256,
    "run.threads": 1,
}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


@pytest.fixture
def base() -> Origin:
    """A run called `base` that trained 256 steps of CartPole."""
    session = Session.start(resolved("CartPole-v1", VALUES), "CartPole-v1", "base")
    session.train()
    return Origin.read(list_checkpoints(session.run.checkpoints)[-1], "base")


def start(name: str, base: Origin, env="CartPole-v1", **values) -> Session:
    env_id = env if isinstance(env, str) else env.__name__
    small = {key: value for key, value in VALUES.items() if not key.startswith("policy.")}
    config = resolved(env_id, base.networks, small, values)
    return Session.start(config, env, name, init_from=base)


def model(run: Run, which: int = -1) -> dict[str, np.ndarray]:
    return load_checkpoint(list_checkpoints(run.checkpoints)[which]).arrays["model"]


def test_weights_and_normaliser_are_taken_over_and_nothing_else(base):
    session = start("next", base, **{"run.seed": 5})
    theirs, ours = base.checkpoint.arrays["model"], model(session.run, 0)
    assert theirs.keys() == ours.keys()
    assert theirs["obs_normalizer.count"] > 0
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    assert session.ppo.config.policy == base.config.policy
    assert (session.ppo.steps, session.ppo.optimizer.count, session.ppo.episodes) == (0, 0, 0)
    session.train()
    assert any((model(session.run)[name] != theirs[name]).any() for name in theirs)


def test_the_files_say_where_it_came_from_also_after_a_resume(base):
    start("next", base).train()
    run = find_run("next")
    for _ in range(2):
        info = json.loads(run.info_file.read_text())["init_from"]
        assert info == {"run": "base", "step": 256, "path": str(base.checkpoint.path)}
        Session.resume(run, changes={"run.total_steps": 384}).train()
    assert "weights of base at step 256" in run.log_file.read_text()
    assert (summary(run).init_from, summary(find_run("base")).init_from) == ("base", None)


@pytest.mark.parametrize("forged", [7, {"run": 1, "step": 2, "path": "x"}, {"run": "x"}, []])
def test_a_forged_origin_is_nobodys(base, forged):
    run = find_run("base")
    run.write_info(run.read_info() | {"init_from": forged})
    assert run.origin() is None
    assert summary(run).init_from is None


def test_a_return_normaliser_is_taken_where_both_have_one(base):
    fresh = start("fresh", base, **{"ppo.normalize_reward": True})
    assert int(model(fresh.run, 0)["return_normalizer.count"]) == 0
    fresh.train()
    origin = Origin.read(list_checkpoints(fresh.run.checkpoints)[-1], "fresh")
    count = origin.checkpoint.arrays["model"]["return_normalizer.count"]
    assert count > 0
    again = start("again", origin, **{"ppo.normalize_reward": True})
    assert model(again.run, 0)["return_normalizer.count"] == count
    assert "return_normalizer.count" not in model(start("without", origin).run, 0)


class Pair(CartPole):
    """CartPole with two switches of one action each: its head has as many logits."""

    action_space = MultiDiscrete([1, 1])

    def step(state, action, params):
        return CartPole.step(state, action[0], params)


@pytest.mark.parametrize(
    ("env", "values", "message"),
    [
        ("Pendulum-v1", {}, r"observations differ: base was trained on CartPole-v1 with Box\(\[4"),
        ("CartPole-v1", {"policy.hidden": [16]}, r"base has policy.hidden = \[8\], this run \[16"),
        ("CartPole-v1", {"policy.normalize_obs": False}, "leave policy.normalize_obs out"),
        ("CartPole-v1", {"policy.activation": "relu"}, "policy.activation = tanh"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_leaves_nothing(base, env, values, message):
    with pytest.raises(ValueError, match=message):
        start("wrong", base, env, **values)
    with pytest.raises(ValueError, match="no run 'wrong'"):
        find_run("wrong")


def test_actions_of_another_kind_and_the_same_size_do_not_fit(base):
    with pytest.raises(ValueError, match=r"the actions differ: .*Discrete\(2\), Pair has Multi"):
        start("wrong", base, Pair)


def test_sizes_are_compared_where_the_environment_is_unknown(base):
    facts = dict(base.checkpoint.facts)
    facts["config"] = facts["config"].replace('id = "CartPole-v1"', 'id = "mine.py:Mine"')
    checkpoint = type(base.checkpoint)(
        base.checkpoint.path, base.checkpoint.step, base.checkpoint.arrays, facts
    )
    stranger = Origin("stranger", checkpoint, base.config.replaced({"env.id": "mine.py:Mine"}))
    with pytest.raises(ValueError, match=r"stranger \(mine.py:Mine\) does not fit Pendulum-v1"):
        start("wrong", stranger, "Pendulum-v1")
    start("right", stranger)


def test_weights_that_are_not_finite_are_refused(base):
    base.checkpoint.arrays["model"]["actor.0.bias"][0] = np.nan
    with pytest.raises(CheckpointError, match="not finite"):
        start("nan", base)


def test_damage_is_named(base):
    file = base.checkpoint.path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        Origin.read(base.checkpoint.path)


def test_a_run_that_never_saved_does_not_start_from_other_weights(base):
    session = start("next", base)
    session._lock.close()
    discard(session.run.checkpoints)
    with pytest.raises(ValueError, match="start it again with --init-from"):
        Session.resume(find_run("next"))


def test_a_path_is_a_name_too(base):
    assert Origin.read(base.checkpoint.path).name == str(base.checkpoint.path)
    assert isinstance(base.checkpoint.path, Path)
    assert issubclass(Pair, operant.Env)
