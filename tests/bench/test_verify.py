"""Does the winner learn? Who is trained, in which order, and what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import operant
from operant.bench import verify as verifying
from operant.bench.grid import Cell
from operant.bench.tune import Measured
from operant.bench.verify import Criterion, record, verify
from operant.envs.classic.cartpole import CartPole
from operant.envs.classic.pendulum import Pendulum
from operant.ppo.config_file import resolved
from operant.training.guard import NonFiniteError

from .generators import drained

BASE = resolved("CartPole-v1", {"env.num_envs": 8, "ppo.num_steps": 16, "policy.hidden": [8]})


def candidate(num_envs: int, is_base: bool = False) -> Measured:
    config = BASE.replaced({"env.num_envs": num_envs})
    return Measured(Cell({"num_envs": num_envs}, config, "", is_base), 0.1)


class World:
    """Stands for training: what each size returns, by seed; notes who was trained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, returns: dict[int, list[float]]) -> None:
        self.trained: list[tuple[int, int, int]] = []
        self.returns = returns
        monkeypatch.setattr(verifying, "_open", self.open)
        monkeypatch.setattr(verifying, "_learn", self.learn)
        monkeypatch.setattr(verifying, "_return_of", self.return_of)

    def open(self, env: Any, config: Any) -> Any:
        closing = SimpleNamespace(close=lambda: None)
        return SimpleNamespace(config=config, seconds=2.0, env=closing, learned=False)

    def learn(self, ppo: Any, text: str) -> Any:
        yield text
        ppo.learned = True
        config = ppo.config
        self.trained.append((config.env.num_envs, config.run.seed, config.run.total_steps))
        if self.returns[config.env.num_envs] == ["nan"]:
            raise NonFiniteError("loss", 3, None, "it is nan")

    def return_of(self, ppo: Any) -> float:
        seeds = self.returns[ppo.config.env.num_envs]
        return seeds[ppo.config.run.seed - 5] if ppo.learned else -100.0


def run(env: Any, sizes: list[int], base: int = 8) -> Any:
    candidates = [candidate(size, size == base) for size in sizes]
    return drained(verify(env, BASE, candidates, 1000, [5, 6]))


def test_a_solved_environment_is_the_criterion(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {64: [480.0, 474.0], 32: [475.0, 500.0], 16: [500.0, 500.0]})
    shown, found = run(CartPole, [64, 32, 16])
    assert world.trained == [(64, 5, 1000), (64, 6, 1000), (32, 5, 1000), (32, 6, 1000)]
    assert shown[0] == "verifying num_envs 64, seed 5"
    assert [trial.converged for trial in found.trials] == [False, True]
    assert found.chosen is found.trials[1]
    assert found.chosen.config.run.total_steps == 1000
    assert found.chosen.config.run.seed == BASE.run.seed  # not the last one tried
    assert found.chosen.seconds == 4.0
    assert record(found)["needed"] == "return 475 with every seed"


def test_one_seed_that_fails_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {64: [10.0, 500.0], 32: [500.0, 500.0]})
    run(CartPole, [64, 32])
    assert world.trained[:2] == [(64, 5, 1000), (32, 5, 1000)]


def test_threads_change_nothing_that_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {64: [10.0, 10.0], 32: [500.0, 500.0]})
    config = BASE.replaced({"env.num_envs": 64, "run.threads": 7, "env.workers": 3})
    twin = Measured(Cell({"num_envs": 64, "num_workers": 7}, config), 0.1)
    candidates = [candidate(64), twin, candidate(32)]
    _, found = drained(verify(CartPole, BASE, candidates, 1000, [5, 6]))
    assert [size for size, _, _ in world.trained] == [64, 32, 32]
    assert [trial.returns for trial in found.trials] == [[10.0], [10.0], [500.0, 500.0]]
    assert [trial.converged for trial in found.trials] == [False, False, True]


def test_nothing_slower_than_the_base_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {64: [1.0, 1.0], 8: [2.0, 2.0], 16: [500.0, 500.0]})
    _, found = run(CartPole, [64, 8, 16])
    assert {size for size, _, _ in world.trained} == {64, 8}
    assert found.chosen is None


def test_without_a_threshold_the_base_is_the_criterion(monkeypatch: pytest.MonkeyPatch) -> None:
    # From -100, untrained, the base comes to 0 on average: 90 % of that way is -10.
    world = World(monkeypatch, {8: [-10.0, 10.0], 64: [-12.0, -9.0], 32: [-25.0, 6.0]})
    _, found = run(Pendulum, [64, 32])
    assert world.trained[:2] == [(8, 5, 1000), (8, 6, 1000)]
    assert found.criterion == Criterion(None, -100.0, 0.0)
    first, second = record(found)["trials"]
    assert (first["converged"], first["progress"]) == (False, 0.895)
    assert (second["converged"], second["progress"]) == (True, 0.905)
    assert record(found)["base_return"] == 0.0


def test_a_base_that_learns_nothing_must_be_matched() -> None:
    criterion = Criterion(None, untrained=-5.0, base=-6.0)
    assert criterion.progress([0.0]) is None
    assert criterion.passed([-6.0])
    assert not criterion.passed([-6.5])


def test_no_episode_is_no_success() -> None:
    assert not Criterion(-1e9).passed([float("nan")])
    assert not Criterion(None, 0.0, 1.0).passed([float("nan"), 5.0])


def test_a_number_that_is_not_finite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    World(monkeypatch, {64: ["nan"], 32: [500.0, 500.0]})  # type: ignore[list-item]
    _, found = run(CartPole, [64, 32])
    first, second = record(found)["trials"]
    assert (first["converged"], first["returns"]) == (False, [])
    assert "the loss is not finite" in first["problem"]
    assert second["converged"] is True


def test_real_training_is_one_run_however_often_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    config = BASE.replaced({"env.backend": "reference", "run.total_steps": 1024, "run.threads": 1})
    config = config.replaced({"run.eval_episodes": 4})
    steady, paused = (verifying._open(CartPole, config) for _ in range(2))
    monkeypatch.setattr(verifying, "_SHOW_EVERY_S", 1e9)
    once, _ = drained(verifying._learn(steady, "training"))
    monkeypatch.setattr(verifying, "_SHOW_EVERY_S", 0.0)
    often, _ = drained(verifying._learn(paused, "training"))
    assert once == ["training: 0%"]
    assert [text.partition(",")[0] for text in often[:2]] == ["training: 0%", "training: 12%"]
    assert len(often) == 8
    assert steady.steps == paused.steps == 1024
    assert verifying._return_of(steady) == verifying._return_of(paused) > 0
    for one, other in zip(steady.policy.parameters(), paused.policy.parameters(), strict=True):
        assert one.equal(other)


def test_without_a_time_limit_the_last_episodes_count() -> None:
    class Endless(CartPole):
        max_episode_steps = None

    batch = operant.make(Endless, backend="reference")
    ppo = SimpleNamespace(config=BASE, env=batch, mean_return=7.5)
    assert verifying._return_of(ppo) == 7.5  # type: ignore[arg-type]
