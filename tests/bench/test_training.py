"""Training in rounds: how much is done, and where its time went."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operant.bench.training import PARTS, Evaluations, TimedTrainer
from operant.envs.classic.cartpole import CartPole
from operant.ppo.config_file import resolved

SMALL = {
    "env.num_envs": 8,
    "env.backend": "reference",
    "ppo.num_steps": 16,
    "policy.hidden": [8],
    "run.threads": 1,
    "run.total_steps": 2048,
}


def opened(evaluations: Evaluations | None = None, **options: Any) -> TimedTrainer:
    return TimedTrainer(CartPole, resolved("CartPole-v1", SMALL, options), evaluations)


def test_parts_of_a_round_add_up() -> None:
    trainer = opened()
    done = trainer.train(3)
    assert done.steps == trainer.ppo.steps == 3 * 8 * 16
    assert tuple(done.parts) == PARTS
    assert min(done.parts.values()) > 0
    assert sum(done.parts.values()) == pytest.approx(done.seconds)
    assert done.sps == done.steps / done.seconds
    assert trainer.env_split == "measured"
    trainer.close()
    assert trainer.ppo.env.closed


def test_environments_never_take_more_than_the_rollout() -> None:
    trainer = opened()
    trainer._clock = SimpleNamespace(take=lambda: 1e9, close=lambda: None)
    done = trainer.train(1)
    assert done.parts["policy"] == 0.0
    assert 0 < done.parts["env"] < done.seconds


def test_evaluations_come_after_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []

    def played(agent: Any, env: Any, config: Any, *, episodes: int, seed: int) -> None:
        seen.append((trainer.ppo.steps, episodes, seed))

    monkeypatch.setattr("operant.training.evaluate.evaluate", played)
    trainer = opened(Evaluations(every_steps=200, episodes=7), **{"run.seed": 40})
    assert (trainer.rollout, trainer.unit) == (128, 2)
    done = trainer.train(4)
    assert seen == [(256, 7, 41), (512, 7, 41)]
    assert done.steps == 512  # of training alone
    assert set(done.parts) == {*PARTS, "eval"}
    assert sum(done.parts.values()) == pytest.approx(done.seconds)


def test_a_real_evaluation_has_a_share() -> None:
    trainer = opened(Evaluations(128, 3))
    assert trainer.train(1).parts["eval"] > 0
    assert "eval" not in opened().train(1).parts


def test_schedules_are_those_of_a_run() -> None:
    rates: list[float] = []
    trainer = opened()
    update = trainer.ppo.engine.update

    def noted(iteration: int, rate: float, clip: float) -> dict[str, float]:
        rates.append(rate)
        return update(iteration, rate, clip)

    trainer.ppo.engine.update = noted  # type: ignore[method-assign]
    trainer.train(8)
    assert rates[4] == pytest.approx(4e-3 * (1 - 4 * 128 / 2048))
    trainer.train(8)
    trainer.train(1)  # beyond the end: at its rate
    assert rates[-1] == pytest.approx(4e-3 * (1 - 2048 / 2176))
    assert len(rates) == 17


def test_rounds_are_whole_units(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = opened(Evaluations(every_steps=256, episodes=3))
    done: list[int] = []

    def train(iterations: int) -> Any:
        done.append(iterations)
        return SimpleNamespace(seconds=3.0)

    monkeypatch.setattr(trainer, "train", train)
    assert trainer.warm_up() == 3.0
    assert done == [1, 2]
    assert trainer.iterations_for(7.0, 3.0) == 6
    assert trainer.iterations_for(0.1, 3.0) == 2
    trainer.unit = 1
    assert trainer.warm_up() == 1.5  # of two
    assert trainer.iterations_for(7.0, 1.5) == 5
