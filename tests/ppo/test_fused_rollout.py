"""Rollouts and advantages of the fused engine against the eager one, and against a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import operant
from operant.buffers.advantages import gae
from operant.lang import to_float
from operant.models import PPO
from operant.models.actor_critic import ContinuousActorCritic
from operant.ppo.kernels.cpu import layout
from operant.training.episodes import Episodes

Tasks = dict[str, type[operant.Env]]
DISCRETE = ("Turns", "Doors", "Knobs", "Switches")
CONTINUOUS = ("Push", "Arm")
ENVS = (1, 7, 65, 130)
STEPS = 20
# PPO without what the defaults add to it: nothing normalised, no entropy, one learning rate.
PLAIN: dict[str, Any] = {
    "minibatches": 4,
    "normalize_obs": False,
    "normalize_reward": False,
    "entropy_coef": 0.0,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(engine: str, env: Any, by_state: bool = False, **options: Any) -> PPO:
    """A trainer whose policy is not the even one that it starts with."""
    settings = {**PLAIN, "num_envs": 65, "num_steps": STEPS, "seed": 5, "threads": 2, **options}
    policy = None
    if by_state:
        del settings["normalize_obs"]
        torch.manual_seed(0)
        spaces = env.observation_space, env.action_space
        policy = ContinuousActorCritic(*spaces, hidden=(24, 24), state_dependent_std=True)
    else:
        settings.setdefault("hidden", (24, 24))
    ppo = PPO(env, engine=engine, policy=policy, backend="cpu", **settings)
    assert ppo.engine.name == engine, ppo.engine_reason
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=random)
    normalizer = getattr(ppo.policy, "obs_normalizer", None)
    if normalizer is not None:  # some observations are beyond its limits
        normalizer.update(torch.randn(99, *normalizer.mean.shape, generator=random) * 0.05 + 0.1)
    return ppo


def pair(env: Any, **options: Any) -> tuple[PPO, PPO]:
    return made("fused", env, **options), made("eager", env, **options)


def same_episodes(a: Episodes, b: Episodes) -> None:
    for name in ("env_index", "step", "returns", "lengths", "truncated"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def compare(fused: PPO, eager: PPO) -> None:
    """Two rollouts of each; discrete actions, so that all that follows from them is the same."""
    for iteration in range(2):
        same_episodes(*(p.engine.collect(iteration, iteration * STEPS) for p in (fused, eager)))
        ours, theirs = fused.engine.buffer, eager.engine.buffer
        for name in ("action", "obs", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name], err_msg=name)
        np.testing.assert_array_equal(ours.final_place, theirs.final_place)
        np.testing.assert_array_equal(ours.final_obs, theirs.final_obs)
        for name in ("log_prob", "value", "last_value"):
            close(ours.arrays[name], theirs.arrays[name])
        cut = theirs.arrays["truncated"] & ~theirs.arrays["terminated"]
        close(ours.arrays["final_value"][cut], theirs.arrays["final_value"][cut])
        states = fused.env.get_state(), eager.env.get_state()
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# Against the eager engine -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("task", "envs"),
    [*product(("Turns",), ENVS), *product(("Doors", "Knobs", "Switches"), (7, 130))],
)
def test_discrete_rollouts_are_the_eager_ones(tasks: Tasks, task: str, envs: int) -> None:
    fused, eager = pair(tasks[task], num_envs=envs)
    compare(fused, eager)
    if envs > 1:
        buffer = fused.engine.buffer
        assert buffer.terminated.any()
        assert (buffer.truncated & ~buffer.terminated).any()
        assert len(np.unique(buffer.arrays["action"])) > 1


@pytest.mark.parametrize(
    "options",
    [
        {"normalize_obs": True},
        {"normalize_obs": True, "shared": True, "hidden": (16,), "activation": "relu"},
        {"shared": True, "activation": "silu", "hidden": (8, 8, 8)},
        {"seed": 2**40 + 3},
        {"max_episode_steps": 1, "num_envs": 130},
        {"max_episode_steps": 3, "num_envs": 130},
        {"workers": 2, "num_envs": 130},
        {"threads": 5, "num_envs": 130},
        {"num_envs": 1030},  # larger tiles
    ],
    ids=str,
)
def test_options(tasks: Tasks, options: dict[str, Any]) -> None:
    compare(*pair(tasks["Turns"], **options))


def test_built_in_environments() -> None:
    compare(*pair("CartPole-v1", num_envs=70, max_episode_steps=11))


def test_no_time_limit(tasks: Tasks) -> None:
    compare(*pair(type("Endless", (tasks["Turns"],), {"max_episode_steps": None})))


def test_steps_beyond_32_bits_draw_their_own_numbers(tasks: Tasks) -> None:
    fused, eager = pair(tasks["Turns"], num_envs=7)
    for ppo in (fused, eager):
        ppo.engine.collect(0, 2**32 - 3)
    actions = fused.engine.buffer.arrays["action"]
    np.testing.assert_array_equal(actions, eager.engine.buffer.arrays["action"])


def test_the_extremes_of_a_draw(tasks: Tasks) -> None:
    """With seed 5, environment 32 draws 0.0 at step 105169, and environment 61 the largest number
    below 1 at step 219513: neither a masked action nor one that does not exist comes of it."""
    fused, eager = pair(tasks["Turns"], num_envs=64, num_steps=1, hidden=(8,))
    random = np.random.default_rng(0)
    for _ in range(40):
        bias = torch.from_numpy(random.standard_normal(3).astype(np.float32))
        for ppo in (fused, eager):
            with torch.no_grad():
                ppo.policy.actor_head.weight.zero_()
                ppo.policy.actor_head.bias.copy_(bias)
            ppo.engine.collect(0, 219513)
            assert ppo.engine.buffer.action[0, 61] == 2
            with torch.no_grad():
                ppo.policy.actor_head.bias[0] = -torch.inf
            ppo.engine.collect(0, 105169)
            assert ppo.engine.buffer.action[0, 32] == 1


@pytest.mark.parametrize("by_state", [False, True], ids=["parameters", "by state"])
@pytest.mark.parametrize(("task", "envs"), [("Push", 1), ("Push", 65), ("Arm", 7), ("Arm", 130)])
def test_continuous_rollouts_are_near_the_eager_ones(
    tasks: Tasks, task: str, envs: int, by_state: bool
) -> None:
    """Actions are rounded otherwise in their last bit; what follows from them differs as much."""
    fused, eager = pair(tasks[task], num_envs=envs, by_state=by_state)
    ours, theirs = (p.engine.collect(0, 0) for p in (fused, eager))
    for name in ("env_index", "step", "lengths", "truncated"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    arrays, others = fused.engine.buffer.arrays, eager.engine.buffer.arrays
    np.testing.assert_array_equal(arrays["obs"][0], others["obs"][0])
    for name in ("action", "log_prob", "value", "reward", "last_value", "final_value", "obs"):
        np.testing.assert_allclose(arrays[name], others[name], 1e-4, 1e-4, err_msg=name)
    close(arrays["action"][0], others["action"][0])
    low, high = fused.distribution.low, fused.distribution.high
    assert ((arrays["action"] < low) | (arrays["action"] > high)).any() or envs == 1


# Against a plain loop -----------------------------------------------------------------------------
@pytest.mark.parametrize("task", [*DISCRETE, *CONTINUOUS])
def test_a_rollout_is_what_policy_and_environment_do(tasks: Tasks, task: str) -> None:
    ppo = made("fused", tasks[task], num_envs=70)
    ppo.engine.collect(0, 0)  # so that episodes are under way
    twin = operant.make(tasks[task], 70, backend="cpu", autoreset_mode="SameStep")
    twin.set_state(ppo.env.get_state())
    for iteration in (1, 2, 3):  # and by hand in between, with what the engine left behind
        action = check_rollout(ppo, twin, iteration)
        for _ in range(9):
            results = [env.step(action) for env in (ppo.env, twin)]
            for ours, theirs in zip(results[0][:4], results[1][:4], strict=True):
                np.testing.assert_array_equal(ours, theirs)
        assert_same_states(ppo.env, twin)
    old = twin.get_state()
    for env in (ppo.env, twin):
        env.reset(seed=3)
        env.step(action)
    check_rollout(ppo, twin, 4)
    for env in (ppo.env, twin):
        env.set_state(old)
    check_rollout(ppo, twin, 5)


def check_rollout(ppo: PPO, twin: Any, iteration: int) -> Any:
    """Collect, and do the same with a twin of the environments; the last action."""
    start = twin.get_state()["obs"]
    episodes = ppo.engine.collect(iteration, iteration * STEPS)
    buffer, arrays = ppo.engine.buffer, ppo.engine.buffer.arrays
    np.testing.assert_array_equal(arrays["obs"][0], start)
    ends, finals, action = [], [], None
    for t in range(STEPS):
        with torch.no_grad():
            head, value = ppo.policy(buffer.obs[t])
            log_prob, _ = ppo.distribution.evaluate(head, buffer.action[t])
        close(arrays["value"][t], value)
        close(arrays["log_prob"][t], log_prob)
        action = ppo.distribution.to_env(buffer.action[t]).numpy()
        obs, reward, terminated, truncated, info = twin.step(action)
        np.testing.assert_array_equal(arrays["obs"][t + 1], obs)
        np.testing.assert_array_equal(arrays["reward"][t], reward)
        np.testing.assert_array_equal(arrays["terminated"][t], terminated)
        np.testing.assert_array_equal(arrays["truncated"][t], truncated)
        for i in np.flatnonzero(terminated | truncated):
            report = info["episode"]
            ends.append((i, t, report["r"][i], report["l"][i], truncated[i] & ~terminated[i]))
        for i in np.flatnonzero(truncated & ~terminated):
            finals.append(t * 70 + i)
            last = torch.from_numpy(info["final_obs"][i : i + 1])
            with torch.no_grad():
                close(arrays["final_value"][t, i], ppo.policy.value(last)[0])
    np.testing.assert_array_equal(buffer.final_place, finals)
    found = [getattr(episodes, name) for name in ("env_index", "step", "returns", "lengths")]
    assert list(zip(*found, episodes.truncated, strict=True)) == ends
    with torch.no_grad():
        close(buffer.last_value, ppo.policy.value(buffer.obs[STEPS]))
    assert_same_states(ppo.env, twin)
    return action


def assert_same_states(one: Any, other: Any) -> None:
    ours, theirs = one.get_state(), other.get_state()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


class Dice(operant.Env):
    """Ends by chance; returns are whole numbers, so that all backends agree on them to the bit."""

    class State(NamedTuple):
        count: int
        luck: float

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(3)

    def reset(random: Any) -> Any:
        return Dice.State(0, random[0])

    def step(state: Any, action: Any, random: Any) -> Any:
        return Dice.State(state.count + 1, random[0]), to_float(action) + 1.0, random[1] < 0.04

    def observe(state: Any) -> Any:
        return to_float(state.count), state.luck


def tile_0_last(ppo: PPO, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the thread that claimed the first tile was not run before the others had finished."""
    engine = ppo.engine
    run, arguments = engine._kernels.run, engine._arguments

    def otherwise(name: str, tile: int, threads: int) -> None:
        if name != "collect":
            return run(name, tile, threads)
        function, control = engine._kernels.functions[name].ctypes, arguments.arrays["control"]
        tiles = 3
        arguments.set(tile=tile)
        for first, end in ((1, tiles), (0, 1)):
            control[:] = 0
            control[layout.TILES_CLAIMED] = first
            arguments.set(env_tiles=end)
            function(0, arguments.address)
        arguments.set(env_tiles=tiles)

    assert arguments["env_tiles"] == 3
    monkeypatch.setattr(engine._kernels, "run", otherwise)


