"""When finished environments begin again, and what is said of the episode that ended.

The rules are checked against a slow oracle that steps one environment at a time in plain Python,
and against Gymnasium's own ``SyncVectorEnv``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import operant
from operant.compiler.philox import uniforms

from ..environments import Walk

pytestmark = pytest.mark.usefixtures("unseen_test")

BACKENDS = ("reference", "cpu")
MODES = ("NextStep", "SameStep", "Disabled")
SEED = 11


class Oracle:
    """One environment of a batch, by the book; statistics in a Python loop."""

    def __init__(self, seed: int, index: int, limit: int, mode: str) -> None:
        self.stream = (np.uint64(seed), index)
        self.limit, self.mode = limit, mode
        self.episode = -1
        self.over = False

    def random(self) -> tuple[float, ...]:
        return tuple(float(u) for u in uniforms(*self.stream, self.episode, self.steps, 2))

    def reset(self) -> tuple[float, ...]:
        self.episode += 1
        self.steps, self.total, self.over = 0, 0.0, False
        self.state = Walk.reset(self.random())
        return Walk.observe(self.state)

    def step(self, action: int) -> dict[str, Any]:
        """obs, reward, terminated, truncated; and what the info must say, or None."""
        result: dict[str, Any] = {"episode": None, "final_obs": None}
        if self.over and self.mode == "NextStep":
            return result | {
                "obs": self.reset(),
                "reward": 0.0,
                "terminated": False,
                "truncated": False,
            }
        assert not self.over
        self.steps += 1
        self.state, reward, terminated = Walk.step(self.state, action, self.random())
        self.total += reward
        truncated = self.steps >= self.limit
        obs = Walk.observe(self.state)
        if terminated or truncated:
            self.over = True
            result["episode"] = (self.total, self.steps)
            if self.mode == "SameStep":
                result["final_obs"] = obs
                obs = self.reset()
        return result | {
            "obs": obs,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }


def make(backend: str, mode: str, num_envs: int = 70, **options: Any) -> operant.VecEnv:
    return operant.make(Walk, num_envs, backend=backend, autoreset_mode=mode, **options)


def actions_for(num_envs: int, steps: int) -> np.ndarray:
    return np.random.default_rng(3).integers(-1, 2, (steps, num_envs))


def check_step(result: tuple[Any, ...], expected: list[dict[str, Any]], mode: str) -> None:
    obs, reward, terminated, truncated, info = result
    assert obs.tolist() == [list(e["obs"]) for e in expected]
    assert reward.tolist() == [e["reward"] for e in expected]
    assert terminated.tolist() == [e["terminated"] for e in expected]
    assert truncated.tolist() == [e["truncated"] for e in expected]
    done = [e["episode"] is not None for e in expected]
    if not any(done):
        assert info == {}
        return
    check_report(info, expected, done)
    if mode != "SameStep":
        assert set(info) == {"episode", "_episode"}
        return
    assert set(info) == {
        *("episode", "_episode", "final_obs", "_final_obs", "final_info", "_final_info"),
    }
    assert info["final_obs"].shape == obs.shape
    assert info["final_obs"].dtype == obs.dtype
    assert info["_final_obs"].tolist() == done
    assert info["final_obs"][done].tolist() == [
        list(e["final_obs"]) for e in expected if e["final_obs"] is not None
    ]
    assert info["_final_info"].tolist() == done
    check_report(info["final_info"], expected, done)


def check_report(info: dict[str, Any], expected: list[dict[str, Any]], done: list[bool]) -> None:
    """Exact for those who finished, zero for the others."""
    assert info["_episode"].dtype == np.bool_
    assert info["_episode"].tolist() == done
    report = info["episode"]
    assert set(report) == {"r", "l", "t"}
    assert report["r"].tolist() == [(e["episode"] or (0.0, 0))[0] for e in expected]
    assert report["l"].tolist() == [(e["episode"] or (0.0, 0))[1] for e in expected]
    assert (report["t"] >= 0.0).all()
    assert (report["t"][~info["_episode"]] == 0.0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [None, 1, 5, 1000])
def test_equals_the_oracle(backend: str, mode: str, limit: int | None) -> None:
    env = make(backend, mode, max_episode_steps=limit, workers=2)
    oracles = [Oracle(SEED, i, limit or 12, mode) for i in range(70)]
    obs, info = env.reset(seed=SEED)
    assert info == {}
    assert obs.tolist() == [list(oracle.reset()) for oracle in oracles]

    reasons = set()
    for actions in actions_for(70, 60):
        expected = [o.step(int(a)) for o, a in zip(oracles, actions, strict=True)]
        result = env.step(actions)
        check_step(result, expected, mode)
        reasons |= {(e["terminated"], e["truncated"]) for e in expected}
        finished = result[2] | result[3]
        if mode == "Disabled" and finished.any():
            obs, info = env.reset(options={"reset_mask": finished})
            assert info == {}
            seen = [
                o.reset() if f else e["obs"]
                for o, e, f in zip(oracles, expected, finished, strict=True)
            ]
            assert obs.tolist() == [list(values) for values in seen]
    assert (True, False) in reasons or limit == 1
    assert (False, True) in reasons or limit == 1000
    env.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_equals_gymnasium_sync_vector_env(backend: str, mode: AutoresetMode) -> None:
    """Gymnasium seeds environment i with seed + i; a list of seeds does the same here."""

    def single() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make("operant/CartPole-v1", backend=backend, max_episode_steps=15)
        return gymnasium.wrappers.RecordEpisodeStatistics(env)

    theirs = SyncVectorEnv([single] * 5, autoreset_mode=mode)
    ours = operant.make(
        "CartPole-v1", 5, backend=backend, autoreset_mode=mode, max_episode_steps=15
    )
    np.testing.assert_array_equal(
        ours.reset(seed=[40, 41, 42, 43, 44])[0], theirs.reset(seed=40)[0]
    )
    rng = np.random.default_rng(0)
    episodes = 0
    for _ in range(100):
        actions = (rng.random(5) < 0.8).astype(np.int64)
        our_results, their_results = ours.step(actions), theirs.step(actions)
        for a, b in zip(our_results[:4], their_results[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        info, their_info = our_results[4], their_results[4]
        if mode == AutoresetMode.NEXT_STEP:
            assert set(info) == set(their_info)
        else:  # theirs is inside final_info alone; ours is at the top as well
            assert set(info) == set(their_info) | ({"episode", "_episode"} if info else set())
        if not info:
            continue
        inside = their_info if mode == AutoresetMode.NEXT_STEP else their_info["final_info"]
        np.testing.assert_array_equal(info["_episode"], inside["_episode"])
        np.testing.assert_array_equal(info["episode"]["r"], inside["episode"]["r"])
        np.testing.assert_array_equal(info["episode"]["l"], inside["episode"]["l"])
        episodes += int(info["_episode"].sum())
        if mode == AutoresetMode.SAME_STEP:
            np.testing.assert_array_equal(info["_final_obs"], their_info["_final_obs"])
            for i in np.flatnonzero(info["_final_obs"]):
                np.testing.assert_array_equal(info["final_obs"][i], their_info["final_obs"][i])
    assert episodes > 20
    ours.close()
    theirs.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_next_step_ignores_the_action_of_the_reset_step(backend: str) -> None:
    """Twins act differently only while they are being reset; nothing else differs."""
    one, two = make(backend, "NextStep"), make(backend, "NextStep")
    one.reset(seed=SEED)
    two.reset(seed=SEED)
    pending = np.zeros(70, np.bool_)
    resets = 0
    for actions in actions_for(70, 60):
        other = np.where(pending, -actions, actions)
        results, others = one.step(actions), two.step(other)
        for a, b in zip(results[:4], others[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert (results[1][pending] == 0.0).all()
        assert not (results[2] | results[3])[pending].any()
        resets += int((pending & (actions != 0)).sum())
        pending = results[2] | results[3]
    assert resets > 100


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_returns_are_the_float32_sums_of_the_rewards(backend: str, env_id: str, mode: str) -> None:
    """To the bit, although these rewards are no round numbers: summed in order, in float32."""
    env = operant.make(env_id, 67, backend=backend, autoreset_mode=mode, max_episode_steps=17)
    env.reset(seed=SEED)
    env.action_space.seed(0)
    sums, lengths = [np.float32(0)] * 67, [0] * 67
    begins = [False] * 67
    reported = finished = 0
    total = reported_total = np.float64(0)
    for _ in range(120):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        for i in range(67):
            if begins[i]:
                begins[i] = False
                continue
            sums[i] = np.float32(sums[i] + reward[i])
            lengths[i] += 1
            total += reward[i]
            if not (terminated[i] or truncated[i]):
                continue
            finished += 1
            assert info["_episode"][i]
            assert info["episode"]["r"][i] == sums[i]
            assert info["episode"]["l"][i] == lengths[i]
            reported_total += info["episode"]["r"][i]
            sums[i], lengths[i] = np.float32(0), 0
            begins[i] = mode == "NextStep"
        reported += int(info["_episode"].sum()) if info else 0
    assert reported == finished >= 67 * (120 // 18)
    unfinished = sum(float(s) for s in sums)
    assert reported_total + unfinished == pytest.approx(total, rel=1e-5)
    state = env.get_state()
    running = ~np.array(begins)  # those that await their reset keep their last episode's
    assert state["episode_return"][running].tolist() == np.array(sums)[running].tolist()
    assert state["steps"][running].tolist() == np.array(lengths)[running].tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reward_that_is_a_bare_product_is_rounded_before_it_is_summed(backend: str) -> None:
    """A fused multiply-add must not give a return other than the sum of the rewards handed out."""
    env = operant.make(Product, 200, backend=backend)
    env.reset(seed=SEED)
    sums = np.zeros(200, np.float32)
    for _ in range(29):
        _, reward, *_ = env.step(np.ones(200, np.int64))
        sums += reward
    info = env.step(np.ones(200, np.int64))
    sums += info[1]
    np.testing.assert_array_equal(info[4]["episode"]["r"], sums)
    assert len(np.unique(sums)) > 190


class Product(operant.Env):
    class State(NamedTuple):
        x: float
        y: float

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 30

    def reset(random):
        return Product.State(random[0], 0.7 + random[1])

    def step(state, action):
        return Product.State(state.x * 0.97, state.y), state.x * state.y, False

    def observe(state):
        return (state.x,)


class Endless(Walk):
    max_episode_steps = None


def test_without_a_limit_nothing_is_truncated() -> None:
    env = operant.make(Endless, 5, backend="reference")
    assert env.max_episode_steps is None
    env.reset(seed=0)
    truncations = [env.step(np.zeros(5, np.int64))[3].any() for _ in range(40)]
    assert not any(truncations)
    assert env.get_state()["steps"].max() > 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_limit_is_the_environments_own_unless_overridden(backend: str) -> None:
    for asked, limit in ((None, 12), (3, 3), (np.int64(7), 7)):
        env = make(backend, "SameStep", 64, max_episode_steps=asked)
        assert env.max_episode_steps == limit
        env.reset(seed=0)
        truncations = 0
        for _ in range(30):
            *_, truncated, info = env.step(np.zeros(64, np.int64))
            lengths = info["episode"]["l"] if info else np.zeros(64)
            assert lengths.max() <= limit
            np.testing.assert_array_equal(truncated, lengths == limit)
            truncations += int(truncated.sum())
        assert truncations > 64


# DISABLED ---------------------------------------------------------------------------------------


def run_until_finished(env: operant.VecEnv) -> np.ndarray:
    """Step until some, but not all, have finished; who."""
    for actions in actions_for(env.num_envs, 60):
        _, _, terminated, truncated, _ = env.step(actions)
        finished: np.ndarray = terminated | truncated
        if finished.any():
            assert not finished.all()
            return finished
    raise AssertionError("nothing finished")


@pytest.mark.parametrize("backend", BACKENDS)
def test_disabled_refuses_to_step_a_finished_environment(backend: str) -> None:
    env = make(backend, "Disabled")
    env.reset(seed=SEED)
    finished = run_until_finished(env)
    first = int(np.flatnonzero(finished)[0])
    before = env.get_state()
    sentence = (
        rf"environment {first} has finished and autoreset is disabled; call "
        r"reset\(options=\{'reset_mask': terminated \| truncated\}\) first"
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=sentence):
            env.step(np.zeros(70, np.int64))
    for name, value in env.get_state().items():
        np.testing.assert_array_equal(value, before[name])

    env.reset(options={"reset_mask": finished})
    env.step(np.zeros(70, np.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_disabled_goes_on_refusing_until_all_finished_ones_are_reset(backend: str) -> None:
    env = make(backend, "Disabled", max_episode_steps=4)
    env.reset(seed=SEED)
    finished = run_until_finished(env)
    while finished.sum() < 2:
        env.reset(options={"reset_mask": finished})
        finished = run_until_finished(env)
    first, second = np.flatnonzero(finished)[:2]
    rest = finished.copy()
    rest[second] = False
    env.reset(options={"reset_mask": rest})
    with pytest.raises(ValueError, match=f"environment {second} has finished"):
        env.step(np.zeros(70, np.int64))
    one = np.zeros(70, np.bool_)
    one[second] = True
    env.reset(options={"reset_mask": one})
    env.step(np.zeros(70, np.int64))
    assert first != second


@pytest.mark.parametrize("backend", BACKENDS)
def test_disabled_goes_on_after_a_full_reset(backend: str) -> None:
    env = make(backend, "Disabled")
    env.reset(seed=SEED)
    run_until_finished(env)
    env.reset()
    env.step(np.zeros(70, np.int64))
    assert (env.get_state()["steps"] == 1).all()


# A part of the batch ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [None, 5])
def test_a_partial_reset_touches_only_the_masked(backend: str, mode: str, seed: Any) -> None:
    env, twin = make(backend, mode), make(backend, mode)
    for e in (env, twin):
        e.reset(seed=SEED)
        run_until_finished(e)  # some are pending, or were just reported
    before = env.get_state()
    mask = np.random.default_rng(1).random(70) < 0.4
    done = np.flatnonzero(before["done"])
    mask[done if mode == "Disabled" else done[:1]] = True
    if mode != "Disabled":
        mask[done[1:]] = False  # they stay pending
        assert len(done) > 1
    obs, info = env.reset(seed=seed, options={"reset_mask": mask})
    if mode == "Disabled":
        twin.reset(options={"reset_mask": before["done"]})
    assert info == {}
    after = env.get_state()
    for name, value in after.items():
        np.testing.assert_array_equal(value[~mask], before[name][~mask], err_msg=name)
    np.testing.assert_array_equal(obs, after["obs"])
    assert not after["done"][mask].any()
    assert (after["steps"][mask] == 0).all()
    assert (after["episode_return"][mask] == 0).all()
    if seed is None:
        np.testing.assert_array_equal(after["episode"][mask], before["episode"][mask] + 1)
    else:
        assert (after["episode"][mask] == 1).all()
        assert (after["seed"][mask] == seed).all()

    for actions in actions_for(70, 8):  # the others go on as if nothing had happened
        results, others = env.step(actions), twin.step(actions)
        for a, b in zip(results[:4], others[:4], strict=True):
            np.testing.assert_array_equal(a[~mask], b[~mask])
        if mode == "Disabled":
            for e, r in ((env, results), (twin, others)):
                finished = r[2] | r[3]
                if finished.any():
                    e.reset(options={"reset_mask": finished})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("partial", [False, True])
def test_reports_of_those_reset_by_hand_do_not_come_back(
    backend: str, mode: str, partial: bool
) -> None:
    """Who finished, and was then reset by the caller, is not in a later report."""
    env = make(backend, mode)
    env.reset(seed=SEED)
    finished = run_until_finished(env)
    env.reset(options={"reset_mask": finished} if partial else None)
    for actions in actions_for(70, 20):
        *_, info = env.step(actions)
        if info:
            others = ~info["_episode"]
            assert others.any()
            for values in info["episode"].values():
                assert (values[others] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_finished_environment_reset_by_hand_is_not_reset_again(backend: str) -> None:
    env = make(backend, "NextStep")
    env.reset(seed=SEED)
    finished = run_until_finished(env)
    env.reset(options={"reset_mask": finished})
    episodes = env.get_state()["episode"]
    env.step(np.zeros(70, np.int64))
    after = env.get_state()
    np.testing.assert_array_equal(after["episode"], episodes)
    assert (after["steps"][finished] == 1).all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_mode_may_be_named_in_three_ways(mode: AutoresetMode) -> None:
    for name in (mode, mode.value, mode.name):
        env = operant.make("CartPole-v1", 2, backend="reference", autoreset_mode=name)
        assert env.autoreset_mode is mode
        assert env.metadata["autoreset_mode"] is mode
