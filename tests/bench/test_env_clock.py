"""Clocks around environments: they count what happens, and change nothing."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from operant.bench import env_clock
from operant.bench.env_clock import AloneClock, KernelClock, StepClock, clock_for
from operant.models import PPO

SMALL = {"num_envs": 128, "num_steps": 8, "hidden": [8], "seed": 3}


def trainer(engine: str, **options: Any) -> PPO:
    return PPO("CartPole-v1", engine=engine, **(SMALL | options))


def weights(ppo: PPO) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in ppo.policy.parameters()])


def test_step_clock_counts_steps_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(env_clock.time, "perf_counter", lambda: now.s)

    class Env:
        def write_step(self, action: int) -> int:
            now.s += 2.0
            return action + 1

        def action_masks(self) -> None:
            now.s += 0.5

    env = Env()
    clock = StepClock(env)
    assert env.write_step(4) == 5
    env.action_masks()
    now.s += 100.0  # the policy's
    assert clock.take() == 2.5
    assert clock.take() == 0.0
    clock.close()
    env.write_step(1)
    assert clock.take() == 0.0
    assert vars(env) == {}


@pytest.mark.parametrize(("engine", "kind"), [("eager", StepClock), ("fused", KernelClock)])
def test_a_clock_measures_and_changes_nothing(engine: str, kind: type) -> None:
    alone, timed = trainer(engine), trainer(engine)
    clock = clock_for(timed)
    assert type(clock) is kind
    assert clock.kind == "measured"
    began = time.perf_counter()
    timed.learn(4096)
    elapsed = time.perf_counter() - began
    assert 0.0 < clock.take() < elapsed
    clock.close()
    timed.learn(8192)
    assert clock.take() == 0.0  # nobody runs it any more
    alone.learn(4096).learn(8192)
    np.testing.assert_array_equal(weights(alone), weights(timed))


def test_kernel_clock_counts_every_tile_and_shares_by_threads() -> None:
    ppo = trainer("fused", num_envs=192, threads=1)
    threads = SimpleNamespace(now=1)
    clock = KernelClock(ppo.env, lambda: threads.now)
    ppo.learn(192 * 8)
    lines = clock._lines
    tiles = lines[: 192 // 16 : 64 // 16]  # three of 64 games; a line for each 16
    assert tiles[:, env_clock._CALLS].tolist() == [8, 8, 8]  # eight steps
    assert (tiles[:, env_clock._SUM] > 0).all()
    lines[:, env_clock._SUM] = 0
    tiles[:, env_clock._SUM] = [1_000_000_000, 2_000_000_000, 3_000_000_000]
    before = lines.copy()
    assert clock.take() == pytest.approx(6.0)
    lines[:], threads.now = before, 2
    assert clock.take() == pytest.approx(4.0)  # two threads take two turns for three tiles
    lines[:], threads.now = before, 8
    assert clock.take() == pytest.approx(2.0)
    assert clock.take() == 0.0


@pytest.mark.usefixtures("interpreter")
def test_on_a_gpu_steps_alone_are_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo = PPO("CartPole-v1", num_envs=4, num_steps=5, hidden=[8], backend="cuda", device="cpu")
    asked: list[int] = []

    def timed_steps(env: Any, device: str) -> Any:
        assert (env.backend, env.num_envs, device) == ("cuda", 4, "cpu")
        assert env is not ppo.env
        return lambda steps: asked.append(steps) or 0.25

    monkeypatch.setattr(env_clock, "timed_steps", timed_steps)
    clock = clock_for(ppo)
    assert type(clock) is AloneClock
    assert clock.kind == "estimated"
    assert clock.take() == clock.take() == 1.25  # five steps, each rollout
    assert asked[-1] >= 16
    clock.close()