@pytest.mark.parametrize("late", [False, True], ids=["in order", "tile 0 last"])
@pytest.mark.parametrize(("limit", "steps"), [(1, 2), (2, 3), (3, 2), (5, 1), (5, 2)])
def test_reports_of_steps_by_hand(
    monkeypatch: pytest.MonkeyPatch, limit: int, steps: int, late: bool
) -> None:
    """Between rollouts: of every environment, and 0 where no episode ended. The twin was never
    stepped otherwise, and by another backend."""
    ppo = made("fused", Dice, num_envs=130, num_steps=steps, max_episode_steps=limit)
    twin = operant.make(
        Dice, 130, backend="reference", autoreset_mode="SameStep", max_episode_steps=limit
    )
    twin.set_state(ppo.env.get_state())
    if late:
        tile_0_last(ppo, monkeypatch)
    random, ended = np.random.default_rng(0), []
    for iteration in range(6):
        episodes = ppo.engine.collect(iteration, iteration * steps)
        found = {}
        for t, action in enumerate(ppo.engine.buffer.arrays["action"]):
            _, _, terminated, truncated, info = twin.step(action)
            for i in np.flatnonzero(terminated | truncated):
                found[t, i] = info["episode"]["r"][i], info["episode"]["l"][i]
        places = zip(episodes.step, episodes.env_index, strict=True)
        results = zip(episodes.returns, episodes.lengths, strict=True)
        assert dict(zip(places, results, strict=True)) == found
        for _ in range(1 + iteration % 2):
            action = random.integers(0, 3, 130)
            ours, theirs = (env.step(action)[4] for env in (ppo.env, twin))
            assert ours.keys() == theirs.keys()
            np.testing.assert_array_equal(ours["_episode"], theirs["_episode"])
            for name in ("r", "l"):
                np.testing.assert_array_equal(ours["episode"][name], theirs["episode"][name])
            ended.append(theirs["_episode"].sum())
    assert max(ended) > 64  # more than a tile has environments
    assert min(ended) < 64 or limit == 1


