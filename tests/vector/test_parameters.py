"""Parameters are attributes of a batch, as they are of Gymnasium's environments."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorWrapper

import operant
from operant.envs.classic.cartpole import CartPole
from operant.lang import Arrays, float32
from operant.models import PPO

ID = "operant:operant/CartPole-v1"
BACKENDS = ("reference", "cpu")
N = 3


class Count(operant.Env):
    """An environment with a state of arrays."""

    class State(Arrays):
        x = float32[1]

    class Params(NamedTuple):
        gain: float = 1.0
        top: float = 10.0

    def observation_space(params: Any) -> Box:
        return Box(0.0, params.top, (1,), np.float32)

    action_space = Discrete(2)

    def reset(state: Any) -> None:
        state.x[0] = 0.0

    def step(state: Any, action: Any, params: Any) -> Any:
        state.x[0] += params.gain
        return state.x[0], False

    def observe(state: Any, obs: Any) -> None:
        obs[0] = state.x[0]


def cartpoles(backend: str, **options: Any) -> Any:
    return operant.make("CartPole-v1", N, backend=backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parameter_that_was_set_is_as_one_that_was_given(backend: str) -> None:
    env, twin = cartpoles(backend), cartpoles(backend, gravity=20.0)
    assert (env.gravity, twin.gravity) == (9.8, 20.0)
    env.gravity = 20
    assert env.get_attr("gravity") == env.call("gravity") == (20.0,) * N
    env.reset(seed=1)
    twin.reset(seed=1)
    for _ in range(3):
        obs = [batch.step(np.ones(N, int))[0] for batch in (env, twin)]
        np.testing.assert_array_equal(*obs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parameter_takes_effect_in_the_middle_of_an_episode(backend: str) -> None:
    env, twin = cartpoles(backend), cartpoles(backend)
    for batch in (env, twin):
        batch.reset(seed=1)
        batch.step(np.ones(N, int))
    env.set_attr("gravity", [20.0] * N)
    obs = [batch.step(np.ones(N, int))[0] for batch in (env, twin)]
    assert (obs[0] != obs[1]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_of_a_state_of_arrays(backend: str) -> None:
    env = operant.make(Count, 2, backend=backend)
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    env.gain = 2.5
    assert env.step(np.zeros(2, int))[0].tolist() == [[3.5], [3.5]]


@pytest.mark.usefixtures("interpreter")
def test_parameters_of_a_batch_on_a_gpu() -> None:
    env, twin = cartpoles("cuda"), cartpoles("cuda", gravity=20.0)
    env.gravity = 20.0
    obs = []
    for batch in (env, twin):
        batch.reset(seed=1)
        obs.append(batch.step(np.ones(N, int))[0].clone())
    assert (obs[0] == obs[1]).all()
    assert env.get_attr("gravity") == (20.0,) * N


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_through_gymnasium_and_a_wrapper(mode: str, backend: str) -> None:
    made = gymnasium.make_vec(ID, num_envs=N, vectorization_mode=mode, backend=backend)
    env = VectorWrapper(made)
    assert env.env.call("gravity") == (9.8,) * N
    env.env.set_attr("gravity", [20.0] * N)
    assert env.env.get_attr("gravity") == (20.0,) * N
    env.close()


def test_one_environment_of_gymnasiums() -> None:
    env = gymnasium.make(ID, backend="reference")
    assert env.has_wrapper_attr("gravity")
    assert env.get_wrapper_attr("gravity") == env.unwrapped.gravity == 9.8
    assert not env.has_wrapper_attr("gravty")
    env.set_wrapper_attr("gravity", 10.0)
    assert "gravity" not in vars(env)
    assert env.unwrapped.gravity == 10.0
    env.unwrapped.note = "mine"
    assert env.get_wrapper_attr("note") == "mine"


def test_other_attributes_that_all_environments_share() -> None:
    env = cartpoles("reference", render_mode="rgb_array")
    assert env.get_attr("action_space") == (Discrete(2),) * N
    assert env.call("render_mode") == ("rgb_array",) * N
    env.reset(seed=0)
    pictures = env.call("render")
    assert len(pictures) == N
    assert pictures[0].shape == (*CartPole.render_size[::-1], 3)
    with pytest.warns(UserWarning, match="no picture without a render mode"):
        assert cartpoles("reference").call("render") == (None,) * N


@pytest.mark.parametrize(
    ("name", "values", "kind", "message"),
    [
        ("gravity", [9.81, 3.72, 1.62], ValueError, "same gravity, got 9.81 and 3.72; make a"),
        ("gravity", [9.81, 9.81], ValueError, "values must be one or 3, got 2"),
        ("gravity", "high", TypeError, "parameter 'gravity' of CartPole must be float"),
        ("gravity", float("nan"), ValueError, "must be a finite float32"),
        ("sutton_barto_reward", True, ValueError, "constant of the compiled code; make a new "),
        ("gravty", 3.0, AttributeError, r"CartPole has no parameter 'gravty' \(it has: gravity,"),
        ("num_envs", 3, AttributeError, "CartPole has no parameter 'num_envs'"),
    ],
)
def test_what_cannot_be_set(name: str, values: Any, kind: type[Exception], message: str) -> None:
    env = cartpoles("reference")
    before = env.rules
    with pytest.raises(kind, match=message):
        env.set_attr(name, values)
    assert env.rules is before


def test_what_cannot_be_asked_for() -> None:
    env = cartpoles("reference")
    with pytest.raises(AttributeError, match="'VecEnv' object has no attribute 'gravty'"):
        env.get_attr("gravty")
    with pytest.raises(AttributeError, match=r"no step\(\) of their own; call env.step\(\) for"):
        env.call("step")


def test_a_parameter_that_spaces_depend_on_cannot_be_set() -> None:
    env = operant.make(Count, 2, backend="reference")
    with pytest.raises(ValueError, match="top cannot be set, the observation space depends on it"):
        env.top = 3.0


def test_parameters_of_a_batch_that_is_trained_stay() -> None:
    """The configuration, and so every checkpoint, has them; compiled rollouts may too."""
    ppo = PPO("CartPole-v1", num_envs=4, num_steps=4, backend="reference")
    with pytest.raises(ValueError, match=r"PPO trains.*make a new batch with gravity=1.0"):
        ppo.env.gravity = 1.0
    assert ppo.env.gravity == 9.8
