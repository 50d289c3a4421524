"""Rollouts that are collected beside updates: overlap, its bound, and what it may not change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant.models import PPO, AsyncPPO
from operant.models.action_distributions import distribution_for
from operant.ppo.engines.async_engine import lags, stale_steps, why_not_async
from operant.ppo.engines.collector import Collector
from operant.ppo.engines.published_weights import PublishedWeights
from operant.runs.schedule import Schedule, Slice
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError
from operant.vector.foreign_batch import ForeignBatch

from .gated import TIMEOUT_S, Gate, Gated
from .test_fused_stepped import Walk

T = 4
OPTIONS: dict[str, Any] = {
    "num_steps": T,
    "minibatches": 1,
    "epochs": 2,
    "hidden": (8,),
    "seed": 3,
    "device": "cpu",
    "engine": "eager",
}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert "operant-collector" not in {thread.name for thread in threading.enumerate()}


def gated(gate: Gate, max_lag: int = 1, **options: Any) -> PPO:
    env = {name: options.pop(name) for name in ("fails_at", "nan_at") if name in options}
    batch = ForeignBatch(partial(Gated, gate, **env), 1, backend="serial")
    return PPO(batch, mode="async", max_lag=max_lag, **{**OPTIONS, **options})


def weights(ppo: PPO) -> torch.Tensor:
    """Everything that was learnt."""
    return torch.cat([x.detach().double().flatten() for x in ppo.policy.state_dict().values()])


def noted(ppo: PPO) -> list[tuple[Slice, ...]]:
    """What the engine is going to note."""
    found: list[tuple[Slice, ...]] = []
    ppo.engine.note = lambda number, slices: found.append(slices)
    return found


def followed(ppo: PPO, rollouts: list[tuple[Slice, ...]]) -> PPO:
    ppo.engine.follow(Schedule(ppo.engine.shape, tuple(rollouts)))
    return ppo


class Moments(Callback):
    """Calls what a test wants to happen at a moment of an iteration."""

    def __init__(self, **at: Any) -> None:
        self._at = at
        self.metrics_seen: list[dict[str, float]] = []

    def on_rollout(self, trainer: Any, buffer: Any) -> None:
        self._at.get("rollout", lambda ppo: None)(trainer)

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.metrics_seen.append(dict(metrics))
        self._at.get("update", lambda ppo: None)(trainer)


# Overlap ------------------------------------------------------------------------------------
def test_it_trains_while_an_environment_is_inside_a_step() -> None:
    gate, seen = Gate(T), []

    def before_update(ppo: PPO) -> None:
        if ppo.iteration == 0:
            gate.wait_until_begun(T + 1)  # of the next rollout

    def after_update(ppo: PPO) -> None:
        seen.append((gate.begun, gate.done, ppo.optimizer.count))
        gate.let(2 * T)

    gated(gate).learn(2 * T, Moments(rollout=before_update, update=after_update))
    assert seen[0] == (T + 1, T, 2), "two updates, and the step has not ended"
    assert gate.done == 2 * T


@pytest.mark.parametrize("max_lag", [1, 3])
def test_no_more_rollouts_are_collected_than_there_is_memory_for(max_lag: int) -> None:
    gate = Gate(100 * T)

    def full(ppo: PPO) -> None:
        collector: Collector = ppo.engine.collector
        wanted = min(max_lag, 10 - 1 - ppo.iteration)
        with collector._change:
            assert collector._change.wait_for(lambda: len(collector.ready) == wanted, TIMEOUT_S)
        most = min(10, ppo.iteration + 1 + max_lag)
        assert gate.begun == most * T

    moments = Moments(rollout=full)
    gated(gate, max_lag).learn(10 * T, moments)
    assert gate.begun == 10 * T, "none beyond the last"
    lag = [metrics["lag_max"] for metrics in moments.metrics_seen]
    assert lag == [min(k, max_lag) for k in range(10)], "full all the time: as old as it may be"
    assert max(metrics["queue"] for metrics in moments.metrics_seen) == max_lag


def test_weights_that_are_published_act_from_the_next_step_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(T + 1)
    publish = PublishedWeights.publish

    def publish_then_open(self: PublishedWeights, version: int, oldest: int) -> None:
        if version == 1:
            gate.wait_until_begun(T + 2)  # the second step of rollout 1
        publish(self, version, oldest)
        if version == 1:
            gate.let(100)

    monkeypatch.setattr(PublishedWeights, "publish", publish_then_open)
    ppo, moments = gated(gate), Moments()
    slices = noted(ppo)
    ppo.learn(2 * T, moments)
    assert slices == [(Slice(0, 0, 0),), (Slice(0, 0, 0), Slice(0, 2, 1))]
    assert moments.metrics_seen[1]["lag"] == 0.5
    assert moments.metrics_seen[1]["lag_max"] == 1
    again = followed(gated(Gate(100)), slices)
    assert torch.equal(weights(again.learn(2 * T)), weights(ppo))
    other = followed(gated(Gate(100)), [slices[0], (Slice(0, 0, 0),)])
    assert not torch.equal(weights(other.learn(2 * T)), weights(ppo))


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_log_probabilities_are_those_of_the_weights_that_acted(engine: str) -> None:
    """What the ratio is taken with."""
    made = partial(ForeignBatch, Walk, 5, backend="serial")
    schedule = [(Slice(0, 0, 0),), (Slice(0, 0, 0), Slice(0, 3, 1))]
    schedule += [(Slice(0, 0, 0), Slice(0, 1, 1), Slice(0, 5, 2))]
    ppo = PPO(made(), mode="async", max_lag=2, **{**OPTIONS, "num_steps": 8, "engine": engine})
    followed(ppo, schedule)
    kept: dict[int, dict[str, torch.Tensor]] = {}
    checked = []

    def check(ppo: PPO) -> None:
        kept[ppo.iteration] = {k: v.clone() for k, v in ppo.policy.state_dict().items()}
        actor = ppo.engine.actor.job
        now = kept[ppo.iteration]
        for one in schedule[ppo.iteration]:
            ppo.policy.load_state_dict(kept[one.version])
            ends = [s.t for s in schedule[ppo.iteration] if s.t > one.t]
            for t in range(one.t, min(ends, default=8)):
                with torch.no_grad():
                    head, _ = ppo.engine.job.forward(ppo.buffer.obs[t].float())
                    log_prob, _ = actor.distribution.evaluate(head, ppo.buffer.action[t])
                torch.testing.assert_close(ppo.buffer.log_prob[t], log_prob, atol=1e-4, rtol=1e-4)
                checked.append(one.version)
        ppo.policy.load_state_dict(now)
        for t in range(8):  # values are those of the weights that are trained
            value = ppo.engine.job.value(ppo.buffer.obs[t].float()).detach()
            torch.testing.assert_close(ppo.buffer.value[t], value, atol=1e-4, rtol=1e-4)
        last = ppo.engine.job.value(ppo.buffer.obs[-1].float()).detach()
        torch.testing.assert_close(ppo.buffer.last_value, last, atol=1e-4, rtol=1e-4)

    ppo.learn(3 * 8 * 5, Moments(rollout=check))
    assert checked == [0] * 8 + [0] * 3 + [1] * 5 + [0] + [1] * 4 + [2] * 3
    assert not torch.equal(kept[0]["actor.0.weight"], kept[1]["actor.0.weight"])


# The same bits ------------------------------------------------------------------------------
def classic(engine: str, env: str = "CartPole-v1", **options: Any) -> PPO:
    values = {"num_envs": 8, "num_steps": 16, "threads": 1, "minibatches": 2}
    values |= {"learning_rate_schedule": "linear", "clip_schedule": "linear"}
    return PPO(env, **{**OPTIONS, **values, "engine": engine, **options})


def walking(engine: str, **options: Any) -> PPO:
    batch = ForeignBatch(Walk, 6, backend="threads", workers=2)
    return PPO(batch, **{**OPTIONS, "num_steps": 9, "engine": engine, **options})


MADE = [
    partial(classic, "eager"),
    partial(classic, "fused"),
    partial(classic, "eager", "Pendulum-v1", max_episode_steps=20),
    partial(walking, "eager"),
    partial(walking, "fused"),
]


@pytest.mark.parametrize("made", MADE)
def test_without_lag_it_is_synchronous_training(made: Any) -> None:
    plain, strict = made(), made(mode="async", max_lag=0)
    total = 5 * len(plain.buffer)
    found = [weights(ppo.learn(total)) for ppo in (plain, strict)]
    assert torch.equal(*found)
    assert plain.episodes == strict.episodes > 0
    assert list(plain.recent) == list(strict.recent)
    for ppo in (plain, strict):
        ppo.env.close()


@pytest.mark.parametrize("made", MADE)
def test_a_run_that_follows_a_schedule_has_the_same_bits(made: Any) -> None:
    first = made(mode="async", max_lag=2)
    slices, total = noted(first), 6 * len(first.buffer)
    first.learn(total)
    assert len(slices) == 6
    again = followed(made(mode="async", max_lag=2), slices)
    repeated = noted(again)
    assert torch.equal(weights(first), weights(again.learn(total)))
    assert repeated == slices
    assert list(first.recent) == list(again.recent)
    parts = range(first.engine.shape.parts)
    oldest = [tuple(Slice(part, 0, max(0, k - 2)) for part in parts) for k in range(6)]
    newest = [tuple(Slice(part, 0, k) for part in parts) for k in range(6)]
    ends = [
        weights(followed(made(mode="async", max_lag=2), s).learn(total)) for s in (oldest, newest)
    ]
    assert not torch.equal(*ends), "it is the schedule that decides"
    if len(parts) == 1:  # else products of other sizes round otherwise
        assert torch.equal(ends[1], weights(made().learn(total))), "without overlap: as in sync"


def test_environments_in_processes_follow_a_schedule() -> None:
    batch = ForeignBatch(Walk, 4, backend="processes", workers=2)
    options = {**OPTIONS, "num_steps": 9, "engine": "fused", "mode": "async"}
    first = PPO(batch, **options)
    slices = noted(first)
    first.learn(6 * len(first.buffer))
    again = followed(PPO(batch, **options), slices).learn(6 * len(first.buffer))
    assert torch.equal(weights(first), weights(again))
    batch.close()


@pytest.mark.parametrize("parts", [0, 5, 7])
def test_a_schedule_of_parts_that_cannot_be_is_refused(parts: int) -> None:
    ppo = walking("eager", mode="async")
    with pytest.raises(ValueError, match="the schedule is one of Shape"):
        ppo.engine.follow(Schedule(ppo.engine.shape._replace(parts=parts), ()))
    assert ppo.engine.shape.parts == 2
    ppo.env.close()


def test_the_actor_has_a_distribution_of_its_own() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.distribution = distribution_for(spaces.Discrete(2), False)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.layer(obs)
            return out[:, :2], out[:, 2]

    own = {"num_envs": 8, "device": "cpu", "engine": "eager", "mode": "async"}
    ppo: PPO = PPO("CartPole-v1", policy=Own(), **own)
    actor = ppo.engine.actor.job
    assert actor.distribution is actor.policy.distribution is not ppo.distribution


def test_a_schedule_of_other_rollouts_is_refused() -> None:
    ppo = classic("fused", mode="async")
    with pytest.raises(ValueError, match="the schedule is one of Shape"):
        ppo.engine.follow(Schedule(ppo.engine.shape._replace(rows=9), ()))


@pytest.mark.parametrize("bonus", ["rnd", "count"])
def test_bonuses_are_paid_for_what_was_collected(bonus: str) -> None:
    """In the thread that trains, whichever rollout it has."""
    options = {"intrinsic": bonus, "num_steps": 8}
    plain, strict = (
        classic("eager", **options, **more) for more in ({}, {"mode": "async", "max_lag": 0})
    )
    total = 4 * len(plain.buffer)
    assert torch.equal(weights(plain.learn(total)), weights(strict.learn(total)))
    first = classic("eager", **options, mode="async")
    slices = noted(first)
    first.learn(total)
    again = followed(classic("eager", **options, mode="async"), slices).learn(total)
    assert torch.equal(weights(first), weights(again))


# Saving -------------------------------------------------------------------------------------
def until_full(ppo: PPO, iteration: int) -> None:
    """Stop after an iteration, when as many rollouts wait as there is memory for."""
    if ppo.iteration == iteration:
        collector: Collector = ppo.engine.collector
        with collector._change:
            wanted = ppo.config.run.max_lag
            assert collector._change.wait_for(lambda: len(collector.ready) == wanted, TIMEOUT_S)
        ppo.stop()


def stacked(**options: Any) -> PPO:
    values = {"num_envs": 3, "num_steps": 16, "frame_stack": 2, "backend": "serial"}
    return PPO("gymnasium:CartPole-v1", **{**OPTIONS, **values, **options})


@pytest.mark.parametrize("made", [partial(classic, "fused"), stacked])
def test_rollouts_under_way_are_in_a_checkpoint(made: Any, tmp_path: Any) -> None:
    ppo = made(mode="async", max_lag=2)
    slices, total = noted(ppo), 9 * len(ppo.buffer)
    ppo.learn(total, Moments(update=partial(until_full, iteration=4)))
    assert ppo.iteration == 4
    ppo.save(tmp_path)
    loaded = PPO.load(tmp_path)
    assert [one.number for one in loaded.engine.collector.ready] == [4, 5]
    ppo.learn(total)
    followed(loaded, slices).learn(total)
    assert torch.equal(weights(ppo), weights(loaded))
    assert ppo.episodes == loaded.episodes


def test_a_forged_state_is_refused() -> None:
    options = {"mode": "async", "max_episode_steps": 5}
    ppo = classic("fused", **options)
    ppo.learn(6 * len(ppo.buffer), Moments(update=partial(until_full, iteration=2)))
    good = ppo.engine.state()
    assert good["in_flight"].tolist() == [1, 2]
    for name in good.keys() - {"return_carry"}:
        without = {key: array for key, array in good.items() if key != name}
        with pytest.raises(ValueError, match="must be"):
            classic("fused", **options).engine.set_state(without)
    for name, value in {
        "in_flight": np.array([2, 2]),
        "rollout_0.obs": good["rollout_0.obs"][1:],
        "rollout_0.slices": good["rollout_0.slices"] + 99,
        "rollout_0.final_place": good["rollout_0.final_place"] + 10**9,
        "rollout_0.episodes.step": good["rollout_0.episodes.step"] - 10**9,
    }.items():
        with pytest.raises(ValueError, match=name.rpartition(".")[2]):
            classic("fused", **options).engine.set_state({**good, name: value})
    forged = {**good, "rollout_0.final_place": np.array(3)}
    with pytest.raises(ValueError, match="final_"):
        classic("fused", **options).engine.set_state(forged)


@pytest.mark.parametrize("rows", [3, [[0, 0, -1]], [[0, 0, 2], [0, 3, 1]], [[-1, 0, 2]]])
def test_forged_slices_are_refused(rows: Any) -> None:
    ppo = classic("fused", mode="async")
    ppo.learn(6 * len(ppo.buffer), Moments(update=partial(until_full, iteration=2)))
    with pytest.raises(ValueError, match="slices must be"):
        ppo.engine.set_state({**ppo.engine.state(), "rollout_0.slices": np.array(rows)})


def test_a_lag_that_cannot_be_is_refused() -> None:
    ppo = classic("fused", mode="async")
    ppo.learn(6 * len(ppo.buffer), Moments(update=partial(until_full, iteration=3)))
    old = np.array([[0, 0, 0]])  # rollout 3
    with pytest.raises(ValueError, match="slices must be"):
        ppo.engine.set_state({**ppo.engine.state(), "rollout_0.slices": old})


# Ends ---------------------------------------------------------------------------------------
def test_an_error_of_an_environment_arrives_in_learn_with_its_traceback() -> None:
    ppo = gated(Gate(100), fails_at=2 * T + 2)
    with pytest.raises(Exception, match="the lander fell over") as caught:
        ppo.learn(9 * T)
    assert "gated.py" in "".join(str(entry.path) for entry in caught.traceback) or (
        caught.value.__cause__ is not None
    )
    assert ppo.iteration == 2, "what was collected before was trained on"


def failed(ppo: PPO) -> None:
    """Wait until the collector has met an error."""
    collector: Collector = ppo.engine.collector
    with collector._change:
        assert collector._change.wait_for(lambda: collector._error is not None, TIMEOUT_S)


def test_an_error_is_not_lost_when_the_collector_rested() -> None:
    """As before a checkpoint; which is refused then."""
    ppo = gated(Gate(100), 2, fails_at=2 * T + 2)

    def look(ppo: PPO) -> None:
        if ppo.iteration == 1:
            failed(ppo)
            with pytest.raises(Exception, match="the lander fell over"):
                ppo.engine.state()
        ppo.retract()

    with pytest.raises(Exception, match="the lander fell over"):
        ppo.learn(9 * T, Moments(update=look))
    assert ppo.iteration == 2, "what was collected before was trained on"
    ppo.engine.state()


def test_weights_are_published_before_the_collector_rests() -> None:
    """Else all of the rollout would be played with old ones, at every checkpoint."""
    gate = Gate(T + 1)
    ppo = gated(gate)
    slices = noted(ppo)

    def rests() -> None:
        change = ppo.engine.collector._change
        with change:
            assert change.wait_for(lambda: ppo.engine.collector._resting, TIMEOUT_S)
        gate.let(100)

    helper = threading.Thread(target=rests)

    def save(ppo: PPO) -> None:
        if ppo.iteration == 1:
            gate.wait_until_begun(T + 2)  # the second step of rollout 1
            helper.start()
            ppo.retract()

    ppo.learn(2 * T, Moments(update=save))
    helper.join()
    assert slices == [(Slice(0, 0, 0),), (Slice(0, 0, 0), Slice(0, 2, 1))]
    again = followed(gated(Gate(100)), slices)
    assert torch.equal(weights(again.learn(2 * T)), weights(ppo))


def test_ctrl_c_within_a_rest_is_survived() -> None:
    ppo = gated(Gate(100))
    ppo.learn(2 * T)
    collector: Collector = ppo.engine.collector
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    collector._thread, collector._resting = ended, True  # as Ctrl-C may leave them
    learns = threading.Thread(target=ppo.learn, args=(4 * T,), daemon=True)
    learns.start()
    learns.join(20)
    assert ppo.iteration == 4


def test_ctrl_c_while_a_rollout_is_given_back_spoils_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ppo, give_back = gated(Gate(1000)), Collector.give_back

    def interrupted(self: Collector, *args: Any) -> None:
        give_back(self, *args)
        if ppo.iteration == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Collector, "give_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ppo.learn(9 * T)
    free = ppo.engine.collector._free
    assert len({id(buffer) for buffer in free}) == len(free) == 2
    ppo.learn(5 * T)


def test_values_are_renewed_in_slices() -> None:
    ppo = classic("eager", mode="async")
    ppo.engine._slice, sizes = 50, []

    def value(obs: torch.Tensor) -> torch.Tensor:
        sizes.append(len(obs))
        return obs[:, 0]

    ppo.engine.job = SimpleNamespace(device=ppo.device, value=value)
    ppo.buffer.obs.normal_()
    ppo.engine._renew_values(16)
    assert sizes == [50, 50, 28, 8]
    assert torch.equal(ppo.buffer.value, ppo.buffer.obs[:16, :, 0])


def test_a_number_that_is_not_finite_is_found_in_its_rollout() -> None:
    ppo = gated(Gate(100), nan_at=2 * T + 2)
    with pytest.raises(Exception, match="NaN"):
        ppo.learn(9 * T)
    assert ppo.iteration == 2


def test_the_guard_looks_at_rollouts_of_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo = classic("eager", mode="async")
    fill = ppo.engine.actor.collect

    def spoilt(iteration: int, step: int) -> Any:
        if iteration == 2:
            raise NonFiniteError("reward", iteration, 1, "nan")
        return fill(iteration, step)

    ppo.engine.actor.collect = spoilt
    with pytest.raises(NonFiniteError, match="iteration 2"):
        ppo.learn(9 * len(ppo.buffer))
    before = weights(ppo)
    ppo.engine.actor.collect = fill
    ppo.learn(4 * len(ppo.buffer))
    assert ppo.iteration == 4
    assert not torch.equal(before, weights(ppo))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_in_a_callback_ends_the_collector_in_its_step(error: type[BaseException]) -> None:
    gate = Gate(T + 2)
    ppo = gated(gate)

    def end_the_step() -> None:
        change = ppo.engine.collector._change
        with change:
            assert change.wait_for(lambda: ppo.engine.collector._dropping, TIMEOUT_S)
        gate.let(1)

    helper = threading.Thread(target=end_the_step)

    def fails(ppo: PPO) -> None:
        gate.wait_until_begun(T + 3)
        helper.start()
        raise error

    with pytest.raises(error):
        ppo.learn(9 * T, Moments(update=fails))
    helper.join()
    assert gate.done == T + 3, "not the rest of the rollout"
    gate.let(100)
    ppo.learn(3 * T)
    assert ppo.iteration == 3


def test_weights_that_were_changed_after_an_error_are_those_that_act() -> None:
    """Though no update was made: it is the same version of them."""
    ppo = classic("eager", mode="async", normalize_obs=False)

    def fails(ppo: PPO) -> None:
        collector: Collector = ppo.engine.collector
        if ppo.iteration == 1:
            with collector._change:
                assert collector._change.wait_for(lambda: len(collector.ready) == 1, TIMEOUT_S)
            assert collector._version == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ppo.learn(9 * len(ppo.buffer), Moments(rollout=fails))
    with torch.no_grad():
        ppo.policy.critic_head.weight.zero_()
        ppo.policy.critic_head.bias.fill_(7.0)
    values = []
    moments = Moments(rollout=lambda ppo: values.append(ppo.buffer.value.clone()))
    ppo.learn(2 * len(ppo.buffer), moments)
    assert (values[0] == 7.0).all()


def test_it_stops_after_the_iteration_and_goes_on() -> None:
    ppo = classic("fused", mode="async")
    ppo.learn(6 * len(ppo.buffer), Moments(update=lambda ppo: ppo.stop()))
    assert ppo.iteration == 1
    ppo.learn(6 * len(ppo.buffer) - 5)
    assert (ppo.iteration, ppo.steps) == (6, 6 * len(ppo.buffer))


def test_callbacks_are_called_in_the_thread_that_learns_and_in_order() -> None:
    calls, here = [], threading.get_ident()

    class All(Callback):
        def on_rollout(self, trainer: Any, buffer: Any) -> None:
            calls.append(("rollout", trainer.iteration, threading.get_ident() == here))

        def on_episodes(self, trainer: Any, episodes: Any) -> None:
            calls.append(("episodes", trainer.iteration, threading.get_ident() == here))

        def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
            calls.append(("update", trainer.iteration - 1, threading.get_ident() == here))

    gated(Gate(100), 2, num_steps=5).learn(4 * 5, All())
    names = ("rollout", "episodes", "update")
    assert calls == [(name, k, True) for k in range(4) for name in names]


# What it is, and is not, for ----------------------------------------------------------------
def test_lags_are_means_over_steps_and_parts() -> None:
    assert lags((Slice(0, 0, 5),), 5, 8) == (0.0, 0.0)
    assert lags((Slice(0, 0, 4), Slice(0, 6, 5)), 5, 8) == (0.75, 1.0)
    both = (Slice(0, 0, 3), Slice(1, 0, 5), Slice(0, 4, 5))
    assert lags(both, 5, 8) == (0.5, 2.0)


def refused(**env: Any) -> str:
    job: Any = SimpleNamespace(env=SimpleNamespace(**env), two_streams=env.pop("two", True))
    return str(why_not_async(job))


def test_stale_steps_are_those_before_every_part_has_the_newest_weights() -> None:
    assert stale_steps((Slice(0, 0, 5),), 5, 8) == 0
    assert stale_steps((Slice(0, 0, 4),), 5, 8) == 8
    assert stale_steps((Slice(0, 0, 4), Slice(0, 6, 5)), 5, 8) == 6
    assert stale_steps((Slice(0, 0, 3), Slice(0, 2, 4), Slice(1, 0, 5)), 5, 8) == 8
    assert stale_steps((Slice(0, 0, 3), Slice(1, 0, 5), Slice(0, 4, 5)), 5, 8) == 4


def test_environments_on_a_gpu_are_refused() -> None:
    assert "fill the same GPU" in refused(backend="cuda")
    assert "and these are on meta" in refused(backend="vector", device=torch.device("meta"))


def test_rows_that_rest_have_no_stream_of_their_own() -> None:
    """Whether they go on is asked of the environments, which are further by then."""
    env = {"backend": "serial", "device": torch.device("cpu")}
    assert "no intrinsic.separate_value" in refused(**env, live_rows=lambda: [True])
    assert refused(**env, live_rows=lambda: None) == "None"
    assert refused(**env, live_rows=lambda: [True], two=False) == "None"


def test_a_policy_that_cannot_be_copied_is_refused() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.lock = threading.Lock()

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.layer(obs)
            return out[:, :2], out[:, 2]

    with pytest.raises(ValueError, match=r"Own cannot be copied: .*use run\.mode=sync"):
        PPO("CartPole-v1", policy=Own(), mode="async", num_envs=4, device="cpu")


def test_it_learns() -> None:
    ppo = AsyncPPO("CartPole-v1", num_envs=16, seed=1, device="cpu", learning_rate=2.5e-3)
    ppo.learn(80_000)
    assert ppo.mean_return > 300
    assert ppo.config.run.mode == "async"


def test_the_ring_is_counted_before_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "operant.ppo.engines.base.check_memory", lambda size, what: asked.append(size)
    )
    classic("eager")
    classic("eager", mode="async", max_lag=4)
    assert asked == [asked[0], 5 * asked[0], 5 * asked[0]]
