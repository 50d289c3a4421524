"""The ``cuda`` backend in Triton's interpreter: equal to ``reference`` to the bit, and what is
particular to it. A launch takes 10 to 50 ms here, so episodes and runs are short."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

import operant
from operant.lang import abs, logical_not, normal, randint, sin, to_float, where

from .gpu_batches import (
    assert_same,
    assert_same_state,
    assert_same_step,
    random_actions,
    run_both,
)

MODES = ("NextStep", "SameStep", "Disabled")
CLASSIC = [
    *[("CartPole-v1", mode) for mode in MODES],
    ("MountainCar-v0", "NextStep"),
    ("MountainCarContinuous-v0", "Disabled"),
    ("Pendulum-v1", "SameStep"),
    ("Acrobot-v1", "SameStep"),
]
"""The interpreter is slow: every environment, and every mode, but not every pair."""
N = 100

pytestmark = pytest.mark.usefixtures("interpreter")


class Walk(operant.Env):
    """Draws in each step; fields of all three kinds; a mask; parameters of all kinds."""

    class Params(NamedTuple):
        reach: float = 3.0
        slope: float = 0.1
        rests: bool = True
        width: int = 5

    class State(NamedTuple):
        place: int
        energy: float
        lucky: bool

    observation_space = Box(-100.0, 100.0, (3,), np.float32)
    action_space = Discrete(3, start=-1)
    max_episode_steps = 3
    random_numbers = 3

    def reset(random, params):
        place = randint(random[0], params.width) - 2
        return Walk.State(place, random[1] - random[2], random[1] < 0.5)

    def step(state, action, random, params):
        place = state.place + action + where(random[0] < 0.25, 1, 0)
        energy = state.energy + params.slope * where(state.lucky, random[2], -0.25)
        after = Walk.State(place, energy, random[1] < 0.5)
        return after, params.slope * to_float(place) + energy, abs(to_float(place)) > params.reach

    def observe(state):
        return (to_float(state.place), state.energy, where(state.lucky, 1.0, 0.0))

    def action_mask(state, params):
        left = to_float(state.place) - 0.5 * state.energy > -params.reach
        return (left, params.rests, state.lucky | (state.place < 1) | logical_not(left))


class Levers(operant.Env):
    """MultiDiscrete actions that do not begin at 0, and observations of integers."""

    class State(NamedTuple):
        left: int
        right: int
        locked: bool

    observation_space = MultiDiscrete([9, 9, 2])
    action_space = MultiDiscrete([4, 2], start=[-2, 0])
    max_episode_steps = 3
    random_numbers = 2

    def reset(random):
        return Levers.State(randint(random[0], 9), randint(random[1], 9), random[0] < 0.1)

    def step(state, action):
        left = (state.left + where(state.locked, 0, action[0])) % 9
        right = (state.right + left * action[1]) % 9
        after = Levers.State(left, right, (left == right) ^ (action[1] == 1))
        return after, 0.25 * to_float(left - right), (left == 0) & (right == 0)

    def observe(state):
        return (state.left, state.right, where(state.locked, 1, 0))

    def action_mask(state):
        turns = [abs(state.left + k - 4) < 4 for k in (-2, -1, 0, 1)]
        return [*turns[:2], True, turns[3], ~state.locked, True]


class Corridor(operant.Env):
    """A Discrete observation, switches as actions, and constants for reward and termination."""

    class State(NamedTuple):
        place: int

    observation_space = Discrete(7)
    action_space = MultiBinary(2)
    max_episode_steps = 3
    random_numbers = 1

    def reset(random):
        return Corridor.State(randint(random[0], 7))

    def step(state, action):
        return Corridor.State((state.place + action[0] - action[1]) % 7), -1.0, False

    def observe(state):
        return state.place


class Grid(operant.Env):
    """More columns than one tile has, a Box of actions, and a choice by parameters alone."""

    class Params(NamedTuple):
        gain: float = 0.3
        limit: float = 2.0

    class State(NamedTuple):
        x: float
        y: float

    observation_space = Box(-1e6, 1e6, (3, 3), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    max_episode_steps = 3
    random_numbers = 5

    def reset(random, params):
        bias = where(params.gain > params.limit, 5.0, params.gain * params.limit)
        return Grid.State(normal(random[0], random[1]) + bias, random[4])

    def step(state, action, params):
        x = state.x + params.gain * action[0]
        y = state.y - action[1] / params.limit
        return Grid.State(x, y), sin(x) * y, x * x + y * y > params.limit

    def observe(state, params):
        x, y = state
        return (x, y, 1.0, x * y, x + y, x - y, params.gain, sin(x), x / params.limit)


class Dice(Corridor):
    """Draws more numbers in a step than one block of the generator has."""

    max_episode_steps = 2
    random_numbers = 6

    def step(state, action, random):
        place = (state.place + randint(random[5], 6) + action[0]) % 7
        return Corridor.State(place), random[1] - random[4], random[0] < 0.1


class Namesake(operant.Env):
    """Fields and parameters with names that kernels use."""

    class Params(NamedTuple):
        steps: float = 0.5
        obs: float = 2.0

    class State(NamedTuple):
        steps: int
        done: bool
        episode: float
        seed: float
        row: int

    observation_space = Box(-1e6, 1e6, (5,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 3
    random_numbers = 1

    def reset(random, params):
        return Namesake.State(7, random[0] < 0.5, random[0], params.steps, 0)

    def step(state, action, params):
        steps, done, episode, seed, row = state
        after = Namesake.State(steps + 2, ~done, episode * params.obs, seed + 1.0, row + action)
        return after, episode, row > 1

    def observe(state):
        steps, done, episode, seed, row = state
        return (to_float(steps), to_float(done), episode, seed, to_float(row))


OWN = [
    *[(Levers, mode) for mode in MODES],
    (Walk, "SameStep"),
    (Corridor, "Disabled"),
    (Grid, "NextStep"),
    (Dice, "NextStep"),
    (Namesake, "SameStep"),
]


def make(env: Any, num_envs: int = N, mode: str = "NextStep", **options: Any) -> Any:
    return operant.make(env, num_envs, backend="cuda", autoreset_mode=mode, **options)


def make_both(env: Any, num_envs: int = N, mode: str = "NextStep", **options: Any) -> list[Any]:
    """The batch under test, and the reference."""
    options |= {"autoreset_mode": mode}
    return [operant.make(env, num_envs, backend=name, **options) for name in ("cuda", "reference")]


# Against the reference --------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mode"), CLASSIC)
def test_classic_environments(name: str, mode: str) -> None:
    env, reference = make_both(name, 129, mode, max_episode_steps=3)
    assert_same(env.reset(seed=3)[0], reference.reset(seed=3)[0])
    assert run_both(env, reference, random_actions(env, 8)) >= 2 * 129
    assert_same_state(env, reference)


@pytest.mark.parametrize(("env_class", "mode"), OWN)
def test_environments_of_ones_own(env_class: type[operant.Env], mode: str) -> None:
    env, reference = make_both(env_class, 70, mode)
    assert_same(env.reset(seed=2**63 + 5)[0], reference.reset(seed=2**63 + 5)[0])
    assert run_both(env, reference, random_actions(env, 7)) >= 70
    assert_same_state(env, reference)


@pytest.mark.parametrize(
    ("num_envs", "mode"), [(1, "SameStep"), (7, "NextStep"), (128, "Disabled")]
)
def test_sizes_of_batches(num_envs: int, mode: str) -> None:
    env, reference = make_both(Walk, num_envs, mode, max_episode_steps=2)
    assert_same(env.reset(seed=0)[0], reference.reset(seed=0)[0])
    run_both(env, reference, random_actions(env, 4))
    assert_same_state(env, reference)


def test_ends_of_episodes_in_the_middle_of_a_pole() -> None:
    """CartPole falls before the limit: some terminate, others go on, at different times."""
    env, reference = make_both("CartPole-v1", N, "SameStep")
    env.reset(seed=0)
    reference.reset(seed=0)
    for batch in (env, reference):  # further than reset() would
        batch.set_state({"state.theta": np.linspace(-0.2, 0.2, N, dtype=np.float32)})
    assert 10 < run_both(env, reference, random_actions(env, 6)) < N
    assert_same_state(env, reference)


def test_parameters() -> None:
    options = {"gravity": 1.6, "length": 2.5, "max_episode_steps": 2, "sutton_barto_reward": True}
    env, reference = make_both("CartPole-v1", N, **options)
    plain = make("CartPole-v1", max_episode_steps=2)
    for batch in (env, reference, plain):
        batch.reset(seed=1)
    actions = random_actions(env, 4)
    assert run_both(env, reference, actions) == N  # NEXT_STEP: the third step is the reset
    plain.step(actions[0])
    plain.step(actions[1])
    assert (plain.buffers["obs"].numpy() != env.get_state()["obs"]).any()


def test_parameters_of_ones_own_environment() -> None:
    env, reference = make_both(Walk, 64, "SameStep", reach=1.5, slope=-0.7, rests=False, width=3)
    assert_same(env.reset(seed=4)[0], reference.reset(seed=4)[0])
    run_both(env, reference, random_actions(env, 4))
    assert_same_state(env, reference)


class Meeting(Corridor):
    """Ends where its parameters say so among themselves."""

    class Params(NamedTuple):
        low: float = 1.0
        high: float = 2.0

    def step(state, action, params):
        over = (state.place > 3) & (params.low < params.high)
        return Corridor.State((state.place + action[0]) % 7), -1.0, over


def test_comparisons_of_parameters() -> None:
    env, reference = make_both(Meeting, 20)
    env.reset(seed=0)
    reference.reset(seed=0)
    run_both(env, reference, random_actions(env, 3))


def test_no_limit() -> None:
    class Endless(Corridor):
        max_episode_steps = None

    env, reference = make_both(Endless, 5)
    env.reset(seed=0)
    reference.reset(seed=0)
    assert run_both(env, reference, random_actions(env, 4)) == 0


def test_the_same_seed_gives_the_same_and_another_seed_something_else() -> None:
    batches = [make(Walk), make(Walk), make(Walk)]
    states = []
    for batch, seed in zip(batches, (1, 1, 2), strict=True):
        batch.reset(seed=seed)
        for row in random_actions(batch, 3):
            batch.step(row)
        states.append(batch.get_state())
    assert all(states[0][name].tobytes() == states[1][name].tobytes() for name in states[0])
    assert (states[0]["obs"] != states[2]["obs"]).any()


# Disabled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_class", [Walk, Levers])
def test_a_finished_environment_waits_as_it_is(env_class: type[operant.Env]) -> None:
    env, reference = make_both(env_class, N, "Disabled", max_episode_steps=2)
    env.reset(seed=0)
    reference.reset(seed=0)
    actions = random_actions(env, 6)
    half = np.arange(N) % 2 == 0
    for row in actions[:2]:
        env.step(row)
    before = env.get_state()
    assert before["done"].all()
    for row in actions[2:4]:
        _, reward, terminated, truncated, info = env.step(row)
        for tensor in (reward, terminated, truncated, info["_episode"], *info["episode"].values()):
            assert not tensor.any()
    after = env.get_state()
    for name in set(after) - {"reward", "terminated", "truncated"}:
        assert_same(after[name], before[name], name)
    env.reset(options={"reset_mask": torch.from_numpy(half)})
    assert env.get_state()["done"].tolist() == (~half).tolist()
    _, reward, *_ = env.step(actions[4])
    assert not reward[torch.from_numpy(~half)].any()
    assert env.get_state()["steps"].tolist() == np.where(half, 1, before["steps"]).tolist()
    for name, array in env.get_state().items():
        if name not in ("reward", "terminated", "truncated"):
            assert_same(array[~half], before[name][~half], name)


# Seeds and resets -------------------------------------------------------------------------------


def test_seeds_one_by_one() -> None:
    env, reference = make_both(Walk, 7)
    seeds = [5, 2**64 - 1, 5, 0, 2**40, 7, 7]
    assert_same(env.reset(seed=seeds)[0], reference.reset(seed=seeds)[0])
    run_both(env, reference, random_actions(env, 4))
    some = [None, 1, None, 2, None, None, 3]
    assert_same(env.reset(seed=some)[0], reference.reset(seed=some)[0])
    run_both(env, reference, random_actions(env, 3))
    assert_same_state(env, reference)
    numbers = np.arange(7)
    wanted = reference.reset(seed=numbers)[0].copy()
    assert_same(env.reset(seed=numbers)[0], wanted)
    assert_same(env.reset(seed=torch.arange(7))[0], wanted)
    assert_same(env.reset(seed=tuple(range(7)))[0], wanted)


def test_seeds_at_first_with_some_left_out() -> None:
    """Those left out belong to the stream of the batch's own seed."""
    env, reference = make_both(Walk, 7, seed=9)
    some = [None, 1, None, 2, None, None, 3]
    assert_same(env.reset(seed=some)[0], reference.reset(seed=some)[0])
    run_both(env, reference, random_actions(env, 4))
    assert_same_state(env, reference)


