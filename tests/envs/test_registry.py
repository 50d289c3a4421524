"""Environments by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant.envs import env_ids, get_env
from operant.envs.classic.cartpole import CartPole
from operant.vector import registry

BUILT_IN = list(registry._DECLARED)


def make_catch(name: str = "Catch", **parts: Any) -> type[operant.Env]:
    class State(NamedTuple):
        x: float

    body = {
        "__qualname__": name,
        "State": State,
        "observation_space": Box(-1.0, 1.0, (1,), np.float32),
        "action_space": Discrete(2),
        "reset": lambda random: State(random[0]),
        "step": lambda state, action: (state, 1.0, False),
        "observe": lambda state: state,
        **parts,
    }
    return type(name, (operant.Env,), body)


Catch = make_catch(max_episode_steps=25, reward_threshold=20.0)


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    ours, gymnasiums = dict(registry._REGISTERED), dict(gymnasium.registry)
    yield
    for known, before in ((registry._REGISTERED, ours), (gymnasium.registry, gymnasiums)):
        known.clear()
        known.update(before)


# Looking up -------------------------------------------------------------------------------------
def test_the_built_in_ids_come_first_and_all_exist() -> None:
    assert {"Acrobot-v1", "CartPole-v1", "Prospector-v0"} < set(BUILT_IN)
    operant.register("Catch-v0", Catch)
    assert env_ids()[: len(BUILT_IN)] == BUILT_IN
    assert "Catch-v0" in env_ids()[len(BUILT_IN) :]
    for env_id in BUILT_IN:
        env = get_env(env_id)
        assert issubclass(env, operant.Env)
        assert env.__name__ == env_id.partition("-")[0]


@pytest.mark.parametrize("prefix", ["", "operant/", "operant:operant/"])
def test_an_id_may_have_the_prefix(prefix: str) -> None:
    assert get_env(f"{prefix}CartPole-v1") is CartPole
    operant.register("Catch-v0", Catch)
    assert get_env(f"{prefix}Catch-v0") is Catch


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("CartPole", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("operant/CartPole-v0", "CartPole-v1"),
        ("Pendulm-v1", "Pendulum-v1"),
        ("mountaincar-v0", "MountainCar-v0 or SparseMountainCar-v0 or MountainCarContinuous-v0"),
        ("catch-v1", "Catch-v0"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    operant.register("Catch-v0", Catch)
    with pytest.raises(ValueError) as caught:
        get_env(wrong)
    message, _, others = str(caught.value).partition(meant)
    assert message == f"unknown environment {wrong!r}; did you mean "  # the nearest comes first
    assert others.count(" or ") <= 2


def test_an_id_like_no_other_is_refused_with_all() -> None:
    with pytest.raises(ValueError) as caught:
        operant.make("!!!")
    for env_id in BUILT_IN:
        assert env_id in str(caught.value)


@pytest.mark.parametrize("env_id", ["CartPole-v0", "Acrobot-v9", "operant/LunarLandr-v3"])
def test_a_near_miss_of_ours_is_not_taken_for_gymnasiums(env_id: str) -> None:
    with pytest.raises(ValueError, match=r"unknown environment .*; did you mean "):
        get_env(env_id)


def test_what_is_registered_under_a_name_of_gymnasiums_is_ours() -> None:
    operant.register("LunarLander-v3", Catch)
    assert get_env("LunarLander-v3") is Catch
    with pytest.raises(ValueError, match="did you mean LunarLander-v3"):
        get_env("LunarLander-v2")


# Registering ------------------------------------------------------------------------------------
def test_a_registered_environment_can_be_made_by_its_id() -> None:
    operant.register("Catch-v0", Catch)
    env = operant.make("Catch-v0", num_envs=2, backend="reference")
    assert env.reset(seed=0)[0].shape == (2, 1)
    assert env.max_episode_steps == 25
    env.close()


def test_gymnasium_gets_the_id_with_the_prefix() -> None:
    operant.register("Catch-v0", Catch)
    spec = gymnasium.spec("operant/Catch-v0")
    assert spec.max_episode_steps == 25
    assert spec.reward_threshold == 20.0
    assert spec.kwargs == {"env_id": "Catch-v0"}
    assert "Catch-v0" not in gymnasium.registry


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_gymnasium_knows_the_built_in_ids_with_their_limits(env_id: str) -> None:
    """Registered without loading the classes."""
    spec, env = gymnasium.spec(f"operant/{env_id}"), get_env(env_id)
    assert spec.max_episode_steps == env.max_episode_steps
    assert spec.reward_threshold == env.reward_threshold


@pytest.mark.parametrize(
    "env_id",
    [
        "Catch",
        "Catch-0",
        "Catch-v",
        "operant/Catch-v0",
        "Catch v-v0",
        "-v0",
        "",
        "Catch-v0\n",
        3,
        None,
    ],
)
def test_an_id_of_another_form_is_refused(env_id: Any) -> None:
    with pytest.raises(ValueError) as caught:
        operant.register(env_id, Catch)
    assert str(caught.value) == f"an environment's id looks like 'Catch-v0', got {env_id!r}"
    assert env_id not in registry._REGISTERED


class WithoutRules(operant.Env):
    pass


@pytest.mark.parametrize("env", [int, "Catch", None, gymnasium.Env, operant.Env, WithoutRules])
def test_what_is_no_environment_class_is_refused(env: Any) -> None:
    with pytest.raises(TypeError) as caught:
        operant.register("Catch-v0", env)
    assert str(caught.value) == (
        "register() takes a class of operant.Env with a State, and reset(random), step(state, "
        "action) and observe(state) as functions of values (docs/environments.md), got "
        f"{env!r}"
    )
    assert "operant/Catch-v0" not in gymnasium.registry


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_a_built_in_id_is_taken(env_id: str) -> None:
    for env in (Catch, get_env(env_id)):
        with pytest.raises(ValueError) as caught:
            operant.register(env_id, env)
        assert str(caught.value) == f"{env_id!r} is already registered for another environment"


def test_an_id_of_another_class_is_taken() -> None:
    operant.register("Catch-v0", Catch)
    with pytest.raises(ValueError, match="'Catch-v0' is already registered"):
        operant.register("Catch-v0", make_catch("Throw"))
    assert get_env("Catch-v0") is Catch
    operant.register("Catch-v1", make_catch("Throw"))


def test_a_class_of_the_same_name_takes_its_place() -> None:
    """A notebook cell that defines and registers an environment may run again."""
    operant.register("Catch-v0", Catch)
    again = make_catch(max_episode_steps=99)
    operant.register("Catch-v0", again)
    assert get_env("Catch-v0") is again
    assert gymnasium.spec("operant/Catch-v0").max_episode_steps == 99
    assert env_ids().count("Catch-v0") == 1


def test_the_parameters_of_an_environment() -> None:
    assert registry.params_of(Catch) == {}
    params = registry.params_of(CartPole)
    assert list(params)[:2] == ["gravity", "masscart"]
    assert params["kinematics_integrator"] == "euler"
