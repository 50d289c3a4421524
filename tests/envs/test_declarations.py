"""What the package knows of its environments without importing them, and one file that adds one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import operant
from operant.envs.declarations import declarations
from operant.vector import registry

PACKAGE = Path(operant.__file__).parent
CORRIDOR = '''
"""Corridor-v0: find the door at the end."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from operant.lang import clip, to_float, where
from operant.lang.env import Env

LIMIT = 30


class Corridor(Env):
    """Left or right; one point at the door."""

    class State(NamedTuple):
        x: int

    env_id = "Corridor-v0"
    observation_space = Box(0.0, 5.0, (1,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = LIMIT
    reward_threshold = 0.9
    training = {"env.num_envs": 16, "ppo.num_steps": 32, "run.total_steps": 1024}

    @staticmethod
    def reset(random: Any) -> State:
        return Corridor.State(0)

    @staticmethod
    def step(state: State, action: int) -> tuple[State, float, bool]:
        x = clip(state.x + where(action == 1, 1, -1), 0, 5)
        return Corridor.State(x), where(x == 5, 1.0, -0.01), x == 5

    @staticmethod
    def observe(state: State) -> tuple[float]:
        return (to_float(state.x),)
'''


# What is read ---------------------------------------------------------------------------------
@pytest.mark.parametrize("env_id", registry._DECLARED)
def test_what_was_read_is_what_the_class_says(env_id: str) -> None:
    one, env = registry._DECLARED[env_id], operant.envs.get_env(env_id)
    assert (env.__module__, env.__qualname__) == (one.module, one.name)
    assert env.env_id == one.env_id == env_id
    assert env.max_episode_steps == one.max_episode_steps
    assert env.reward_threshold == one.reward_threshold
    assert registry.id_of(env) == env_id
    assert getattr(operant.envs, one.name) is env
    vector = getattr(operant.envs, f"{one.name}VecEnv")
    assert vector is getattr(operant.envs, f"{one.name}VecEnv"), "made once"
    batch = vector(3, backend="reference")
    assert (batch.num_envs, batch.workers, batch.rules.env) == (3, 1, env)
    batch.close()


def test_importing_the_library_imports_no_environment() -> None:
    code = """
        import sys, gymnasium, operant
        assert gymnasium.spec("operant/CartPole-v1").max_episode_steps == 500
        assert "CartPole" in dir(operant.envs)
        print([name for name in sys.modules if name in ("numba", "torch") or
               name.startswith(("operant.envs.classic", "operant.compiler", "operant.ppo"))])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def declare(folder: Path, text: str, name: str = "a.py") -> list[registry.Declaration]:
    (folder / "family").mkdir(exist_ok=True)
    (folder / "family" / name).write_text(textwrap.dedent(text))
    return declarations([str(folder)], "pack")


def test_plain_values_constants_and_classes_without_an_id(tmp_path: Path) -> None:
    text = """
        LIMIT: int = 12
        class First(Env):
            env_id = "First-v3"
            max_episode_steps: int | None = LIMIT
            reward_threshold = -1.5
        class Other(Env):
            max_episode_steps = 3
        class Second(operant.Env):
            env_id = "Second-v0"
    """
    first, second = declare(tmp_path, text)
    assert first == registry.Declaration("First-v3", "pack.family.a", "First", 12, -1.5)
    assert second == registry.Declaration("Second-v0", "pack.family.a", "Second", None, None)


def test_a_file_without_an_id_is_not_even_parsed(tmp_path: Path) -> None:
    assert declare(tmp_path, "this is no Python") == []


@pytest.mark.parametrize(
    "text", ["max_episode_steps = 3 * LIMIT", "max_episode_steps = elsewhere", "env_id = name()"]
)
def test_a_value_that_only_running_the_file_would_tell_is_refused(
    text: str, tmp_path: Path
) -> None:
    body = f'LIMIT = 4\nclass Maze:\n    env_id = "Maze-v0"\n    {text}\n'
    with pytest.raises(ValueError) as caught:
        declare(tmp_path, body)
    name, _, value = text.partition(" = ")
    assert str(caught.value) == (
        f"{tmp_path}/family/a.py:4: Maze.{name} is {value}; write it as a plain value, or as a "
        "constant of this file, so that it is known without importing the file"
    )


def test_what_a_class_inherits_is_written_again(tmp_path: Path) -> None:
    """A base class may be in any file."""
    text = """
        class Maze(Labyrinth):
            env_id = "Maze-v0"
            max_episode_steps = 4
    """
    with pytest.raises(ValueError) as caught:
        declare(tmp_path, text)
    assert str(caught.value) == (
        f"{tmp_path}/family/a.py:2: Maze may inherit its reward_threshold, which is not known "
        "without importing the file; write it in this class too"
    )
    assert declare(tmp_path, f"{textwrap.dedent(text)}    reward_threshold = None")


def test_an_id_of_two_files_is_refused(tmp_path: Path) -> None:
    text = 'class Maze:\n    env_id = "Maze-v0"\n'
    declare(tmp_path, text)
    with pytest.raises(
        ValueError, match=r"b\.py: 'Maze-v0' is already declared by pack\.family\.a"
    ):
        declare(tmp_path, text, "b.py")


def test_an_id_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="an environment's id looks like 'Catch-v0', got 'Maze'"):
        registry.declare([registry.Declaration("Maze", "pack.a", "Maze")])


# One file adds an environment -----------------------------------------------------------------
@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library with one file more."""
    root = tmp_path_factory.mktemp("library")
    shutil.copytree(PACKAGE, root / "operant", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "operant" / "envs" / "mazes").mkdir()
    (root / "operant" / "envs" / "mazes" / "corridor.py").write_text(CORRIDOR)
    return root


def run(library: Path, *arguments: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_PROCESS_")}
    environ |= {"PYTHONPATH": str(library), "OPERANT_HOME": str(library / "home")}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environ, cwd=library
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_file_is_listed_and_configured(library: Path) -> None:
    rows = {
        row["id"]: row
        for row in json.loads(run(library, "-m", "operant", "envs", "--json"))["envs"]
    }
    assert rows["Corridor-v0"]["max_episode_steps"] == 30
    assert rows["Corridor-v0"]["reward_threshold"] == 0.9
    config = json.loads(run(library, "-m", "operant", "config", "corridor", "--json"))
    assert config["env"]["id"] == "Corridor-v0"
    assert (config["env"]["num_envs"], config["ppo"]["num_steps"]) == (16, 32)


def test_one_file_is_checked_trained_and_evaluated(library: Path) -> None:
    assert "observation" in run(library, "-m", "operant", "check", "Corridor-v0")
    eager = ("--device", "cpu", "--set", "run.engine=eager")  # which compiles nothing more
    trained = run(library, "-m", "operant", "train", "Corridor-v0", *eager, "--json")
    result = json.loads(trained.splitlines()[-1])
    assert result["steps"] == 1024
    tested = run(library, "-m", "operant", "eval", result["run_id"], "--episodes", "3", "--json")
    assert json.loads(tested.splitlines()[-1])["episodes"] == 3


def test_one_file_has_its_classes_and_its_name_in_gymnasium(library: Path) -> None:
    code = """
        import gymnasium, pickle, operant
        assert "operant.envs.mazes.corridor" not in __import__("sys").modules
        assert gymnasium.spec("operant/Corridor-v0").max_episode_steps == 30
        assert gymnasium.make("operant/Corridor-v0").reset(seed=1)[0] == 0.0
        batch = operant.envs.CorridorVecEnv(5)
        batch.reset(seed=1)
        again = pickle.loads(pickle.dumps(batch))
        assert type(again) is operant.envs.CorridorVecEnv
        print(again.num_envs, operant.envs.Corridor.__name__, "Corridor" in operant.envs.__all__)
    """
    assert run(library, "-c", textwrap.dedent(code)) == "5 Corridor True\n"