def test_partial_resets_with_and_without_a_seed() -> None:
    env, reference = make_both(Walk, N, seed=1)
    first = {"reset_mask": np.arange(N) == 3}
    assert_same(env.reset(options=first)[0], reference.reset(options=first)[0])  # everyone begins
    run_both(env, reference, random_actions(env, 1))
    mask = np.arange(N) % 3 == 0
    for seed in (None, 7, None, list(range(N))):
        wanted = reference.reset(seed=seed, options={"reset_mask": mask})[0]
        assert_same(env.reset(seed=seed, options={"reset_mask": mask})[0], wanted)
        run_both(env, reference, random_actions(env, 1))
        mask = ~mask
    assert_same_state(env, reference)


def test_a_reset_without_a_seed_goes_on_in_the_stream() -> None:
    env, reference = make_both(Walk, N, seed=11)
    seen = []
    for _ in range(3):
        obs, info = env.reset()
        assert info == {}
        assert_same(obs, reference.reset()[0])
        seen.append(obs.clone())
    assert not torch.equal(seen[0], seen[1])
    assert env.get_state()["episode"].tolist() == [3] * N
    env.reset(seed=11)
    assert torch.equal(env.buffers["obs"], seen[0])


def test_a_batch_without_a_seed_draws_one() -> None:
    one, two = make(Walk), make(Walk)
    assert not torch.equal(one.reset()[0], two.reset()[0])
    seeds = one.get_state()["seed"]
    assert (seeds == seeds[0]).all()


