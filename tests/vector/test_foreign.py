"""What is not an environment of ours is refused with what to pass instead."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import operant
from operant.models import PPO
from operant.vector.not_an_env import not_an_env

OURS = "operant:operant/CartPole-v1"


def of_gymnasium() -> Any:
    return gymnasium.make("Blackjack-v1")


class OwnGym(gymnasium.Env[Any, Any]):
    """What a user has written for Gymnasium."""


YOURS = (
    "; OwnGym is a gymnasium.Env, whose methods run one environment in Python; operant compiles a "
    "class of operant.Env instead: a State, and reset(random), step(state, action) and "
    "observe(state) as functions of values (docs/environments.md)"
)


@pytest.mark.parametrize("use", [PPO, operant.make])
@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (of_gymnasium, "; Gymnasium's own environments cannot be made or trained yet; operant "),
        (lambda: OwnGym, YOURS),
        (lambda: OwnGym(), YOURS),
        (lambda: gymnasium.wrappers.TimeLimit(OwnGym(), 9), YOURS),
        (
            lambda: gymnasium.make_vec("Blackjack-v1", num_envs=2, vectorization_mode="sync"),
            "; Gymnasium's own environments cannot be made or trained yet; operant trains ",
        ),
        (
            lambda: gymnasium.make("CartPole-v1"),
            ", which is Gymnasium's; operant has one of its own: pass 'CartPole-v1'",
        ),
        (lambda: gymnasium.Env, "; Gymnasium's own environments cannot be made or trained yet; "),
        (lambda: of_gymnasium, "; pass the class or its id, not a function that makes one; "),
        (lambda: gymnasium.make(OURS), ", one environment in a wrapper; to run many pass 'CartP"),
        (
            lambda: RecordEpisodeStatistics(gymnasium.make_vec(OURS, num_envs=2)),
            ", a batch in a wrapper; PPO takes the batch itself, env.unwrapped",
        ),
    ],
)
def test_what_to_pass_instead(use: Any, make: Any, advice: str) -> None:
    env = make()
    with pytest.raises(TypeError) as caught:
        use(env)
    text = str(caught.value)
    assert text.startswith("env must be an id or a subclass of operant.Env, got ")
    assert advice in text


def test_a_batch_cannot_be_made_of_a_batch() -> None:
    batch = operant.make("CartPole-v1", 2, backend="reference")
    with pytest.raises(TypeError, match="a batch already; PPO takes the batch itself"):
        operant.make(batch)


def test_a_long_value_is_cut() -> None:
    assert len(not_an_env(list(range(1000)))) < 160
