"""The shipped configurations learn. In full, five seeds each: `benchmarks/solve.py`."""

from __future__ import annotations

import pytest

from operant.models import PPO
from operant.training.evaluate import evaluate


@pytest.mark.parametrize(
    ("env", "steps", "wanted"),
    [
        ("CartPole-v1", None, 475.0),  # all of it
        ("Acrobot-v1", 100_000, -150.0),  # never there: -500
        ("MountainCarContinuous-v0", 150_000, 80.0),  # standing still: 0
    ],
)
def test_a_shipped_configuration_learns(env, steps, wanted):
    ppo = PPO(env, seed=1)
    ppo.learn(steps)
    found = evaluate(ppo.agent, ppo.env.rules.env, ppo.config.env, episodes=50, seed=7)
    assert found.mean_return >= wanted