def test_a_seed_also_seeds_gymnasiums_generator() -> None:
    env, other = make(Corridor, 2), make(Corridor, 2)
    env.reset(seed=3)
    other.reset(seed=3)
    assert env.np_random.random() == other.np_random.random()


def test_a_reset_clears_the_last_results() -> None:
    env = make(Corridor, 8, max_episode_steps=1)
    env.reset(seed=0)
    *_, info = env.step(np.zeros((8, 2), np.int64))
    assert info["episode"]["l"].tolist() == [1] * 8
    mask = np.arange(8) < 4
    env.reset(options={"reset_mask": mask})
    state = env.get_state()
    assert state["truncated"].tolist() == (~mask).tolist()
    assert state["reward"].tolist() == [0.0] * 4 + [-1.0] * 4


BAD_RESETS = [
    ({"seed": -1}, ValueError, "seed must be between 0"),
    ({"seed": 1.5}, TypeError, "seed must be an int, got float 1.5"),
    ({"seed": True}, TypeError, "seed must be an int, got bool"),
    ({"seed": [1, 2]}, ValueError, "one for each of 7 environments, got 2"),
    ({"seed": [1, 2, 3, 4, 5, 6, 2**64]}, ValueError, "seed must be between 0"),
    ({"options": {"mask": 1}}, ValueError, "unknown reset option 'mask'"),
    ({"options": {"reset_mask": [True] * 7}}, TypeError, "must be a bool tensor or array"),
    ({"options": {"reset_mask": torch.ones(7)}}, TypeError, "must be a bool tensor or array"),
    ({"options": {"reset_mask": np.ones(6, np.bool_)}}, ValueError, r"shape \(7,\), got \(6,\)"),
]


