"""Trainers by name and path, and copies of them."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import operant
from operant import PPO
from operant.ppo.session import Session
from operant.runs.checkpoint import CheckpointError
from operant.vector.native import load

SMALL = {"num_envs": 4, "num_steps": 8, "hidden": (8,), "backend": "reference", "threads": 1}
ROLLOUT = 32


def small(env: Any = "CartPole-v1", **options: Any) -> PPO:
    return PPO(env, **{**SMALL, **options})


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


class Own(nn.Module):
    """A policy of a user's, at the top of a module as pickle needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor) -> Any:
        return self.head(obs), self.critic(obs).squeeze(-1)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two finished runs, the later one last, in a home and a working directory of their own."""
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for seed, name in enumerate(("first", "second")):
        session = Session.start(small(seed=seed, total_steps=ROLLOUT).config, "CartPole-v1", name)
        session.train()
        os.utime(session.run.info_file, (seed, seed))
    return ["first", "second"]


# By name ----------------------------------------------------------------------------------------
def test_runs_are_found_by_name_as_on_the_command_line(runs: list[str], tmp_path: Path) -> None:
    assert PPO.load("first").config.run.seed == 0
    assert PPO.load("second").config.run.seed == 1
    assert PPO.load("latest").config.run.seed == 1
    assert PPO.load(tmp_path / "home" / "runs" / "first").config.run.seed == 0
    assert PPO.load("latest").steps == ROLLOUT


def test_what_is_saved_here_comes_before_a_run_of_that_name(runs: list[str]) -> None:
    small(seed=7).save("first")
    assert PPO.load("first").config.run.seed == 7
    Path("second").mkdir()  # a folder of something else
    assert PPO.load("second").config.run.seed == 1


def test_latest_is_the_last_run_and_no_folder(runs: list[str]) -> None:
    ppo = small(seed=7)
    with pytest.raises(ValueError, match=r"'latest' is the last run to load\(\); save to"):
        ppo.save("latest")
    ppo.save("./latest")
    assert PPO.load("latest").config.run.seed == 1
    assert PPO.load("./latest").config.run.seed == PPO.load(Path("latest")).config.run.seed == 7


def test_a_name_of_nothing_brings_the_nearest_run(runs: list[str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        PPO.load("secnd")
    text = "there is no folder 'secnd' here, and there is no run 'secnd'; did you mean second?"
    assert str(caught.value) == text
    with pytest.raises(CheckpointError, match="no such folder"):
        PPO.load("some/path")


@pytest.mark.parametrize("name", ["agent.zip", "models/agent.PT", "agent.pkl"])
def test_a_name_for_a_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(ValueError) as caught:
        small().save(path)
    assert f"writes a folder, not a {path.suffix} file: save(" in str(caught.value)
    assert repr(str(path.with_suffix(""))) in str(caught.value)
    assert not list(tmp_path.iterdir())
    small().save(tmp_path / "agent-v1.2")  # a point makes no file


def test_a_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "agent.zip").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        PPO.load(tmp_path / "agent.zip")


# Copies -----------------------------------------------------------------------------------------
WAYS = [lambda ppo: pickle.loads(pickle.dumps(ppo)), copy.deepcopy, copy.copy]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [
        {"normalize_obs": True, "normalize_reward": True},
        {"policy": Own(), "engine": "eager"},
        {"backend": "cpu"},
    ],
    ids=["reference", "own policy", "fused"],
)
def test_a_copy_goes_on_to_the_bit_and_alone(way: Any, options: dict[str, Any]) -> None:
    given = {**SMALL, **options}
    if "policy" in options:
        del given["hidden"]
        given["policy"] = copy.deepcopy(options["policy"])
    ppo = PPO("CartPole-v1", **given)
    ppo.learn(2 * ROLLOUT)
    twin = way(ppo)
    assert (twin.steps, twin.config, twin.engine.name) == (64, ppo.config, ppo.engine.name)
    assert twin.policy is not ppo.policy
    assert twin.env is not ppo.env
    before = weights(twin)
    ppo.learn(4 * ROLLOUT)
    assert torch.equal(weights(twin), before)
    twin.learn(4 * ROLLOUT)
    assert torch.equal(weights(twin), weights(ppo))
    obs = np.zeros((9, 4), np.float32)
    samples = [one.predict(obs, deterministic=False).tolist() for one in (ppo, twin)]
    assert samples[0] == samples[1]


def test_a_trainer_of_a_batch_and_of_an_unregistered_class(build_library: Any) -> None:
    game = load(build_library("examples/native/snake.c"))
    batch = operant.make(game, 4, autoreset_mode="SameStep")
    twin = pickle.loads(pickle.dumps(PPO(batch, num_steps=8, hidden=(8,), threads=1)))
    assert twin.env.rules.env is game
    assert twin.learn(ROLLOUT).steps == ROLLOUT
