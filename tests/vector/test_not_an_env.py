"""What is not an environment is refused with what to pass instead."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import operant
from operant.models import PPO
from operant.vector.not_an_env import not_an_env

OURS = "operant:operant/CartPole-v1"


class OwnGym(gymnasium.Env[Any, Any]):
    """What a user has written for Gymnasium."""


@pytest.mark.parametrize("use", [PPO, operant.make])
@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (
            lambda: gymnasium.make("Blackjack-v1"),
            ", one environment; to run many pass its id, 'Blackjack-v1', or a function",
        ),
        (
            lambda: gymnasium.make("CartPole-v1"),
            ", one environment; to run many pass its id, 'gymnasium:CartPole-v1', or a function",
        ),
        (
            lambda: gymnasium.wrappers.TimeLimit(OwnGym(), 9),
            ", one environment; to run many pass what makes it: lambda: OwnGym(...)",
        ),
        (lambda: gymnasium.make(OURS), ", one environment in a wrapper; to run many pass 'CartP"),
        (lambda: 3, "got 3"),
    ],
)
def test_what_to_pass_instead(use: Any, make: Any, advice: str) -> None:
    env = make()
    with pytest.raises(TypeError) as caught:
        use(env)
    message = str(caught.value)
    assert message.startswith("env must be an id, a subclass of operant.Env or a function ")
    assert advice in message


def test_make_refuses_batches_and_vec_env_refuses_classes_of_gymnasium() -> None:
    with pytest.raises(TypeError, match="a batch in a wrapper; PPO takes the batch itself"):
        operant.make(RecordEpisodeStatistics(gymnasium.make_vec(OURS, num_envs=2)))  # type: ignore[call-overload]
    vector = gymnasium.make_vec("Blackjack-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(TypeError, match="a vector environment; PPO takes it as it is"):
        operant.make(vector)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"operant\.make runs classes of gymnasium\.Env"):
        operant.VecEnv(OwnGym)  # type: ignore[arg-type]


def test_long_values_are_cut() -> None:
    assert len(not_an_env("x" * 1000)) < 300