@pytest.mark.parametrize("ready", [True, False])
def test_refused_resets_change_nothing(ready: bool) -> None:
    env = make(Walk, 7, seed=1)
    if ready:
        env.reset()
        env.step(np.zeros(7, np.int64))
    before = env._read()
    for arguments, error, message in BAD_RESETS:
        with pytest.raises(error, match=message):
            env.reset(**arguments)
        for name, array in env._read().items():
            assert_same(array, before[name], name)


# State ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["cuda", "reference"])
def test_the_other_backend_goes_on_from_the_state(source: str, mode: str) -> None:
    """In the middle of episodes, with resets pending, into a batch that was never reset."""
    first = operant.make(Walk, N, backend=source, autoreset_mode=mode)
    first.reset(seed=[*range(50), *[7] * 50])
    actions = random_actions(first, 6)
    for row in actions[:2]:
        first.step(row)
        done = first.get_state()["done"]
        if mode == "Disabled" and done.any():
            first.reset(options={"reset_mask": done})
    state = first.get_state()
    assert state["done"].any() or len(set(state["steps"].tolist())) > 1
    target = "reference" if source == "cuda" else "cuda"
    second = operant.make(Walk, N, backend=target, autoreset_mode=mode)
    assert_same(second.set_state(state), state["obs"])
    assert_same_state(first, second)
    assert_same(first.action_masks(), np.asarray(second.action_masks()))
    env, reference = (first, second) if source == "cuda" else (second, first)
    assert run_both(env, reference, actions[2:]) > 0
    assert_same_state(env, reference)


def test_going_back_in_the_same_batch() -> None:
    env, reference = make_both(Levers, N, "SameStep")
    env.reset(seed=0)
    reference.reset(seed=0)
    actions = random_actions(env, 5)
    run_both(env, reference, actions[:2])
    state = env.get_state()
    run_both(env, reference, actions[2:])
    for batch in (env, reference):
        batch.set_state(state)
    run_both(env, reference, actions[2:])
    assert_same_state(env, reference)


def test_a_part_of_the_state_gives_new_observations_and_masks() -> None:
    env, reference = make_both(Walk)
    for batch in (env, reference):
        batch.reset(seed=1)
    part = {"state.place": np.arange(N) % 9 - 4, "state.energy": torch.linspace(-1, 1, N).numpy()}
    wanted = reference.set_state(part)
    assert_same(env.set_state({**part, "state.place": torch.arange(N) % 9 - 4}), wanted)
    assert_same(env.action_masks(), reference.action_masks())
    assert_same_state(env, reference)


def test_observations_that_are_given_are_kept() -> None:
    env = make(Walk, 7)
    env.reset(seed=0)
    given = np.full((7, 3), 0.125, np.float32)
    assert_same(env.set_state({"state.place": np.full(7, -50), "obs": given}), given)
    assert not env.action_masks()[:, 0].any()
    env.set_state({"obs": env.buffers["obs"]})  # a view of themselves
    assert_same(env.buffers["obs"], given)


def test_another_stream_can_be_set() -> None:
    """Common to all or not: the kernels take different ways."""
    env, reference = make_both(Walk, 7)
    for batch in (env, reference):
        batch.reset(seed=1)
    state = env.get_state()
    for seed in (np.full(7, 2**63, np.uint64), np.arange(7, dtype=np.uint64)):
        part = {"seed": seed, "episode": state["episode"]}
        env.set_state(part)
        reference.set_state(part)
        assert_same(env.reset()[0], reference.reset()[0])
    part = {"index": np.zeros(7, np.uint32), "seed": np.full(7, 3, np.uint64)}
    env.set_state(part)
    reference.set_state(part)
    assert_same(env.reset()[0], reference.reset()[0])


def test_reports_of_another_time_do_not_come_back() -> None:
    """Back to the middle of episodes that had ended and been reported since."""
    env, reference = make_both(Walk, N, "SameStep")
    for batch in (env, reference):
        batch.reset(seed=0)
    actions = random_actions(env, 3)
    run_both(env, reference, actions[:1])
    state = env.get_state()
    assert run_both(env, reference, actions[1:]) >= N // 2
    for batch in (env, reference):
        batch.set_state(state)
    run_both(env, reference, actions[2:])


