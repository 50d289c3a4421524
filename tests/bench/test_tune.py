"""Tuning: how a budget is spent, and who wins. No trainer here is a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operant.bench import tune
from operant.bench.grid import Cell
from operant.bench.training import Round
from operant.bench.tune import Measured, measure, planned, ranked, record
from operant.training.guard import NonFiniteError

from .generators import drained

STEPS = 100


class FakeTrainer:
    """An iteration of 100 steps takes as long as `speeds` say, one after the other."""

    def __init__(self, name: str, speeds: list[float], order: list[str], once: float) -> None:
        self.name, self.speeds, self.order, self.once = name, speeds, order, once

    def warm_up(self) -> float:
        return self.once

    def iterations_for(self, seconds: float, once: float) -> int:
        return max(1, round(seconds / once))

    def train(self, iterations: int) -> Round:
        self.order.append(self.name)
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        steps = STEPS * iterations
        return Round(steps, steps / speed, {})

    def close(self) -> None:
        self.order.append(f"close {self.name}")


Measure = Callable[..., tuple[list[str], list[Measured], list[str]]]


def run(
    speeds: dict[str, Any], budget: float, spread: float = 0.1, once: float = 0.1
) -> tuple[list[str], list[Measured], list[str]]:
    """What was shown, what was found and in which order trainers worked."""
    order: list[str] = []
    grid = [Cell({"name": name}, name) for name in speeds]  # type: ignore[arg-type]

    def opened(name: str) -> FakeTrainer:
        if isinstance(speeds[name], Exception):
            raise speeds[name]
        return FakeTrainer(name, list(speeds[name]), order, once)

    shown, everyone = drained(measure(grid, budget, spread, opened))
    return shown, everyone, order


def test_a_budget_is_split() -> None:
    # Two cells: three quarters of 8 s are 6 s, in five rounds of each: 0.6 s a round.
    assert planned(8.0, [0.1, 0.1]) == tune.Plan(pytest.approx(0.6), 5)
    assert planned(1000.0, [0.1, 0.1]).round_s == 1.0  # no longer than a second, but more rounds
    assert planned(40.0, [0.5, 0.5]) == tune.Plan(1.0, 15)
    assert planned(1000.0, [0.1]).rounds == tune.MOST_ROUNDS
    # Rounds are whole iterations: of 2 s each, three of both cells take 12 s.
    assert planned(16.0, [2.0, 2.0]).rounds == 3


def test_a_budget_that_is_too_small_says_what_would_do() -> None:
    with pytest.raises(ValueError, match=r"--budget 15\.9s is too small for 2 cells") as error:
        planned(15.9, [2.0, 2.0])
    assert "it takes 16s, or a smaller grid" in str(error.value)
    planned(16.0, [2.0, 2.0])
    started: list[str] = []
    grid = [Cell({"name": k}, k) for k in range(10)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it takes 2s"):
        drained(measure(grid, 1.0, 0.1, started.append))  # type: ignore[arg-type]
    assert started == []  # nothing is opened for a budget that cannot do


def test_cells_take_turns_and_are_closed() -> None:
    shown, everyone, order = run({"a": [1000.0], "b": [2000.0]}, budget=8.0)
    assert order == [*["a", "b"] * 5, "close a", "close b"]
    assert shown[:3] == ["starting name a", "starting name b", "round 1 of 5: name a"]
    assert [one.status for one in everyone] == ["stable", "stable"]
    assert [one.cell.config for one in ranked(everyone)] == ["b", "a"]


def test_noisy_cells_get_more_rounds_the_fastest_first() -> None:
    noise = [1000.0, 2000.0, 1000.0, 2000.0, 1500.0]
    faster = [2000.0, 4000.0, 2000.0, 4000.0, 3000.0]
    speeds = {"calm": [1200.0], "slow": noise, "fast": [*faster, *[3000.0] * 40]}
    shown, everyone, order = run(speeds, budget=12.0)
    first = 3 * 5
    assert order[first : first + 2] == ["fast", "slow"]
    assert shown[3 + first].startswith("noisy, ")
    assert order.count("calm") == 5
    by_name = {one.cell.config: one for one in everyone}
    assert by_name["fast"].status == "stable"  # it calmed down
    assert by_name["slow"].status == "stable"


def test_cells_that_stay_noisy_are_rejected() -> None:
    wild = [1000.0, 9000.0, 9000.0] * 50
    shown, everyone, order = run({"calm": [1200.0], "wild": wild}, budget=8.0)
    wild_one = everyone[1]
    assert wild_one.status == "noisy"
    assert wild_one.sps is not None
    assert wild_one.sps.median > 1200.0
    assert [one.cell.config for one in ranked(everyone)] == ["calm"]
    assert order.count("wild") > 5
    assert sum(round.seconds for one in everyone for round in one.rounds) <= 8.0 + 0.6
    assert record(wild_one)["status"] == "noisy"
    assert shown


def test_cells_that_cannot_be_opened_are_skipped() -> None:
    speeds = {"a": ValueError("does not fit"), "b": [10.0], "c": MemoryError()}
    _, everyone, order = run(speeds, budget=8.0)
    assert [one.status for one in everyone] == ["skipped", "stable", "skipped"]
    assert [one.reason for one in everyone] == ["does not fit", "", "MemoryError"]
    assert order == [*["b"] * 7, "close b"][-len(order) :]
    assert record(everyone[0]) == {
        "values": {"name": "a"},
        "base": False,
        "status": "skipped",
        "reason": "does not fit",
        "sps": None,
        "relative_iqr": None,
    }


def test_no_cell_at_all() -> None:
    with pytest.raises(ValueError, match="no cell of the grid can be trained: does not fit"):
        run({"a": ValueError("does not fit")}, budget=8.0)
    impossible = [Cell({"name": "a"}, None, "too large")]
    with pytest.raises(ValueError, match="no cell of the grid can be trained: too large"):
        drained(measure(impossible, 8.0, 0.1, lambda config: None))  # type: ignore[arg-type,return-value]


def test_a_number_that_is_not_finite_ends_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    train = FakeTrainer.train

    def fails(self: FakeTrainer, iterations: int) -> Round:
        if self.name == "b" and self.order.count("b") == 2:
            raise NonFiniteError("reward", 3, None, "it is nan")
        return train(self, iterations)

    monkeypatch.setattr(FakeTrainer, "train", fails)
    _, everyone, order = run({"a": [10.0], "b": [20.0]}, budget=8.0)
    assert order.count("a") == 5
    assert everyone[1].status == "skipped"
    assert "the reward is not finite" in everyone[1].reason
    assert [one.cell.config for one in ranked(everyone)] == ["a"]


def test_memory_is_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "_LEAST_FREE", 2.0)
    with pytest.raises(ValueError, match="fill this machine's memory; use a smaller grid"):
        run({"a": [10.0]}, budget=8.0)
