"""A batch can be pickled and copied: the copy goes on as the original does."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import operant
from operant.envs import CartPole, CartPoleVecEnv
from operant.vector.native import load

WAYS = [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy, copy.copy]
N = 5


def check_same(one: Any, other: Any, steps: int = 40) -> None:
    for _ in range(steps):
        actions = one.action_space.sample()
        np.testing.assert_array_equal(actions, other.action_space.sample())
        results = [batch.step(actions) for batch in (one, other)]
        for mine, theirs in zip(results[0][:4], results[1][:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        mine, theirs = (np.asarray(result[4].get("_episode", False)) for result in results)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_copy_goes_on_to_the_bit_and_alone(way: Any, backend: str, mode: str) -> None:
    env = operant.make(
        "CartPole-v1", N, backend=backend, autoreset_mode=mode, gravity=5.0, max_episode_steps=30
    )
    env.reset(seed=3)
    env.action_space.seed(4)
    for _ in range(25):
        env.step(env.action_space.sample())
    twin = way(env)
    assert type(twin) is type(env)
    assert twin.rules.params == env.rules.params
    assert twin.backend_reason == env.backend_reason
    before = twin.get_state()
    state = env.get_state()
    check_same(env, twin)
    np.testing.assert_equal(before, state)
    twin.reset(seed=9)
    assert (env.get_state()["seed"] != twin.get_state()["seed"]).all()


def test_a_batch_that_was_never_reset_keeps_its_seed() -> None:
    env = operant.make("CartPole-v1", N, backend="reference", seed=7)
    twin = copy.deepcopy(env)
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])


def test_a_subclass_and_what_was_written_on_it() -> None:
    env = CartPoleVecEnv(N, backend="reference")
    env.note = {"mine": 1}
    twin = pickle.loads(pickle.dumps(env))
    assert type(twin) is CartPoleVecEnv
    assert twin.note == {"mine": 1}


@pytest.mark.parametrize("way", WAYS[:2])
def test_wrapped_by_gymnasium(way: Any) -> None:
    made = gymnasium.make_vec("operant:operant/CartPole-v1", num_envs=N, backend="reference")
    env = RecordEpisodeStatistics(made)
    env.reset(seed=1)
    env.action_space.seed(1)
    twin = way(env)
    assert twin.unwrapped.spec.id == "operant/CartPole-v1"
    check_same(env, twin)


@pytest.mark.parametrize("way", WAYS[:2])
def test_one_environment_of_gymnasiums(way: Any) -> None:
    env = gymnasium.make("operant:operant/CartPole-v1", backend="reference")
    env.reset(seed=1)
    twin = way(env)
    for action in (0, 1, 1):
        np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])


@pytest.mark.usefixtures("interpreter")
def test_a_batch_on_a_gpu() -> None:
    env = operant.make("CartPole-v1", N, backend="cuda")
    env.reset(seed=3)
    env.action_space.seed(4)
    twin = pickle.loads(pickle.dumps(env))
    check_same(env, twin, 3)


def test_a_library(build_library: Any) -> None:
    env = operant.make(load(build_library("examples/native/snake.c")), 2)
    env.reset(seed=1)
    env.action_space.seed(1)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.rules.env is env.rules.env
    check_same(env, twin, 5)


def test_a_class_that_pickle_cannot_find() -> None:
    class Inside(CartPole):
        pass

    env = operant.make(Inside, N, backend="reference")
    env.reset(seed=1)
    env.action_space.seed(1)
    with pytest.raises(TypeError, match=r"Inside is defined inside a function.*env\.get_state\(\)"):
        pickle.dumps(env)
    check_same(env, copy.deepcopy(env), 5)


def test_a_closed_batch_has_no_state_to_copy() -> None:
    env = operant.make("CartPole-v1", N, backend="reference")
    env.close()
    with pytest.raises(ValueError, match="this environment is closed"):
        pickle.dumps(env)