def test_seconds_of_episodes() -> None:
    env = make(Corridor, 7, "SameStep", max_episode_steps=1)
    before = time.perf_counter()
    env.reset(seed=0)
    for _ in range(2):
        time.sleep(0.02)
        *_, info = env.step(np.zeros((7, 2), np.int64))
        assert (info["episode"]["t"] > 0.0199).all()
        assert (info["episode"]["t"] < time.perf_counter() - before).all()


def test_time_of_an_episode_begins_where_the_state_was_set() -> None:
    env, fresh = make(Corridor, 7, max_episode_steps=1), make(Corridor, 7, max_episode_steps=1)
    env.reset(seed=1)
    fresh.set_state(env.get_state())
    *_, info = fresh.step(np.zeros((7, 2), np.int64))
    assert info["_episode"].all()
    assert ((info["episode"]["t"] >= 0.0) & (info["episode"]["t"] < 60.0)).all()


BAD_STATES = [
    ({"state.plaice": np.zeros(7, np.int32)}, "unknown entry 'state.plaice'.*'state.place'"),
    ({"state.place": np.zeros(6, np.int32)}, r"'state.place' must have shape \(7,\), got \(6,\)"),
    ({"obs": torch.zeros(7, 2)}, r"'obs' must have shape \(7, 3\), got \(7, 2\)"),
    ({"state.place": torch.zeros(7)}, "'state.place' must be int32, got float32"),
    ({"state.lucky": np.zeros(7, np.int32)}, "'state.lucky' must be bool, got int32"),
    ({"seed": np.full(7, -1)}, "'seed' must be uint64, got int64"),
    ({"steps": np.full(7, 2**40)}, "'steps'.*int32.*1099511627776"),
    ({"state.energy": np.full(7, 1e39)}, "'state.energy'.*float32.*1e\\+39"),
]


def test_a_refused_state_changes_nothing() -> None:
    env = make(Walk, 7, seed=1)
    env.reset()
    env.step(np.zeros(7, np.int64))
    before = env.get_state()
    for entry, message in BAD_STATES:
        good = {name: np.zeros_like(value) for name, value in before.items() if name not in entry}
        for state in ({**good, **entry}, entry | good):
            with pytest.raises(ValueError, match=message):
                env.set_state(state)
            for name, array in env.get_state().items():
                assert_same(array, before[name], name)


def test_a_batch_that_was_never_reset_needs_the_whole_state() -> None:
    env, fresh = make(Corridor, 7), make(Corridor, 7)
    env.reset(seed=1)
    state = env.get_state()
    part = {k: v for k, v in state.items() if k not in ("episode", "done")}
    with pytest.raises(ValueError, match=r"the state lacks done, episode; .*reset\(\) first"):
        fresh.set_state(part)
    with pytest.raises(ValueError, match=r"step\(\) before reset\(\)"):
        fresh.step(np.zeros((7, 2), np.int64))
    fresh.reset()
    fresh.set_state(part)


def test_what_goes_out_and_in_is_copied() -> None:
    env = make(Walk, 7)
    env.reset(seed=0)
    state = env.get_state()
    kept = {name: value.copy() for name, value in state.items()}
    for value in state.values():
        value[...] = 1
    for name, array in env.get_state().items():
        assert_same(array, kept[name], name)
    given = {name: value.copy() for name, value in kept.items()}
    env.set_state(given)
    for value in given.values():
        value[...] = 1
    for name, array in env.get_state().items():
        assert_same(array, kept[name], name)


# Several steps, and results elsewhere -----------------------------------------------------------


@pytest.mark.parametrize(
    ("env_class", "mode"), [*[(Walk, mode) for mode in MODES], (Levers, "SameStep")]
)
def test_many_steps_are_as_many_single_ones(env_class: type[operant.Env], mode: str) -> None:
    many, single = make(env_class, 70, mode), make(env_class, 70, mode, copy=True)
    many.reset(seed=1)
    single.reset(seed=1)
    actions = random_actions(many, 6)
    for part in (actions[:1], actions[1:5]):
        *stacked, info = many.step_many(part)
        for k, row in enumerate(part):
            *results, wanted = single.step(row)
            for a, b in zip(stacked, results, strict=True):
                assert a.shape[0] == len(part)
                assert torch.equal(a[k], b)
            assert set(info) == set(wanted)
            ended = wanted["_episode"]
            assert torch.equal(info["_episode"][k], ended)
            for key in ("r", "l"):
                assert torch.equal(info["episode"][key][k], wanted["episode"][key])
            assert not info["episode"]["t"][k][~ended].any()
            if mode == "SameStep":
                assert torch.equal(info["final_obs"][k][ended], wanted["final_obs"][ended])
                assert torch.equal(info["_final_obs"][k], ended)
        assert torch.equal(many.action_masks(), single.action_masks())
        assert_same_state(many, single)
    after, wanted = many.step(actions[5]), single.step(actions[5])
    for key in ("r", "l"):
        assert torch.equal(after[4]["episode"][key], wanted[4]["episode"][key])
    assert_same_state(many, single)