@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_a_step_counter_at_its_end(tasks: Tasks, engine: str) -> None:
    """Without a time limit, 2**31 - 1 steps are one."""
    endless = type("Endless", (tasks["Push"],), {"max_episode_steps": None})
    ppo = made(engine, endless, num_envs=70)
    for iteration, ahead in enumerate((3, 1, 2)):
        state = ppo.env.get_state()
        state["steps"] = np.full_like(state["steps"], 2**31 - 1 - ahead)
        ppo.env.set_state(state)
        episodes = ppo.engine.collect(iteration, iteration * STEPS)
        buffer = ppo.engine.buffer
        cut = buffer.arrays["truncated"] & ~buffer.arrays["terminated"]
        assert (cut.sum(0) <= 1).all()
        assert cut[ahead - 1].sum() == cut.sum() > 10
        np.testing.assert_array_equal(buffer.final_place, np.flatnonzero(cut))
        assert (episodes.lengths[episodes.truncated] == 2**31 - 1).all()
        with torch.no_grad():
            values = ppo.policy.value(torch.from_numpy(buffer.final_obs))
        close(buffer.arrays["final_value"][cut], values)


# Advantages ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("task", "envs"), [("Turns", 1), ("Turns", 65), ("Push", 7), ("Push", 130)]
)
def test_advantages(tasks: Tasks, task: str, envs: int) -> None:
    ppo = made("fused", tasks[task], num_envs=envs, gamma=0.9, gae_lambda=0.7)
    ppo.engine.collect(0, 0)
    ppo.engine.advantages()
    a = ppo.engine.buffer.arrays
    names = ("reward", "value", "terminated", "truncated", "final_value", "last_value")
    advantage, target = gae(*[a[name] for name in names], 0.9, 0.7)
    close(a["advantage"], advantage)
    close(a["target"], target)
    assert np.abs(a["advantage"]).max() > 0.1


