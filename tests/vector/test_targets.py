"""The grammar of targets, and which environment a name stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import operant
from operant.envs.others import SHIPPED_IDS, training_of
from operant.ppo.config import Config
from operant.training.config_file import resolved
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv, Recipe, as_foreign, wrapper_named
from operant.vector.targets import find_env, parsed_target


@pytest.mark.parametrize(
    ("text", "kind", "place", "name"),
    [
        ("CartPole-v1", "id", "CartPole-v1", ""),
        ("CartPole", "id", "CartPole", ""),
        ("ALE/Pong-v5", "id", "ALE/Pong-v5", ""),
        ("ALE/Pong", "id", "ALE/Pong", ""),
        ("games/Pong", "code", "games/Pong", ""),
        ("gymnasium:CartPole-v1", "id", "gymnasium:CartPole-v1", ""),
        ("operant:operant/CartPole-v1", "id", "operant:operant/CartPole-v1", ""),
        ("my_games:Maze-v0", "id", "my_games:Maze-v0", ""),
        ("games/maze.py:make_env", "code", "games/maze.py", "make_env"),
        ("games/maze.py", "code", "games/maze.py", ""),
        ("games.maze:Maze", "code", "games.maze", "Maze"),
        ("./libgame.so", "library", "./libgame.so", ""),
    ],
)
def test_the_grammar(text: str, kind: str, place: str, name: str) -> None:
    assert parsed_target(text) == (kind, place, name)


def test_what_we_compile_is_ours_unless_gymnasiums_is_asked_for() -> None:
    assert isinstance(find_env("CartPole-v1"), type)
    theirs = find_env("gymnasium:CartPole-v1")
    assert isinstance(theirs, ForeignEnv)
    assert (theirs.name, theirs.gymnasium_id) == ("gymnasium:CartPole-v1", "CartPole-v1")
    assert isinstance(theirs().unwrapped, gymnasium.Env)


def test_the_newest_version_is_meant() -> None:
    found = find_env("FrozenLake")
    assert isinstance(found, ForeignEnv)
    assert found.name == "FrozenLake-v1"


def test_the_newest_version_within_a_namespace() -> None:
    pytest.importorskip("ale_py")
    found = find_env("ALE/Pong")
    assert isinstance(found, ForeignEnv)
    assert found.name == "ALE/Pong-v5"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("LunarLandr-v3", "LunarLander-v3"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("CartPol-v1", "CartPole-v1"),
        ("frozenlake-v1", "FrozenLake-v1"),
        ("gymnasium:Pendulm-v1", "gymnasium:Pendulum-v1"),
    ],
)
def test_an_unknown_id_names_near_ones_of_both(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match="unknown environment") as caught:
        operant.make(wrong)
    assert near in str(caught.value).partition("did you mean ")[2]


def test_an_id_like_no_other() -> None:
    with pytest.raises(ValueError, match=r"there are Acrobot-v1.*such as LunarLander-v3"):
        find_env("!!!")


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr("operant.vector.gymnasium_ids.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"package ale_py.*: pip install 'operant\[atari\]'"):
        find_env("ALE/Pong-v5")
    with pytest.raises(ValueError, match=r"needs the package mujoco.*'operant\[mujoco\]'"):
        find_env("Hopper-v5")


MODULE = """
import gymnasium
gymnasium.register("Registered-v0", entry_point="gymnasium.envs.toy_text:BlackjackEnv")
"""


def test_a_package_is_imported_where_the_user_names_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers_one.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="unknown environment"):
        find_env("registers_one:Registered-v0", import_modules=False)
    assert "registers_one" not in sys.modules
    found = find_env("registers_one:Registered-v0")
    assert isinstance(found, ForeignEnv)
    assert found.name == "registers_one:Registered-v0"
    found().close()
    gymnasium.registry.pop("Registered-v0")


# Making ----------------------------------------------------------------------------------------
def test_make_by_id_class_and_function() -> None:
    for env in (
        "FrozenLake-v1",
        gymnasium.envs.toy_text.FrozenLakeEnv,
        lambda **params: gymnasium.make("FrozenLake-v1", **params),
    ):
        batch = operant.make(env, num_envs=3, backend="serial", is_slippery=False, seed=4)
        assert isinstance(batch, ForeignBatch)
        obs, _ = batch.reset()
        assert obs.tolist() == [0, 0, 0]
        assert batch.describe().params == {"is_slippery": False}
        batch.close()


def test_wrappers_stacks_and_limits() -> None:
    batch = operant.make(
        "gymnasium:Pendulum-v1",
        num_envs=2,
        backend="serial",
        wrappers=["gymnasium.wrappers:ClipReward(min_reward=-1.0, max_reward=0.5)"],
        frame_stack=3,
        max_episode_steps=7,
    )
    assert batch.single_observation_space.shape == (3, 3)
    batch.reset(seed=1)
    cut = []
    for _ in range(7):
        _, reward, _, truncated, _ = batch.step(batch.action_space.sample())
        assert (reward >= -1).all()
        cut.append(truncated.all())
    assert cut == [False] * 6 + [True]
    batch.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ClipReward", "must be a list of module:Class"),
        ("gymnasium.wrappers:Nope", "gymnasium.wrappers has no 'Nope'"),
        ("no_such_module:X", "cannot be imported"),
        ("gymnasium.wrappers:ClipReward(1)", "arguments have names and plain values"),
        ("gymnasium.wrappers:ClipReward(min_reward=open('x'))", "names and plain values"),
        ("gymnasium.wrappers:ClipReward(**{'min_reward': 1})", "must be a list of module:Class"),
        ("os:system('true')", "arguments have names and plain values"),
    ],
)
def test_bad_wrappers(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        wrapper_named(text)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"backend": "cuda"}, "'serial', 'threads', 'processes' for Taxi-v4, which operant does"),
        ({"impl": "reference"}, "impl is for environments that operant compiles"),
        ({"autoreset_mode": "NextStep"}, "begin new episodes in the same step"),
    ],
)
def test_options_that_are_for_compiled_environments(options: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        operant.make("Taxi-v4", **options)


def test_names_of_functions_and_what_is_none() -> None:
    def named() -> None: ...

    assert as_foreign(named, "file.py:named") == ForeignEnv("file.py:named", named)
    found = as_foreign(lambda: None)
    assert found is not None
    assert found.name == "env"
    assert as_foreign(3) is None
    assert as_foreign(gymnasium.make("Taxi-v4")) is None
    assert Recipe(ForeignEnv("a", named), {}).rendered().render_mode == "rgb_array"


# Shipped values --------------------------------------------------------------------------------
@pytest.mark.parametrize("env_id", SHIPPED_IDS)
def test_shipped_values_are_a_configuration(env_id: str) -> None:
    config = resolved(Config, env_id)
    assert config.run.total_steps == training_of(env_id)["run.total_steps"]
    assert config.env.num_envs * config.ppo.num_steps % config.ppo.minibatches == 0
    for name in config.env.wrappers:
        wrapper_named(name)


def test_shipped_values_are_found_behind_a_prefix() -> None:
    assert training_of("gymnasium:LunarLander-v3") == training_of("LunarLander-v3") != {}
    assert training_of("ale_py:ALE/Pong-v5") == training_of("ALE/Asterix-v5")
    assert training_of("Unknown-v0") == {}


def test_code_is_passed_as_itself_from_python() -> None:
    for name in ("game.py:make_env", "package.game:Env", "libgame.so"):
        with pytest.raises(ValueError, match="pass the class or function itself"):
            operant.make(name)


def test_counts_that_make_no_sense() -> None:
    for name in ("frame_stack", "max_episode_steps"):
        with pytest.raises(ValueError, match=f"{name} must be between 1 and .*, got 0"):
            operant.make("FrozenLake-v1", backend="serial", **{name: 0})
