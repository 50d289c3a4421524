"""Batches to play on, and their time limits."""

from __future__ import annotations

import pytest
import torch

import operant
from operant.models.action_distributions import distribution_for
from operant.ppo.config import Config
from operant.training import evaluate as module
from operant.training import export
from operant.training.agent import Agent
from operant.training.config import EnvConfig
from operant.training.evaluate import evaluate, evaluation_env
from operant.training.network import new_network

from ..environments import Endless


class Limited(Endless):
    max_episode_steps = 7


def agent() -> Agent:
    spaces = Endless.observation_space, Endless.action_space
    policy = new_network(Config().policy, *spaces)
    return Agent(policy, distribution_for(spaces[1], False), *spaces, torch.device("cpu"))


@pytest.mark.parametrize(
    ("env", "trained_with", "asked_for", "limit"),
    [
        (Endless, 0, None, None),
        (Endless, 9, None, 9),
        (Endless, 9, 5, 5),
        (Limited, 0, None, 7),
        (Limited, 9, None, 7),
        (Limited, 0, 50, 50),
        ("CartPole-v1", 20, None, 500),
    ],
)
def test_the_limit_and_one_batch_only(monkeypatch, env, trained_with, asked_for, limit):
    made = []
    monkeypatch.setattr(module, "VecEnv", lambda *a, **k: made.append(operant.VecEnv(*a, **k)))
    evaluation_env(
        env, EnvConfig(backend="reference", max_episode_steps=trained_with), 2, asked_for
    )
    (batch,) = made
    assert batch.max_episode_steps == limit


def test_only_an_evaluation_needs_an_end():
    config = EnvConfig(id="endless", backend="reference")
    with pytest.raises(ValueError, match=r"endless has no time limit.*--max-episode-steps N"):
        evaluate(agent(), Endless, config)
    found = evaluate(agent(), Endless, config, episodes=3, max_episode_steps=6)
    assert found.lengths.tolist() == [6, 6, 6]


def test_nothing_is_exported_before_the_environment_was_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(export, "export_onnx", lambda *a, **k: pytest.fail("too early"))
    config = Config().replaced({"env.backend": "reference", "env.params": {"wind": 1.0}})
    with pytest.raises((ValueError, TypeError), match="wind"):
        export.export_agent(agent(), Endless, config, tmp_path / "a.onnx")