def test_many_steps_refuse_what_a_step_refuses() -> None:
    env = make(Walk, 7)
    with pytest.raises(ValueError, match="before reset"):
        env.step_many(np.zeros((3, 7), np.int64))
    env.reset(seed=0)
    for bad in (np.zeros((3, 6), np.int64), np.zeros(7, np.int64), np.zeros((3, 7, 1), np.int64)):
        with pytest.raises(ValueError, match=r"actions must have shape \(\d, 7\)"):
            env.step_many(bad)
    with pytest.raises(TypeError, match=r"must be integers, got torch\.float64"):
        env.step_many(np.zeros((3, 7)))
    with pytest.raises(ValueError, match="at least one step"):
        env.step_many(np.zeros((0, 7), np.int64))
    assert env.get_state()["steps"].tolist() == [0] * 7


@pytest.mark.parametrize("mode", MODES)
def test_results_written_elsewhere_and_taken_over(mode: str) -> None:
    """Into the same tensors again and again, as an engine does, old reports still in them."""
    from operant.vector.gpu_env import Results

    env, twin = make(Walk, 70, mode), make(Walk, 70, mode)
    env.reset(seed=1)
    twin.reset(seed=1)
    results = Results.allocate(env.rules, (70,), env.device)
    results.report.fill_(7.0)
    before = env.buffers["obs"].clone()
    for k, row in enumerate(random_actions(env, 4)):
        env.step_into(torch.from_numpy(row), results)
        wanted = twin.step(row)
        if k == 0:
            assert torch.equal(env.buffers["obs"], before)  # not touched
        for tensor, other in zip(results[:4], wanted[:4], strict=True):
            assert torch.equal(tensor, other)
        assert torch.equal(results.action_mask, twin.action_masks())
        ended = wanted[4]["_episode"]
        returns, lengths = results.report[:, 0], results.report.view(torch.int32)[:, 1]
        assert torch.equal(returns[ended], wanted[4]["episode"]["r"][ended])
        assert torch.equal(lengths[ended], wanted[4]["episode"]["l"][ended])
        if mode == "SameStep":
            assert torch.equal(results.final_obs[ended], wanted[4]["final_obs"][ended])
    env.take_over(results)
    assert_same_state(env, twin)
    assert torch.equal(env.action_masks(), twin.action_masks())
    row = random_actions(env, 1, seed=5)[0]
    found, wanted = env.step(row), twin.step(row)
    assert all(torch.equal(a, b) for a, b in zip(found[:4], wanted[:4], strict=True))
    for key in ("r", "l"):
        assert torch.equal(found[4]["episode"][key], wanted[4]["episode"][key])


# Memory -----------------------------------------------------------------------------------------


def test_without_copies_results_stay_where_they_are() -> None:
    env = make(Walk, 70, "SameStep")
    obs, _ = env.reset(seed=0)
    addresses = set()
    for row in random_actions(env, 3):
        *results, info = env.step(row)
        tensors = [*results, info["final_obs"], info["_episode"], env.action_masks()]
        addresses.add(tuple(tensor.data_ptr() for tensor in tensors))
    assert len(addresses) == 1
    assert results[0].data_ptr() == obs.data_ptr() == env.buffers["obs"].data_ptr()


@pytest.mark.parametrize("copy", [True, False])
def test_the_report_is_a_dict_like_any_other(copy: bool) -> None:
    env = make(Corridor, 7, max_episode_steps=1, copy=copy)
    env.reset(seed=0)
    *_, info = env.step(np.zeros((7, 2), np.int64))
    report = info["episode"]
    assert set(report) == set(report.keys()) == {"r", "l", "t"}
    assert "r" in report
    assert report.get("l").tolist() == [1] * 7
    assert report.get("other") is None
    with pytest.raises(KeyError):
        report["other"]
    assert all(len(tensor) == 7 for tensor in report.values())
    assert {key: len(tensor) for key, tensor in report.items()} == {"r": 7, "l": 7, "t": 7}


def test_a_copy_of_the_report_holds_tensors() -> None:
    env = make(Corridor, 7, max_episode_steps=1)
    env.reset(seed=0)
    for copy in (dict, lambda report: {**report}):
        *_, info = env.step(np.zeros((7, 2), np.int64))
        assert all(isinstance(value, torch.Tensor) for value in copy(info["episode"]).values())


def test_copies_stay_as_they_are() -> None:
    env = make(Walk, 70, "SameStep", copy=True)
    kept = [env.reset(seed=0)[0], env.action_masks()]
    for row in random_actions(env, 3):
        *results, info = env.step(row)
        kept += [*results, info["final_obs"], info["_episode"], *info["episode"].values()]
    copies = [tensor.clone() for tensor in kept]
    assert len({tensor.data_ptr() for tensor in kept}) == len(kept)
    env.step(random_actions(env, 1)[0])
    env.reset(seed=4)
    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))
    kept[0].fill_(9.0)
    assert not (env.buffers["obs"] == 9.0).any()


