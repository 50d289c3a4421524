"""Groups of environments that do not wait for each other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from operant.models import PPO
from operant.ppo.engines.base import NEWEST
from operant.ppo.engines.first_ready import FirstReady
from operant.runs.schedule import Schedule, Slice
from operant.vector.foreign_batch import ForeignBatch

from .gated import Gate, Gated
from .test_async import OPTIONS, Moments, noted, weights
from .test_fused_stepped import Walk

STEPS = 12


def trainer(backend: str, env: Any = Walk, num_envs: int = 7, **options: Any) -> PPO:
    batch = ForeignBatch(env, num_envs, backend=backend, workers=3)
    return PPO(batch, **{**OPTIONS, "num_steps": STEPS, "mode": "async", **options})


@pytest.mark.parametrize("masked", [False, True])
def test_rollouts_are_those_of_all_at_once(masked: bool) -> None:
    env = partial(Walk, masked=masked)
    grouped, plain = trainer("threads", env), trainer("serial", env)
    assert [ppo.engine.actor.parts for ppo in (grouped, plain)] == [3, 1]
    ours, theirs = grouped.engine.actor, plain.engine.actor
    for engine in (ours, theirs):
        engine.before_step = lambda part, t: False
    for iteration in range(2):
        episodes = [engine.collect(iteration, iteration * STEPS) for engine in (ours, theirs)]
        for name in ("env_index", "step", "returns", "lengths", "truncated"):
            np.testing.assert_array_equal(*(getattr(found, name) for found in episodes))
        for name in ("obs", "action", "reward", "terminated", "truncated", "action_mask"):
            np.testing.assert_array_equal(
                ours.buffer.arrays[name], theirs.buffer.arrays[name], name
            )
        np.testing.assert_array_equal(ours.buffer.final_place, theirs.buffer.final_place)
        for name in ("value", "log_prob", "final_value", "last_value"):
            found = (engine.buffer.arrays[name] for engine in (ours, theirs))
            np.testing.assert_allclose(*found, atol=1e-6, err_msg=name)
        assert (ours.buffer.arrays["final_value"] != 0).any()


class Gates:
    """Makes environments of which the first waits at a gate, and counts the others' steps."""

    def __init__(self) -> None:
        self.slow, self.fast = Gate(0), Gate(10**9)
        self.made = 0

    def __call__(self) -> Gated:
        """An environment; the one before the batch's own is looked at alone."""
        self.made += 1
        return Gated(self.slow if self.made == 2 else self.fast)


def test_a_slow_environment_holds_its_own_group_alone() -> None:
    gates = Gates()
    batch = ForeignBatch(gates, 4, backend="threads", workers=2)
    ppo = PPO(batch, mode="async", **OPTIONS)
    assert isinstance(ppo.engine.actor._halves, FirstReady)
    seen = []

    def watch(part: int, t: int) -> bool:
        seen.append((part, t))
        if (part, t) == (1, 3):
            gates.slow.wait_until_begun(1)
            assert gates.slow.done == 0, "not one step of the slow one has ended"
            gates.slow.let(100)
        return False

    ppo.engine.actor.before_step = watch
    ppo.engine.actor.collect(0, 0)
    ones = [(1, t) for t in range(4)]
    assert [one for one in seen if one[0] == 1] == ones
    assert seen.index((1, 3)) < seen.index((0, 1))
    assert seen[-1] == (NEWEST, 4), "before the values at the ends"
    batch.close()


def test_values_at_the_ends_are_those_of_the_newest_weights() -> None:
    ppo = trainer("threads")
    collector = ppo.engine.collector
    for version in (1, 2):
        collector._weights.publish(version, 0)
    collector._slices, collector._version = [Slice(0, 0, 2), Slice(1, 0, 1)], 1
    assert collector._before_step(NEWEST, STEPS)
    assert collector._version == 2
    assert not collector._before_step(NEWEST, STEPS)
    assert len(collector._slices) == 2


def test_the_order_in_which_groups_are_done_changes_no_bits() -> None:
    """Of a schedule in which they change weights at different steps."""

    def slices(k: int) -> tuple[Slice, ...]:
        changes = (Slice(part, 2 + 3 * part, k) for part in range(3)) if k else ()
        return (*(Slice(part, 0, max(0, k - 1)) for part in range(3)), *changes)

    schedule = [slices(k) for k in range(5)]
    ends = []
    for late in (False, True):
        ppo = trainer("threads", num_envs=6)
        ppo.engine.follow(Schedule(ppo.engine.shape, tuple(schedule)))
        if late:
            executor = ppo.env._executor
            ready, held = executor.ready, []

            def done(executor: Any = executor, ready: Any = ready, held: Any = held) -> list[int]:
                """Tells only when all that are under way are done, the last first."""
                while executor._stepping:
                    held.extend(ready())
                found = held[::-1]
                held.clear()
                return found

            executor.ready = done
        followed = noted(ppo)
        ends.append(weights(ppo.learn(5 * len(ppo.buffer))))
        assert followed == [tuple(sorted(one)) for one in schedule]
        ppo.env.close()
    assert torch.equal(*ends)


def test_a_schedule_is_followed_with_any_number_of_workers() -> None:
    first = trainer("threads", num_envs=6)
    slices = noted(first)
    first.learn(4 * len(first.buffer))
    schedule = Schedule(first.engine.shape, tuple(slices))
    assert schedule.shape.parts == 3
    batch = ForeignBatch(Walk, 6, backend="serial")
    again = PPO(batch, **{**OPTIONS, "num_steps": STEPS, "mode": "async"})
    again.engine.follow(schedule)
    assert again.engine.actor.parts == 3
    assert torch.equal(weights(again.learn(4 * len(first.buffer))), weights(first))


def test_a_rollout_that_was_given_up_leaves_nothing_under_way() -> None:
    ppo = trainer("threads", num_envs=6)

    def fails(ppo: PPO) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ppo.learn(9 * len(ppo.buffer), Moments(update=fails))
    assert len(ppo.env._parts) == 0
    ppo.learn(4 * len(ppo.buffer))
    assert ppo.iteration == 4
