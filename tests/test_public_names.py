"""What `import operant` offers: the public names and only those."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import operant
from operant.ppo.ppo import PPO
from operant.training.callbacks import Callback


def test_the_names_people_look_for_are_at_the_top() -> None:
    assert operant.PPO is PPO
    assert operant.models.PPO is PPO
    assert operant.Callback is Callback
    assert isinstance(PPO("CartPole-v1", backend="reference").config, operant.Config)


@pytest.mark.parametrize("name", ["operant", "operant.models", "operant.envs"])
def test_dir_shows_the_public_names_and_only_those(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    for public in dir(module):
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match="has no attribute 'ppoo'"):
        _ = module.ppoo


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Environment", "; write operant.Env"),
        ("DQN", "; PPO is the only algorithm"),
        ("registre", "; did you mean register?"),
        ("numpy_", "'numpy_'"),
    ],
)
def test_a_name_that_is_not_there_is_answered(name: str, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(operant, name)
    assert str(caught.value).endswith(said)


def test_a_module_of_ours_needs_no_import_of_its_own() -> None:
    code = "import operant; print(operant.models.PPO.__name__, operant.utils.Logger.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "PPO Logger\n"