def test_buffers() -> None:
    env, plain = make(Walk, 70), make(Corridor, 70)
    env.reset(seed=2**63)
    plain.reset(seed=0)
    buffers = env.buffers
    common = {"episode_return", "steps", "done", "records"}
    results = {"obs", "reward", "terminated", "truncated", "final_obs", "action_mask", "report"}
    fields = {"state_place", "state_energy", "state_lucky"}
    assert set(buffers) == fields | common | results
    assert set(plain.buffers) == {"state_place"} | common | results
    assert plain.buffers["action_mask"].shape == (70, 0)
    for name, tensor in buffers.items():
        assert len(tensor) == 70, name
        assert tensor.is_contiguous(), name
        assert np.from_dlpack(tensor).shape == tuple(tensor.shape)
    state = env.get_state()
    for name in ("place", "energy", "lucky"):
        assert_same(buffers[f"state_{name}"], state[f"state.{name}"])
    buffers["state_place"].fill_(2)  # views
    assert (env.get_state()["state.place"] == 2).all()


# Actions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a,
        lambda a: a.astype(np.int32),
        lambda a: a.tolist(),
        lambda a: torch.from_numpy(a),
        lambda a: torch.from_numpy(a).to(torch.int8),
        lambda a: torch.from_numpy(np.stack([a, a], axis=1))[:, 0],  # strides
    ],
)
def test_kinds_of_actions(convert: Any) -> None:
    env, reference = make_both(Walk, 7)
    row = random_actions(env, 1)[0]
    for batch in (env, reference):
        batch.reset(seed=0)
    assert_same_step(env, env.step(convert(row)), reference.step(row))


def test_kinds_of_float_actions() -> None:
    env, reference = make_both("Pendulum-v1", 7)
    env.reset(seed=0)
    reference.reset(seed=0)
    row = random_actions(env, 1)[0]
    for given in (row, row.astype(np.float64), row.tolist(), np.ones((7, 1), np.int64)):
        assert_same_step(env, env.step(given), reference.step(np.asarray(given)))


BAD_ACTIONS = [
    (np.zeros(6, np.int64), ValueError, r"shape \(7,\): one Discrete.* got shape \(6,\)"),
    (np.zeros((7, 1), np.int64), ValueError, r"shape \(7,\).* got shape \(7, 1\)"),
    (0, ValueError, r"got shape \(\)"),
    (np.zeros(7), TypeError, "must be integers, got torch.float64"),
    (np.zeros(7, np.bool_), TypeError, "must be integers, got torch.bool"),
    (np.zeros(7, np.complex64), TypeError, "must be integers, got torch.complex64"),
    (np.zeros(7, np.complex128), TypeError, "must be integers, got torch.complex128"),
    (["left"] * 7, TypeError, r"must be a tensor of shape \(7,\)"),
    (None, TypeError, r"must be a tensor of shape \(7,\)"),
    ([[0], [0, 1]], TypeError, r"must be a tensor of shape \(7,\)"),
]


@pytest.mark.parametrize(("actions", "error", "message"), BAD_ACTIONS)
def test_refused_actions_step_nothing(actions: Any, error: Any, message: str) -> None:
    env = make(Walk, 7)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(error, match=message):
        env.step(actions)
    for name, array in env.get_state().items():
        assert_same(array, before[name], name)


def test_floats_are_needed_for_a_box() -> None:
    env = make(Grid, 7)
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"must be floats, got torch\.bool"):
        env.step(np.zeros((7, 2), np.bool_))
    with pytest.raises(TypeError, match=r"must be floats, got torch\.complex128"):
        env.step(np.zeros((7, 2), np.complex128))
    with pytest.raises(ValueError, match=r"shape \(7, 2\)"):
        env.step(np.zeros(7, np.float32))


@pytest.mark.parametrize("bad", [2, -2, 2**40, -(2**63)])
def test_an_action_out_of_range_acts_as_the_nearest_and_is_noticed(bad: int) -> None:
    env, twin = make(Walk, 7), make(Walk, 7)
    actions = np.zeros(7, np.int64)
    actions[4] = bad
    for batch in (env, twin):
        batch.reset(seed=0)
    env.check_actions()
    env.step(actions)
    with pytest.raises(ValueError, match=r"out of range or not finite; expected Discrete\(3"):
        env.check_actions()
    env.check_actions()  # said once
    twin.step(np.clip(actions, -1, 1))
    assert_same_state(env, twin)
    env.step(actions.astype(np.int32) if abs(bad) < 9 else actions)
    with pytest.raises(ValueError, match="out of range"):
        env.get_state()
    env.get_state()
    env.step(actions)
    with pytest.raises(ValueError, match="out of range"):
        env.close()
    env.close()
    assert env.closed


def test_components_out_of_range_are_noticed() -> None:
    env = make(Levers, 7)
    env.reset(seed=0)
    for column, value in ((0, -3), (0, 2), (1, -1), (1, 2)):
        actions = np.zeros((7, 2), np.int64)
        actions[6, column] = value
        env.step(actions)
        with pytest.raises(ValueError, match="out of range"):
            env.check_actions()
    actions[6] = [-2, 1]
    env.step(actions)
    env.check_actions()


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract:RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_float_action_that_is_not_finite_is_noticed(bad: float) -> None:
    env = make(Grid, 7)
    env.reset(seed=0)
    actions = np.zeros((7, 2))
    actions[3, 1] = bad
    env.step(actions)
    with pytest.raises(ValueError, match="not finite"):
        env.get_state()
    assert np.isfinite(np.delete(env.get_state()["obs"], 3, axis=0)).all()
    actions[3, 1] = 1e30
    env.step(actions)
    env.check_actions()


