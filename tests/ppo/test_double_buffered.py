"""Rollouts in which one half of the environments steps while the policy answers the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from operant.models import PPO
from operant.ppo.engines.double_buffered import DoubleBuffered, steps_in_parts
from operant.ppo.engines.side_streams import SideStreams
from operant.vector.batch import StepMemory
from operant.vector.foreign_batch import ForeignBatch, ForeignEnvError

from .test_fused_stepped import Walk

STEPS = 12


def trainer(backend: str, env: Any = Walk, num_envs: int = 7, **options: Any) -> PPO:
    batch = ForeignBatch(env, num_envs, backend=backend, workers=2)
    settings = {"num_steps": STEPS, "seed": 5, "hidden": (12,), "device": "cpu", "minibatches": 2}
    return PPO(batch, **{**settings, "engine": "eager", **options})


def in_halves(ppo: PPO) -> PPO:
    """As an engine on a GPU does it, with everything on the CPU."""
    ppo.engine._halves = DoubleBuffered(ppo.engine.job, ppo.engine.buffer.num_steps)
    return ppo


@pytest.mark.parametrize(
    ("backend", "masked"), [("threads", False), ("threads", True), ("processes", True)]
)
def test_rollouts_are_those_of_all_at_once(backend: str, masked: bool) -> None:
    env = partial(Walk, masked=masked)
    halved, plain = in_halves(trainer(backend, env)), trainer("serial", env)
    assert steps_in_parts(halved.env)
    assert not steps_in_parts(plain.env)
    for iteration in range(2):
        episodes = [p.engine.collect(iteration, iteration * STEPS) for p in (halved, plain)]
        for name in ("env_index", "step", "returns", "lengths", "truncated"):
            np.testing.assert_array_equal(*(getattr(found, name) for found in episodes))
        ours, theirs = halved.engine.buffer, plain.engine.buffer
        for name in ("obs", "action", "reward", "terminated", "truncated", "action_mask"):
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name], name)
        cut = ours.arrays["truncated"] & ~ours.arrays["terminated"]
        assert cut.any()
        for name in ("value", "log_prob"):
            np.testing.assert_allclose(ours.arrays[name], theirs.arrays[name], atol=1e-6)
        finals = (buffer.arrays["final_value"][cut] for buffer in (ours, theirs))
        np.testing.assert_allclose(*finals, atol=1e-6)
    halved.env.close()


def test_timing_changes_no_bits() -> None:
    runs = [in_halves(trainer("threads", num_envs=6)).learn(3 * 6 * STEPS) for _ in range(2)]
    runs.append(in_halves(trainer("threads", num_envs=6)))
    executor = runs[2].env._executor
    ready, held = executor.ready, []

    def late() -> list[int]:
        """Tells of environments only when all that are under way are done, the last first."""
        while executor._stepping:
            held.extend(ready())
        found = held[::-1]
        held.clear()
        return found

    executor.ready = late
    runs[2].learn(3 * 6 * STEPS)
    found = [torch.cat([p.detach().flatten() for p in ppo.policy.parameters()]) for ppo in runs]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_half_is_answered_while_the_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo, notes = in_halves(trainer("threads", num_envs=4, num_steps=3)), []
    env, beside = ppo.env, SideStreams.beside
    first = env.halves()[0][0]
    name = lambda rows: "A" if first in rows else "B"  # noqa: E731
    begin, finish = env.begin_rows, env.finish_rows

    def begin_rows(actions: Any, rows: np.ndarray) -> None:
        notes.append(f"begin {name(rows)}")
        begin(actions, rows)

    def finish_rows(rows: np.ndarray, out: StepMemory) -> Any:
        notes.append(f"finish {name(rows)}")
        return finish(rows, out)

    def noted(self: SideStreams, side: int = 0) -> Any:
        notes.append(f"answer {'AB'[side]}")
        return beside(self, side)

    monkeypatch.setattr(SideStreams, "beside", noted)
    env.begin_rows, env.finish_rows = begin_rows, finish_rows
    ppo.engine.collect(0, 0)
    step = ["finish A", "answer A", "begin A", "finish B", "answer B", "begin B"]
    first_step = [note for note in step if "finish" not in note]
    assert notes == [*first_step, *step, *step, "finish A", "finish B"]


@pytest.mark.parametrize(
    ("num_envs", "workers", "wanted"),
    [
        (8, 2, ([0, 1, 4, 5], [2, 3, 6, 7])),
        (3, 3, ([0, 2], [1])),
        (5, 2, ([0, 1, 3], [2, 4])),
        (1, 1, ([0], [])),
    ],
)
def test_halves_keep_all_workers_busy(num_envs: int, workers: int, wanted: Any) -> None:
    batch = ForeignBatch(Walk, num_envs, backend="threads", workers=workers)
    assert tuple(half.tolist() for half in batch.halves()) == wanted


def test_rows_under_way_are_waited_for() -> None:
    """By whatever is asked for next, after a rollout that was broken off."""
    make = partial(gymnasium.make, "CartPole-v1")
    batch, twin = (ForeignBatch(make, 4, backend="threads", workers=2) for _ in range(2))
    for one in (batch, twin):
        one.reset(seed=0)
    rows = batch.halves()[0]
    with pytest.raises(ValueError, match="must have shape"):
        batch.begin_rows(np.zeros(4, np.int64), rows)
    batch.begin_rows(np.zeros(len(rows), np.int64), rows)
    batch.reset(seed=1)
    twin.reset(seed=1)
    for one in (batch, twin):
        one.step(np.ones(4, np.int64))
    np.testing.assert_array_equal(batch._memory.obs, twin._memory.obs)


class Fails(Walk):
    def step(self, action: Any) -> Any:
        raise KeyError("lost")


def test_an_environment_that_fails_is_named_and_the_batch_goes_on() -> None:
    batch = ForeignBatch(Fails, 4, backend="threads", workers=2)
    batch.reset(seed=0)
    rows, _ = batch.halves()
    batch.begin_rows(np.ones(len(rows), np.int64), rows)
    out = StepMemory(np.zeros((4, 2), np.float32), np.zeros(4), *np.zeros((2, 4), np.bool_))
    with pytest.raises(ForeignEnvError, match="raised in step"):
        batch.finish_rows(rows, out)
    batch.reset(seed=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("action", ["Discrete", "Box"])
def test_on_a_gpu_the_rollout_is_that_of_the_policy(action: str) -> None:
    env = partial(Walk, action=action, masked=action == "Discrete")
    ppo = trainer("threads", env, device="cuda")
    assert ppo.engine._halves is not None
    other = trainer("serial", env, device="cuda")
    assert other.engine._halves is None
    for one in (ppo, other):
        one.engine.collect(0, 0)
    ours, theirs = ppo.engine.buffer, other.engine.buffer
    for name in ("obs", "action", "reward", "value", "log_prob", "last_value", "action_mask"):
        np.testing.assert_allclose(ours.arrays[name], theirs.arrays[name], rtol=1e-4, atol=1e-4)
    same = [trainer("threads", env, device="cuda").learn(3 * 7 * STEPS) for _ in range(2)]
    for a, b in zip(*(one.policy.parameters() for one in same), strict=True):
        assert torch.equal(a, b)
