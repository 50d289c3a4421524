"""`examples/ppo.py`, with fewer steps."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

FILE = Path(__file__).parents[1] / "examples" / "ppo.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("ppo_example", FILE)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ppo_example", module)  # dataclasses look there
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)


def test_it_learns_and_the_seed_decides(example: Any) -> None:
    torch.manual_seed(2)  # the weights that training with this seed begins with
    untrained = example.policy_for(*spaces("CartPole-v1"))
    assert example.evaluate(untrained, "CartPole-v1") < 150
    policy = example.train(example.Options(steps=50_000, seed=2))
    assert example.evaluate(policy, "CartPole-v1") > 300
    again = example.train(example.Options(steps=4096))
    for other, same in ((1, True), (2, False)):
        found = example.train(example.Options(steps=4096, seed=other))
        assert torch.equal(found.actor_head.weight, again.actor_head.weight) == same


def spaces(env_id: str) -> tuple[Any, Any]:
    import operant

    env = operant.make(env_id, backend="reference")
    return env.single_observation_space, env.single_action_space


def test_a_truncated_episode_counts_its_final_value(example: Any) -> None:
    """Pendulum never terminates; 200 steps cut every episode of this rollout once."""
    seen: list[Any] = []
    update = example.update
    example.update = lambda policy, optimizer, buffer, options: (
        seen.append((buffer.truncated.clone(), buffer.final_value.clone())),
        update(policy, optimizer, buffer, options),
    )
    options = example.Options(env="Pendulum-v1", num_envs=4, num_steps=201, steps=804)
    policy = example.train(options)
    ((truncated, final_value),) = seen
    assert truncated.sum() == 4
    assert (final_value[truncated] != 0).all()
    assert (final_value[~truncated] == 0).all()
    assert example.evaluate(policy, "Pendulum-v1", episodes=3) < 0


def test_the_command() -> None:
    command = [sys.executable, str(FILE), "--steps", "8192", "--num-envs", "16"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "step    5,120  return" in done.stdout
    assert "mean return of 100 episodes: " in done.stdout


def test_it_is_short() -> None:
    """Somebody reads it in one sitting."""
    assert len(FILE.read_text().splitlines()) <= 150