def test_a_bad_action_among_many_steps_is_noticed() -> None:
    env = make(Walk, 7)
    env.reset(seed=0)
    actions = np.zeros((3, 7), np.int64)
    actions[1, 2] = 5
    env.step_many(actions)
    with pytest.raises(ValueError, match="out of range"):
        env.check_actions()


# The rest ---------------------------------------------------------------------------------------


def test_before_reset_and_after_close() -> None:
    env = make(Walk, 7)
    actions = np.zeros(7, np.int64)
    with pytest.raises(ValueError, match=r"step\(\) before reset\(\): call reset\(\) first"):
        env.step(actions)
    with pytest.raises(ValueError, match=r"no action masks yet: call reset\(\) first"):
        env.action_masks()
    with pytest.raises(ValueError, match="nothing to render yet"):
        env.render_one(0)
    env.reset(seed=0)
    state = env.get_state()
    env.close()
    env.close()
    for call in (
        lambda: env.step(actions),
        lambda: env.step_many(actions[None]),
        lambda: env.reset(),
        lambda: env.get_state(),
        lambda: env.set_state(state),
        lambda: env.action_masks(),
    ):
        with pytest.raises(ValueError, match="this environment is closed; make a new one"):
            call()


def test_pictures() -> None:
    env, reference = make_both("CartPole-v1", 3, render_mode="rgb_array")
    with pytest.warns(UserWarning, match="no picture without a render mode"):
        assert make("CartPole-v1", 3).render() is None
    for batch in (env, reference):
        batch.reset(seed=0)
        batch.step(np.ones(3, np.int64))
    assert_same(env.render_one(2), reference.render_one(2))
    pictures = env.render()
    assert [picture.shape for picture in pictures] == [(400, 600, 3)] * 3
    assert_same(pictures[1], reference.render_one(1))
    with pytest.raises(ValueError, match="index must be 0 to 2, got 3"):
        env.render_one(3)


def test_without_a_mask_there_is_none() -> None:
    env = make("CartPole-v1", 7)
    env.reset(seed=0)
    assert env.action_masks() is None
    assert env.rules.mask_size == 0


def test_what_it_says_of_itself() -> None:
    env = make("CartPole-v1", 7, "SameStep", seed=1)
    assert (env.backend, env.workers, env.num_envs) == ("cuda", 1, 7)
    assert env.device == torch.device("cpu")  # interpreted
    assert env.single_action_space == Discrete(2)
    assert env.observation_space.shape == (7, 4)
    assert env.max_episode_steps == 500
    assert env.metadata["autoreset_mode"].value == "SameStep"
    obs, _ = env.reset()
    assert env.observation_space.contains(obs.numpy())
    obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert (obs.dtype, reward.dtype) == (torch.float32, torch.float32)
    assert (terminated.dtype, truncated.dtype) == (torch.bool, torch.bool)
    assert make(Corridor, 7).reset(seed=0)[0].dtype == torch.int64


def test_options() -> None:
    assert make("CartPole-v1", 2, workers=4).workers == 1  # of threads, which it has none of
    with pytest.raises(TypeError, match="has no parameter 'gravitty'; did you mean 'gravity'"):
        make("CartPole-v1", gravitty=1.0)
    with pytest.raises(ValueError, match="autoreset_mode must be one of"):
        make("CartPole-v1", 2, "Sometimes")
    with pytest.raises(ValueError, match="num_envs must be between 1"):
        make("CartPole-v1", 0)
    with pytest.raises(ValueError, match="render_mode"):
        make("CartPole-v1", 2, render_mode="human")


def test_source_is_stable_and_shared_by_float_parameters() -> None:
    from operant.compiler.spec.rules import Rules
    from operant.vector.gpu_numbers import load_kernels

    plain = load_kernels(Rules.of(Walk))
    assert load_kernels(Rules.of(Walk, {"reach": 2.0})) is plain
    assert load_kernels(Rules.of(Walk, {"rests": False})) is not plain
    assert plain.__doc__ is not None
    assert plain.__doc__.startswith(f"Kernels of Walk, generated by operant {operant.__version__}")


def test_a_limit_that_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="max_episode_steps must be between 1"):
        make("CartPole-v1", 2, max_episode_steps=2**31)


def test_bytes() -> None:
    from operant.backends.cuda.launch import bytes_per_env, bytes_per_step
    from operant.compiler.spec.rules import Rules

    env = make(Walk, 128)
    own = [*env._memory.values(), *env._own]
    total = sum(tensor.numel() * tensor.element_size() for tensor in own)
    assert bytes_per_env(Rules.of(Walk)) == total // 128 + 1  # and who is to be reset
    moved = bytes_per_step(Rules.of(Walk), action_bytes=8)
    assert moved["state, read and written"] == 2 * (4 + 4 + 1)
    assert (moved["action"], moved["observation"], moved["action mask"]) == (8, 12, 3)
    assert "random stream" in moved
    assert "random stream" not in bytes_per_step(Rules.of(Corridor))
    assert bytes_per_step(Rules.of(Corridor))["observation"] == 8