def test_advantages_by_hand(tasks: Tasks) -> None:
    """Terminated: nothing follows. Truncated: the value of the last observation does."""
    ppo = made("fused", tasks["Turns"], num_envs=1, num_steps=4, gamma=0.5, gae_lambda=0.5)
    ppo.engine.collect(0, 0)
    a = ppo.engine.buffer.arrays
    for name, values in {
        "reward": [1.0, 2.0, 3.0, 4.0],
        "value": [0.5, 1.0, -1.0, 2.0],
        "terminated": [False, True, False, False],
        "truncated": [False, False, True, False],
        "final_value": [9.0, 9.0, 8.0, 9.0],
    }.items():
        a[name][:, 0] = values
    a["last_value"][0] = 6.0
    ppo.engine.advantages()
    last = 4 + 0.5 * 6 - 2
    cut, dead = 3 + 0.5 * 8 + 1, 2.0 - 1.0
    wanted = [1 + 0.5 * 1 - 0.5 + 0.25 * dead, dead, cut, last]
    np.testing.assert_allclose(a["advantage"][:, 0], wanted)
    np.testing.assert_allclose(a["target"][:, 0], np.add(wanted, [0.5, 1.0, -1.0, 2.0]))


def test_normalised_rewards(tasks: Tasks) -> None:
    """Over two rollouts: the running returns go on from one to the next."""
    fused, eager = pair(tasks["Turns"], normalize_reward=True)
    for iteration in range(2):
        for ppo in (fused, eager):
            ppo.engine.collect(iteration, iteration * STEPS)
            ppo.engine.advantages()
        for name in ("reward", "advantage", "target"):
            close(fused.engine.buffer.arrays[name], eager.engine.buffer.arrays[name])
        assert fused.engine.buffer.reward.std() < 2
    ours, theirs = fused.engine.state(), eager.engine.state()
    np.testing.assert_array_equal(ours["return_carry"], theirs["return_carry"])
