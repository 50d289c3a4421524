"""People type what they know from other libraries, and are told the right word."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from operant import PPO, Config

NETWORK = "the network is policy=..., or for the built-in one hidden=... and activation=..."
SMALL = {"num_envs": 4, "num_steps": 4, "hidden": (4,), "backend": "reference", "threads": 1}


@pytest.fixture(scope="module")
def ppo() -> PPO:
    return PPO("CartPole-v1", **SMALL)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (("MlpPolicy", "CartPole-v1"), {}, f"the environment comes first: PPO(env); {NETWORK}"),
        (("CnnPolicy", None), {"verbose": 1}, "the environment comes first: PPO(env); "),
        (("CartPole-v1", "MlpPolicy"), {}, "the environment comes first: PPO(env); "),
        (("CartPole-v1",), {"policy": "MlpPolicy"}, f"{NETWORK}; got 'MlpPolicy'"),
        (("CartPole-v1",), {"policy": "relu"}, f"be a torch.nn.Module, got 'relu'; {NETWORK}"),
        (("CartPole-v1", 64), {}, "config must be an operant.Config, got 64; single options go"),
    ],
)
def test_arguments_in_the_order_of_others(args: Any, options: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        PPO(*args, **options)
    assert message in str(caught.value)


def test_a_configuration_and_a_module_are_what_they_are_taken_for() -> None:
    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 2)

        def forward(self, obs: Any) -> Any:
            return self.head(obs), obs[:, 0]

    config = Config().replaced({"env.num_envs": 4, "env.backend": "reference"})
    assert PPO("CartPole-v1", config, policy=Constant()).config.env.num_envs == 4


@pytest.mark.parametrize(
    ("option", "ours"),
    [("lr", "learning_rate"), ("n_steps", "num_steps"), ("n_envs", "num_envs")],
)
def test_options_by_the_names_of_others(option: str, ours: str) -> None:
    with pytest.raises(ValueError, match=f"no option '{option}'; here it is {ours} "):
        PPO("CartPole-v1", **{option: 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total_timesteps": 100}, "learn() takes total_steps=...; got total_timesteps=100"),
        ({"timesteps": 100}, "learn() takes total_steps=...; got timesteps=100"),
        ({"callback": None}, "learn() takes callbacks=...; got callback=None"),
        ({"progress_bar": True}, "learn() takes progress=True or False; got progress_bar=True"),
        (
            {"total_steps": 9, "reset_num_timesteps": False},
            "learn() goes on where it stopped: total_steps counts the earlier steps too; got "
            "reset_num_timesteps=False",
        ),
        ({"lr": 0.1}, "options are PPO's: PPO(env, learning_rate=...); got lr=0.1"),
        ({"spam": 1}, "learn() takes total_steps, callbacks and progress; got spam=1"),
    ],
)
def test_arguments_of_learn_by_the_names_of_others(ppo: PPO, arguments: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        ppo.learn(**arguments)
    assert str(caught.value) == message
    assert ppo.steps == 0


def test_predict_says_that_it_returns_the_actions_alone(ppo: PPO) -> None:
    """Nothing can be raised for ``action, state = predict(obs)``: two actions unpack as well."""
    assert "not ``action, state = ...``" in (PPO.predict.__doc__ or "")


def test_what_a_trainer_looks_like(ppo: PPO) -> None:
    assert repr(ppo) == "<PPO of 'CartPole-v1', 0 steps>"
    trained = PPO("CartPole-v1", **SMALL, max_episode_steps=2).learn(16)
    assert repr(trained) == "<PPO of 'CartPole-v1', 16 steps, mean return 2.0>"


def test_steps_and_observations_that_are_no_numbers(ppo: PPO) -> None:
    with pytest.raises(ValueError, match="total_steps must be an integer, got '1e5'"):
        ppo.learn("1e5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a tuple of an observation and an info: write obs, info"):
        ppo.predict(ppo.env.reset())
