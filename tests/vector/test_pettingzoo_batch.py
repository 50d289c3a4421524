"""PettingZoo's environments as batches, beside its own parallel API."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_spread_v3 as spread

from operant.backends.foreign.errors import ForeignEnvError
from operant.models import PPO
from operant.spaces.rows import ObsLayout
from operant.training.callbacks import Callback
from operant.vector.async_pool import AsyncEnvPool
from operant.vector.batch import Ends, StepMemory, is_batch
from operant.vector.foreign_batch import ForeignBatch, env_seed

from .knights import Knights

E, STEPS = 3, 60
make_spread = partial(spread.parallel_env, N=3, max_cycles=12)


def memory(batch: Any) -> StepMemory:
    rows = ObsLayout.of(batch.single_observation_space).memory(batch.num_envs)
    flags = np.zeros((2, batch.num_envs), np.bool_)
    return StepMemory(rows, np.zeros(batch.num_envs, np.float32), *flags)


def chosen(batch: Any, random: np.random.Generator) -> np.ndarray:
    """Allowed actions."""
    masks = batch.action_masks()
    if masks is None:
        return random.integers(0, 5, batch.num_envs)
    luck = random.random(masks.shape)
    return np.where(masks, luck, -1).argmax(1)


def ended_row(ends: Ends | None, row: int) -> Any:
    if ends is None or row not in ends.env_index:
        return None
    k = int(np.flatnonzero(ends.env_index == row)[0])
    assert ends.final_obs is not None
    return ends.returns[k], ends.lengths[k], ends.truncated[k], ends.final_obs[row]


@pytest.mark.parametrize(
    "make", [make_spread, Knights, partial(Knights, squire=True), partial(Knights, leaf=True)]
)
def test_whole_episodes_are_those_of_the_parallel_api(make: Any) -> None:
    batch = ForeignBatch(make, E, backend="serial", seed=5)
    assert is_batch(batch)
    envs = [make() for _ in range(E)]
    agents = envs[0].possible_agents
    assert (batch.agents, batch.num_envs) == (tuple(agents), E * len(agents))
    assert batch.describe().agents == tuple(agents)
    batch.reset()
    seen = [env.reset(seed=env_seed(5, e))[0] for e, env in enumerate(envs)]
    totals: dict[tuple[int, str], list[float]] = {}
    out, random = memory(batch), np.random.default_rng(0)
    batch.write_obs(out.obs)
    ended = rested = 0
    for _ in range(STEPS):
        live, actions = batch.live_rows(), chosen(batch, random)
        before = out.obs.copy()
        ends = batch.write_step(actions, out)
        assert live is not None
        for e, env in enumerate(envs):
            rows = {a: e * len(agents) + k for k, a in enumerate(agents)}
            acting = list(env.agents)
            for a, r in rows.items():
                assert live[r] == (a in acting)
                expected = seen[e][a] if live[r] else np.zeros(before.shape[1])
                expected = expected["observation"] if isinstance(expected, dict) else expected
                np.testing.assert_array_equal(before[r], expected)
            obs, reward, terminated, truncated, _ = env.step({a: actions[rows[a]] for a in acting})
            for a, r in rows.items():
                if a not in acting:
                    rested += 1
                    assert (out.reward[r], out.terminated[r], out.truncated[r]) == (0, 0, 0)
                    assert ended_row(ends, r) is None
                    continue
                totals.setdefault((e, a), []).append(float(reward[a]))
                assert out.reward[r] == np.float32(reward[a])
                assert (out.terminated[r], out.truncated[r]) == (terminated[a], truncated[a])
                found = ended_row(ends, r)
                assert (found is not None) == bool(terminated[a] or truncated[a])
                if found is not None:
                    ended += 1
                    rewards = totals.pop((e, a))
                    assert found[:2] == (np.float32(sum(rewards)), len(rewards))
                    assert found[2] == (truncated[a] and not terminated[a])
                    last = obs[a]["observation"] if isinstance(obs[a], dict) else obs[a]
                    np.testing.assert_array_equal(found[3], last)
            seen[e] = obs if env.agents else env.reset()[0]
    assert ended > 9
    assert (rested > 9) == (make is not make_spread)


@pytest.mark.parametrize("make", [make_spread, partial(Knights, squire=True, leaf=True)])
def test_the_same_for_any_number_of_workers(make: Any) -> None:
    def played(**options: Any) -> list[np.ndarray]:
        batch = ForeignBatch(make, 4, seed=3, **options)
        batch.reset()
        out, random, found = memory(batch), np.random.default_rng(1), []
        for _ in range(25):
            ends = batch.write_step(chosen(batch, random), out)
            found += [np.copy(part) for part in out] + [batch.live_rows()]
            if ends is not None:
                found += [ends.env_index, ends.returns, ends.lengths, ends.truncated]
                found += [np.asarray(ends.final_obs)[ends.env_index]]
        batch.close()
        return found

    wanted = played(backend="serial")
    for options in (
        {"backend": "threads", "workers": 2},
        {"backend": "processes", "workers": 1},
        {"backend": "processes", "workers": 2},
        {"backend": "processes", "workers": 4},
    ):
        for one, other in zip(wanted, played(**options), strict=True):
            np.testing.assert_array_equal(one, other, str(options))


def test_an_aec_environment_is_the_same() -> None:
    results = []
    for make in (make_spread, partial(spread.env, N=3, max_cycles=12)):
        batch = ForeignBatch(make, 2, backend="serial", seed=1)
        batch.reset()
        out, random = memory(batch), np.random.default_rng(2)
        rows = []
        for _ in range(30):
            batch.write_step(chosen(batch, random), out)
            rows += [np.copy(part) for part in out]
        results.append(rows)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            "raise",
            r"environment 0 \(knights_v0\) raised in step\(\): RuntimeError: the dragon came",
        ),
        ("nan", r"agent 'bob' of environment 0 \(knights_v0\) gave a reward that is NaN"),
        ("shape", r"agent 'bob' of environment 0 .* gave an observation of shape \(5,\)"),
        ("stranger", r"has the agent 'dragon', who is not among its possible_agents"),
        ("left", r"agent 'bob' .* no longer in env.agents, but was neither terminated nor"),
        ("missing", r"agent 'bob' .* acted, and is missing in terminated of step\(\)"),
        ("flag", r"agent 'bob' .* gave 'no' for truncated, not True or False .*action 1\)"),
        ("number", r"agent 'bob' .* gave the reward 'much', which is no number"),
        ("unseen", r"agent 'bob' of environment 0 .* gave an observation that is NaN at \[1\]"),
        ("unseen at last", r"agent 'ann' of environment 0 .* gave an observation that is NaN"),
        ("list", r"environment 0 .* gave \[.* for the rewards of step\(\), not a dict of agents"),
        ("quit", r"environment 0 \(knights_v0\) raised in step\(\): SystemExit: 5"),
    ],
)
def test_what_goes_wrong_names_environment_and_agent(how: str, sentence: str) -> None:
    batch = ForeignBatch(partial(Knights, how), 2, backend="serial", seed=1)
    batch.reset()
    out = memory(batch)
    with pytest.raises(ForeignEnvError, match=sentence) as raised:  # noqa: PT012
        for _ in range(9):
            batch.write_step(batch.action_masks().argmax(1), out)  # type: ignore[union-attr]
    assert (raised.value.env_index, raised.value.seed) == (0, env_seed(1, 0))


def test_agents_of_a_process_that_ended_are_truncated() -> None:
    batch = ForeignBatch(
        partial(Knights, "exit"),
        2,
        backend="processes",
        workers=2,
        seed=1,
        on_worker_death="restart",
    )
    batch.reset()
    out = memory(batch)
    for t in range(4):
        live = batch.live_rows()
        assert live is not None
        masks = batch.action_masks()
        assert masks is not None
        ends = batch.write_step(masks.argmax(1), out)
        assert t == 3 or ends is None
    assert ends is not None
    np.testing.assert_array_equal(ends.env_index, np.flatnonzero(live))
    assert (ends.truncated.all(), ends.lengths.tolist()) == (True, [4] * len(ends.lengths))
    assert batch.live_rows().all()  # type: ignore[union-attr]
    batch.close()


@pytest.mark.parametrize("leaf", [False, True])
def test_steps_are_measured_with_allowed_actions(leaf: bool) -> None:
    batch = ForeignBatch(partial(Knights, leaf=leaf), 1)
    assert batch.backend_reason.startswith("serial: there is one environment")


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_masks_that_policies_see(backend: str) -> None:
    options: dict[str, Any] = {"backend": backend, "workers": 1, "mask_in_obs": True}
    batch = ForeignBatch(partial(Knights, leaf=True), 1, **options)
    obs, _ = batch.reset(seed=0)
    assert obs["observation"].shape == (3, 2)
    np.testing.assert_array_equal(obs["action_mask"], batch.action_masks())
    batch.close()


def test_what_is_refused() -> None:
    with pytest.raises(ForeignEnvError, match=r"observation_space of 'cid' .* supersuit.pad"):
        ForeignBatch(partial(Knights, "spaces"), 1)
    with pytest.raises(ForeignEnvError, match=r"Knights.step\(\) must return .*, got tuple of 4"):
        ForeignBatch(partial(Knights, "four"), 1)
    with pytest.raises(ForeignEnvError, match=r"two dicts of agents from reset\(\)"):
        ForeignBatch(partial(Knights, "one"), 1)
    with pytest.raises(ValueError, match="has several agents"):
        AsyncEnvPool(Knights, 2, backend="serial")
    tictactoe = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    with pytest.raises(ForeignEnvError, match="take turns"):
        ForeignBatch(tictactoe.env, 1)
    batch = ForeignBatch(Knights, 2, backend="serial")
    with pytest.raises(ValueError, match="all rows of an environment, or none"):
        batch.reset(seed=0), batch.reset(options={"reset_mask": np.arange(6) == 1})
    batch.reset(options={"reset_mask": np.arange(6) < 3})
    assert batch.why_not_saved == "Knights has no get_state() and set_state()"


def test_limits_for_evaluation() -> None:
    batch = ForeignBatch(Knights, 2, backend="serial")
    playing = batch.for_evaluation(4, 3)
    assert playing.num_envs == 6
    playing.reset(seed=0)
    out = memory(playing)
    for t in range(7):
        masks = playing.action_masks()
        assert masks is not None
        ends = playing.write_step(masks.argmax(1), out)
        assert (ends is not None) == (t % 3 == 2)
        if ends is not None:
            assert (ends.truncated.all(), ends.lengths.tolist()) == (True, [3] * 6)


class Watch(Callback):
    """Keeps the metrics."""

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.last = dict(metrics)


def trained(batch: Any, **options: Any) -> PPO:
    return PPO(
        batch, num_steps=16, minibatches=3, epochs=2, hidden=[8], device="cpu", seed=2, **options
    )


def test_training_on_simple_spread() -> None:
    watch, ppo = Watch(), trained(ForeignBatch(make_spread, 4, backend="serial"))
    ppo.learn(2 * 12 * 16, callbacks=watch)
    assert (ppo.steps, ppo.engine.name) == (384, "eager")
    assert "rest at times" in ppo.engine_reason
    returns = [watch.last[f"return/agent_{k}"] for k in range(3)]
    assert np.isclose(np.mean(returns), watch.last["mean_return"])
    assert len(ppo.evaluated().greedy.returns) == ppo.config.run.eval_episodes


def test_returns_of_agents_are_in_a_checkpoint(tmp_path: Path) -> None:
    ppo = trained(ForeignBatch(Knights, 4, backend="serial"))
    ppo.learn(12 * 16)
    with pytest.warns(UserWarning, match="Knights has no get_state"):
        ppo.save(tmp_path)
    again = PPO.load(tmp_path, ForeignBatch(Knights, 4, backend="serial"))
    assert list(again.agent_returns.recent) == ["ann", "bob", "cid"]
    assert again.agent_returns.recent == ppo.agent_returns.recent
    assert np.isfinite(list(again.agent_returns.figures().values())).all()


class Changed(ForeignBatch):
    """Gives rows that rest something else to see."""

    filler = 0.0

    def _fill(self, obs: Any) -> None:
        live = self.live_rows()
        assert live is not None
        obs[~live] = self.filler

    def write_obs(self, out: Any) -> None:
        super().write_obs(out)
        self._fill(out)

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        ends = super().write_step(actions, out)
        self._fill(out.obs)
        return ends


@pytest.mark.parametrize("normalize", [False, True])
def test_rows_that_rest_do_not_influence_the_weights(normalize: bool) -> None:
    weights = []
    for filler in (0.0, 7.5):
        batch = Changed(Knights, 4, backend="serial")
        batch.filler = filler
        ppo = trained(batch, normalize_obs=normalize, normalize_reward=normalize)
        ppo.learn(3 * 12 * 16)
        assert not ppo.buffer.arrays["live"].all()
        weights.append(ppo.policy.state_dict())
    for name, tensor in weights[0].items():
        np.testing.assert_array_equal(tensor, weights[1][name], name)


@pytest.mark.parametrize("apart", [False, True])
def test_rows_that_rest_do_not_influence_bonuses(apart: bool) -> None:
    ends = []
    for filler in (0.0, 7.5):
        batch = Changed(partial(Knights, squire=True), 4, backend="serial")
        batch.filler = filler
        options = {"intrinsic.separate_value": apart, "intrinsic.random_steps": 64}
        ppo = trained(batch, intrinsic=["rnd", "icm", "count"], **options)
        ppo.learn(3 * 16 * 16, callbacks=(watch := Watch()))
        assert not ppo.buffer.arrays["live"].all()
        own = ppo.add_ons.state()["add_on_intrinsic"]
        del own["bonus_count.last"]  # knows what was seen last, whoever saw it
        figures = {name: x for name, x in watch.last.items() if name.startswith("intrinsic")}
        ends.append(own | figures | dict(ppo.policy.state_dict()))
    for name, found in ends[0].items():
        np.testing.assert_array_equal(found, ends[1][name], name)


def test_a_rollout_in_which_all_rest_pays_no_bonus() -> None:
    options = {"intrinsic": ["rnd", "count"], "intrinsic.random_steps": 16}
    ppo = trained(ForeignBatch(Knights, 2, backend="serial"), **options)
    ppo.learn(6 * 16)
    ppo.engine.collect(1, 16)
    ppo.buffer.arrays["live"][...] = False
    ppo.buffer.arrays["reward"][...] = 0
    (intrinsic,) = ppo.add_ons
    before = {k: v for k, v in intrinsic.state().items() if "adam" in k or "bonus_rnd" in k}
    intrinsic.after_collect(ppo, ppo.buffer)
    assert (ppo.buffer.reward == 0).all()
    after = intrinsic.state()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], name)
    assert np.isnan(intrinsic.update(ppo, ppo.buffer)["rnd_loss"])


def test_a_rollout_in_which_all_rest() -> None:
    ppo = trained(ForeignBatch(Knights, 2, backend="serial"))
    ppo.engine.collect(0, 0)
    ppo.buffer.arrays["live"][...] = False
    ppo.engine.advantages()
    before = [p.clone() for p in ppo.policy.parameters()]
    figures = ppo.engine.update(0, 1e-3, 0.2)
    assert np.isnan(figures["policy_loss"])
    for one, other in zip(before, ppo.policy.parameters(), strict=True):
        assert one.equal(other)
    ppo.buffer.arrays["live"][3, 1] = True  # fewer than minibatches
    assert ppo.engine.update(0, 1e-3, 0.2)["epochs"] == 2


class Counting(Knights):
    """Knights who see and choose a number that counts from another than 0."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(4, start=3)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3, start=1)

    def _seen(self, who: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return dict.fromkeys(who, 3 + self._t % 4), {a: {} for a in who}

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(1 <= action <= 3 for action in actions.values())
        return super().step(dict.fromkeys(actions, (self._t + 1) % 3))


def test_rows_that_rest_show_what_the_space_has() -> None:
    ppo = trained(ForeignBatch(Counting, 4, backend="serial"))
    ppo.learn(12 * 16)
    live, obs = ppo.buffer.arrays["live"], ppo.buffer.arrays["obs"][: ppo.buffer.num_steps]
    assert not live.all()
    assert (obs[~live.astype(bool)] == 3).all()


def test_a_time_limit_holds_for_agents() -> None:
    ppo = PPO(make_spread, num_envs=2, num_steps=8, max_episode_steps=4, backend="serial")
    assert ppo.env.describe().max_episode_steps == 4
    lengths = []

    class Lengths(Callback):
        def on_episodes(self, trainer: Any, episodes: Any) -> None:
            lengths.extend(episodes.lengths.tolist())

    ppo.learn(48, callbacks=Lengths())
    assert set(lengths) == {4}
