"""The modes of a profile: what they run with, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from operant.bench import profile
from operant.bench.profile import Evaluations, Job, Result, measure, open_mode, record
from operant.bench.training import PARTS, Round
from operant.envs.classic.cartpole import CartPole
from operant.lang.env import Env
from operant.ppo.config_file import resolved

from .generators import drained

SMALL = {"env.num_envs": 8, "env.backend": "reference", "ppo.num_steps": 16, "policy.hidden": [8]}


def job(**changes: Any) -> Job:
    options = SMALL | changes.pop("options", {})
    return Job(CartPole, resolved("CartPole-v1", options, {"run.threads": 1}), **changes)


class FakeMode:
    """Takes a second for ten steps, then for twenty, and so on."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order, self.steps = name, order, 0

    @property
    def result(self) -> Result:
        return Result(self.name, "cpu", "cpu", 8, 1)

    def prepare(self, seconds: float) -> None:
        pass

    def work(self) -> Round:
        self.order.append(self.name)
        self.steps += 10
        return Round(self.steps, 1.0, {**dict.fromkeys(PARTS, 0.0), "env": 1.0})

    def close(self) -> None:
        self.order.append(f"close {self.name}")


def test_modes_take_turns_and_are_closed() -> None:
    order: list[str] = []
    modes = [FakeMode("env_only", order), FakeMode("trainer", order)]
    shown, results = drained(measure(job(repeats=3), modes))
    assert order == [*["env_only", "trainer"] * 3, "close env_only", "close trainer"]
    assert shown[0] == "round 1 of 3: env_only"
    assert shown[-1] == "round 3 of 3: trainer"
    assert [result.sps.sps for result in results] == [(10.0, 20.0, 30.0)] * 2


def test_modes_are_closed_when_one_fails() -> None:
    order: list[str] = []
    modes = [FakeMode("env_only", order), FakeMode("trainer", order)]

    def fail() -> Round:
        raise ValueError("broken")

    modes[1].work = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="broken"):
        drained(measure(job(), modes))
    assert order == ["env_only", "close env_only", "close trainer"]


@pytest.mark.parametrize("name", profile.MODES)
def test_each_mode_measures_itself(name: str) -> None:
    asked = job(seconds=0.001, evaluations=Evaluations(100, 4))
    mode = open_mode(asked, name)
    mode.prepare(asked.seconds)
    result = mode.result
    result.rounds.extend([mode.work(), mode.work()])
    mode.close()
    found = record(result)
    assert found["mode"] == name
    assert (found["num_envs"], found["backend"], found["device"]) == (8, "reference", "cpu")
    assert found["sps"]["median"] > 0
    assert sum(found["split"].values()) == pytest.approx(1)
    assert ("eval" in found["split"]) == (name == "trainer_eval")
    assert found["engine"] == (None if name == "env_only" else "eager")
    if name == "env_only":
        assert found["split"]["env"] == 1.0
    if name == "trainer_eval":
        assert found["evaluation"] == {"every_steps": 128, "episodes": 4}  # a whole iteration
        assert found["split"]["eval"] > 0
    else:
        assert found["evaluation"] is None


def test_environments_alone_are_the_trainers() -> None:
    mode = open_mode(job(options={"env.max_episode_steps": 7}), "env_only")
    env = mode._env  # type: ignore[attr-defined]
    assert env.autoreset_mode.value == "SameStep"
    assert env.copy is False
    assert env.max_episode_steps == 7
    mode.prepare(0.001)
    assert mode.work().steps % 8 == 0
    mode.close()
    assert env.closed


def test_evaluations_if_nothing_is_said() -> None:
    found = profile._evaluations(job(options={"run.total_steps": 5000, "run.eval_episodes": 20}))
    assert found == Evaluations(500, 20)
    asked = job(evaluations=Evaluations(0, 3), options={"run.total_steps": 5000})
    assert profile._evaluations(asked) == Evaluations(500, 3)
    assert profile._evaluations(job(options={"run.total_steps": 10**8})).every_steps == 100_000
    none = job(evaluations=Evaluations(64, 0), options={"run.eval_episodes": 0})
    assert profile._evaluations(none) == Evaluations(64, 100)


def test_an_episode_that_might_never_end_is_refused() -> None:
    class Endless(CartPole):
        max_episode_steps = None

    asked = Job(Endless, resolved("Endless", SMALL), ("trainer_eval",))
    with pytest.raises(ValueError, match="no time limit, so an evaluation might never end"):
        open_mode(asked, "trainer_eval")
    limited = Job(Endless, resolved("Endless", SMALL, {"env.max_episode_steps": 9}))
    assert profile._evaluations(limited).episodes == 100
    assert issubclass(Endless, Env)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be one of env_only, trainer, trainer_eval, got 'x'"):
        job(modes=("trainer", "x"))
