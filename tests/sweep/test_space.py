"""The space of a sweep: files that are read, files that are refused, and both ways and back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.ppo.config import Config
from operant.sweep.space import (
    Choices,
    Interval,
    Space,
    default_space,
    parse_space,
    read_space,
    value_of,
)


def parsed(text: str, change_task: bool = False) -> Space:
    return parse_space(text.encode(), "space.toml", change_task)


def test_every_kind_of_range() -> None:
    space = parsed(
        """
        learning_rate = { low = 1e-4, high = 1e-2, log = true }
        clip = { choices = [0.1, 0.2] }
        "policy.hidden" = { choices = [[32], [64, 64]] }

        [ppo]
        epochs = { low = 2, high = 10, step = 4 }

        [fixed]
        num_envs = 32
        env.params = { gravity = 9.0 }
        """
    )
    assert dict(space.ranges) == {
        "ppo.learning_rate": Interval(1e-4, 1e-2, log=True),
        "ppo.clip": Choices((0.1, 0.2)),
        "policy.hidden": Choices(((32,), (64, 64))),
        "ppo.epochs": Interval(2, 10, step=4, whole=True),
    }
    assert dict(space.fixed) == {"env.num_envs": 32, "env.params.gravity": 9.0}
    assert space.ranges["ppo.epochs"].contains(6)
    assert not space.ranges["ppo.epochs"].contains(7)
    assert not space.ranges["ppo.learning_rate"].contains(0.1)


REFUSED = {
    "": "space.toml: there is no range to search, such as learning_rate",
    "lr = { low = 1, high = 2 }": "there is no option 'lr'; ",
    "lerning_rate = { low = 1, high = 2 }": "did you mean ppo.learning_rate?",
    "ppo.gama = { low = 0.9, high = 1.0 }": "did you mean ppo.gamma?",
    "hidden_size = { choices = [1, 2] }": "there is no option 'hidden_size'",
    "gamma = 0.9": "ppo.gamma needs a range such as { low = 0.1, high = 0.3 }",
    "gamma = { low = 0.9 }": "the range of ppo.gamma has no 'high'",
    "gamma = { low = 0.9, high = 0.8 }": "low of ppo.gamma must be below high, got 0.9 and 0.8",
    "gamma = { low = 0.9, high = 1.5 }": "ppo.gamma must be at most 1.0, got 1.5",
    "gamma = { low = 0.9, hihg = 1.0 }": "the range of ppo.gamma has 'hihg'; it takes low, high",
    "gamma = { low = nan, high = 1.0 }": "low of ppo.gamma must be a finite number, got nan",
    "gamma = { low = '0.9', high = 1.0 }": "low of ppo.gamma must be a finite number, got '0.9'",
    "gamma = { low = 0.0, high = 1.0, log = true }": "low must be above 0, got 0",
    "gamma = { low = 0.1, high = 1.0, log = 1 }": "log of ppo.gamma must be true or false, got 1",
    "epochs = { low = 1, high = 4, step = 2 }": "from 1 to 4 is no whole number of steps",
    "epochs = { low = 1, high = 4, step = 0 }": "step of ppo.epochs must be a number above 0",
    "epochs = { low = 1, high = 4, step = 1.5 }": "step of ppo.epochs must be an integer, got 1.5",
    "epochs = { low = 1, high = 4, step = 1, log = true }": "has log and step; leave one",
    "epochs = { low = 1.5, high = 4 }": "ppo.epochs must be an integer, got 1.5",
    "activation = { low = 1, high = 2 }": "policy.activation is not a number; give choices",
    "activation = { choices = ['tanh', 'rleu'] }": "did you mean 'relu'?",
    "clip = { choices = [0.1] }": "choices of ppo.clip must be a list of 2 to 1000 values",
    "clip = { choices = [0.1, 0.1] }": "choices of ppo.clip has a value twice",
    "clip = { choices = [1, 1.0] }": "choices of ppo.clip has a value twice",
    "clip = { choices = [0.1, 0.2], low = 1 }": "has choices and an interval; leave one of them",
    "gamma = { low = 0.9, high = 1.0 }\n[ppo]\ngamma = { low = 0.9, high = 1.0 }": "is there twice",
    "gamma = { low = 0.9, high = 1.0 }\n[fixed]\ngamma = 0.9": "has a range and is in [fixed]",
    "gamma = { low = 0.9, high = 1.0 }\n[fixed]\ngamma = 2": "ppo.gamma must be at most 1.0, got 2",
    "fixed = 3": "[fixed] must be a section",
    "ppo = 3": "[ppo] must be a section, got 3",
    "env.params = 3": "env.params must be a table of parameters, got 3",
    "seed = { low = 0, high = 9 }": "run.seed is luck, not a setting",
    "total_steps = { low = 1, high = 9 }": "run.total_steps is the same for every trial",
    "threads = { low = 1, high = 2 }": "only how it is run; put it into [fixed]",
    "env.workers = { low = 1, high = 2 }": "only how it is run",
    "env.id = { choices = ['CartPole-v1', 'Acrobot-v1'] }": "env.id has no range",
    "env.params.gravity = { low = 5, high = 9 }": "changes the task, so that results of two trials",
    "env.max_episode_steps = { low = 5, high = 9 }": "or say --change-task if it is meant",
    "a = [": "space.toml is not a TOML file",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_sentence_for_what_is_no_space(text: str) -> None:
    with pytest.raises(ValueError, match=r"space\.toml") as caught:
        parsed(text)
    assert REFUSED[text] in str(caught.value)


def test_the_task_may_change_if_that_is_said() -> None:
    text = 'env.params.gravity = { low = 5, high = 9 }\nenv.params."a b" = { choices = [1.5, 2] }'
    space = parsed(text, change_task=True)
    assert space.ranges["env.params.gravity"] == Interval(5, 9, whole=True)
    assert parsed(space.to_toml(), change_task=True) == space


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none\.toml: No such file"):
        read_space(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="cannot read"):
        read_space(Path("a\0b"))


rates = st.floats(1e-6, 1.0, exclude_min=True, allow_subnormal=False)
intervals = st.tuples(rates, rates, st.booleans()).filter(lambda x: x[0] < x[1])
spaces = st.builds(
    lambda rate, epochs, clips, hidden, fixed: Space(
        {
            "ppo.learning_rate": Interval(rate[0], rate[1], log=rate[2]),
            "ppo.epochs": Interval(epochs[0], epochs[0] + epochs[1] * 3, False, epochs[1], True),
            "ppo.clip": Choices(tuple(clips)),
            "policy.hidden": Choices(tuple(map(tuple, hidden))),
        },
        fixed,
    ),
    intervals,
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
    st.lists(rates, min_size=2, max_size=5, unique=True),
    st.lists(st.lists(st.integers(1, 512), min_size=1, max_size=3), min_size=2, unique_by=str),
    st.fixed_dictionaries(
        {}, optional={"ppo.gamma": st.floats(0, 1), "env.params.wind": st.text(max_size=5)}
    ),
)


@settings(deadline=None, max_examples=40)
@given(spaces)
def test_written_and_read_it_is_the_same(space: Space) -> None:
    assert parsed(space.to_toml()) == space


@settings(deadline=None, max_examples=40)
@given(
    st.binary(max_size=60) | st.text("[]{}=,.\"'\n abclowhighstep01", max_size=60).map(str.encode)
)
def test_any_bytes_are_a_space_or_a_sentence(data: bytes) -> None:
    said = ""
    try:
        parse_space(data, "space.toml")
    except ValueError as error:
        said = str(error)
    assert not said or said.startswith("space.toml")


@settings(deadline=None, max_examples=40)
@given(
    st.floats(1e-6, 1.0),
    st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    st.integers(1, 64),
    st.integers(1, 30),
)
def test_the_built_in_space_holds_where_it_begins(
    rate: float, gamma: float, steps: int, epochs: int
) -> None:
    changes = {"ppo.learning_rate": rate, "ppo.gamma": gamma, "ppo.gae_lambda": gamma}
    changes |= {
        "ppo.num_steps": steps,
        "ppo.epochs": epochs,
        "ppo.clip": rate,
        "ppo.minibatches": 1,
    }
    base = Config().replaced(changes)
    space = default_space(base)
    for name, one in space.ranges.items():
        assert one.contains(value_of(base, name)), name
    assert parsed(space.to_toml()) == space
    assert not math.isnan(
        sum(one.low for one in space.ranges.values() if isinstance(one, Interval))
    )
