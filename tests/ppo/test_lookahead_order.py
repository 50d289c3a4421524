"""In which order the lookahead calls the engine that it wraps, which here only notes it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from operant.ppo.job import Iteration


class FakeEngine:
    """A `GpuEngine` whose summaries say what they are told to."""

    name, threads, precision, compiled = "fake", 1, "fp32", False
    buffer = ()

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.job = SimpleNamespace(optimizer=SimpleNamespace(count=7))
        self.moved = False
        self.memory = SimpleNamespace(addresses=SimpleNamespace(changed=lambda: self.moved))
        self.program = SimpleNamespace(check_policy=lambda: self.calls.append("check_policy"))
        self.summary = np.ones(3)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given) if given else name)

    def wait(self) -> np.ndarray:
        self.calls.append("wait")
        self.job.optimizer.count += 1
        return self.summary

    def figures(self, summary: np.ndarray, iteration: int) -> dict[str, float]:
        self.calls.append(("figures", iteration))
        return {}

    def taken(self) -> list[Any]:
        found, self.calls = self.calls, []
        return found


def looking_ahead() -> tuple[Any, FakeEngine]:
    pytest.importorskip("triton")
    from operant.ppo.engines.lookahead import Lookahead

    engine = FakeEngine()
    return Lookahead(engine), engine  # type: ignore[arg-type]


NEXT = Iteration(1, 20, 1e-3, 0.2)


def iterate(ahead: Any, now: Iteration, following: Iteration | None) -> None:
    ahead.collect(*now[:2])
    ahead.advantages()
    ahead.expect(following)
    ahead.update(now.number, *now[2:])


def test_without_an_announcement_nothing_is_begun() -> None:
    ahead, engine = looking_ahead()
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), None)
    assert engine.taken() == [
        ("collect", 0, 10),
        "advantages",
        "check_addresses",
        ("train", 1e-2, 0.1),
        ("find_keys", 1),
        "wait",
        ("figures", 0),
    ]
    assert ahead.begun is None
    ahead.retract(broken_off=True)
    assert engine.taken() == []


def test_what_was_announced_is_launched_after_the_wait_and_before_the_figures() -> None:
    ahead, engine = looking_ahead()
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), NEXT)
    after = engine.taken()
    assert after[after.index("wait") :] == [
        "wait",
        ("go_on", 1, 20),
        "advantages",
        ("train", 1e-3, 0.2),
        ("figures", 0),
    ]
    assert ahead.begun == NEXT
    iterate(ahead, NEXT, None)  # asked for: nothing is launched again
    assert engine.taken() == [
        "forget_results",
        "check_policy",
        "check_addresses",
        ("find_keys", 2),
        "wait",
        ("figures", 1),
    ]
    assert ahead.begun is None


@pytest.mark.parametrize("asked", [(2, 20), (1, 30), "moved"])
def test_another_iteration_takes_it_back_first(asked: Any) -> None:
    ahead, engine = looking_ahead()
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), NEXT)
    engine.taken()
    engine.moved = asked == "moved"
    number, step = (1, 20) if engine.moved else asked
    ahead.collect(number, step)
    # Adam had taken 7 steps, and the first iteration took one.
    assert engine.taken() == [("take_back", 8), ("collect", number, step)]


def test_other_rates_than_announced_do_it_once_more() -> None:
    ahead, engine = looking_ahead()
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), NEXT)
    engine.taken()
    iterate(ahead, NEXT._replace(learning_rate=5.0), None)
    found = engine.taken()
    assert found[found.index("check_addresses") + 1 : found.index("wait")] == [
        ("take_back", 8),
        ("start", 1, 20),
        "advantages",
        ("train", 5.0, 0.2),
        ("find_keys", 2),
    ]


def test_nothing_follows_results_that_are_not_finite() -> None:
    ahead, engine = looking_ahead()
    engine.summary[1] = np.nan
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), NEXT)
    assert not any(call[0] == "go_on" for call in engine.taken())
    assert ahead.begun is None


def test_what_was_asked_for_is_taken_back_only_if_broken_off() -> None:
    ahead, engine = looking_ahead()
    iterate(ahead, Iteration(0, 10, 1e-2, 0.1), NEXT)
    ahead.collect(*NEXT[:2])
    engine.taken()
    ahead.retract()
    assert engine.taken() == []
    ahead.retract(broken_off=True)
    assert engine.taken() == [("take_back", 8)]
    ahead.retract(broken_off=True)
    assert engine.taken() == []
