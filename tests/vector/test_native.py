"""Games in C behind the vector API: they do what the same game in Python does, to the bit."""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.backends.reference.stream import Stream
from operant.compiler.philox import uniforms
from operant.compiler.spec.rules import Rules
from operant.lang import clip, randint, where
from operant.models import PPO
from operant.vector import registry
from operant.vector.native import NativeError, include_folder, load

from ..modules import load as load_module

WALK, SNAKE = "tests/vector/native/walk.c", "examples/native/snake.c"
ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"num_envs": 8, "num_steps": 16, "hidden": [8], "threads": 1}
Build = Callable[..., Path]


class Walk(operant.Env):
    """What walk.c plays, in Python."""

    class State(NamedTuple):
        place: int
        age: int

    observation_space = Box(np.array([0, 0], np.float32), np.array([8, 1000], np.float32))
    action_space = Discrete(2)
    max_episode_steps = 40

    def reset(random: Any) -> Any:
        return Walk.State(3 + randint(random[0], 3), 0)

    def step(state: Any, action: Any, random: Any) -> Any:
        by = where(random[0] < np.float32(0.1), 0, 2 * action - 1)
        place = clip(state.place + by, 0, 8)
        over = (place == 0) | (place == 8)
        return Walk.State(place, state.age + 1), where(place == 8, 1.0, -0.01), over

    def observe(state: Any) -> Any:
        return state.place, state.age


class Strides(Walk):
    """The same with -DMULTI: which way, and how far."""

    observation_space = MultiDiscrete([9, 1000])
    action_space = MultiDiscrete([3, 2])

    def step(state: Any, action: Any, random: Any) -> Any:
        by = where(random[0] < np.float32(0.1), 0, (action[0] - 1) * (1 + action[1]))
        place = clip(state.place + by, 0, 8)
        over = (place == 0) | (place == 8)
        return Walk.State(place, state.age + 1), where(place == 8, 1.0, -0.01), over

    def action_mask(state: Any) -> Any:
        return (True,) * 5


class Push(Walk):
    """The same with -DCONTINUOUS."""

    action_space = Box(-1.0, 1.0, (1,))

    def step(state: Any, action: Any, random: Any) -> Any:
        return Walk.step(state, where(action[0] > 0.0, 1, 0), random)


TWINS = {"": Walk, "-DMULTI": Strides, "-DCONTINUOUS": Push}


@pytest.fixture(scope="module")
def walk(build_library: Build) -> type[operant.Env]:
    return load(build_library(WALK), trial=False)


@pytest.fixture(scope="module")
def snake(build_library: Build) -> type[operant.Env]:
    return load(build_library(SNAKE, "-O2"))


def actions(env: Any, step: int) -> np.ndarray:
    layout, random = env.rules.action, np.random.default_rng(step)
    if layout.dtype == "float":
        return random.uniform(-2, 2, (env.num_envs, *layout.shape)).astype(np.float32)
    return random.integers(0, np.array(layout.choices), (env.num_envs, layout.size)).reshape(
        env.num_envs, *layout.shape
    )


def trajectory(env: Any, steps: int) -> list[Any]:
    """All results, and what is reported of episodes except for the time they took."""
    found: list[Any] = []
    for step in range(steps):
        *results, info = env.step(actions(env, step))
        found += results
        if info:
            found += [info["episode"]["r"], info["episode"]["l"], info["_episode"]]
        if "final_obs" in info:
            found.append(info["final_obs"][info["_final_obs"]])
        masks = env.action_masks()
        found += [] if masks is None else [masks]
        if env.autoreset_mode.value == "Disabled" and info:
            found.append(env.reset(options={"reset_mask": results[2] | results[3]})[0])
    return found


def assert_equal(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


# The same as in Python ------------------------------------------------------------------------
def test_random_numbers_are_those_of_the_library(build_library: Build) -> None:
    draw = ctypes.CDLL(str(build_library("tests/vector/native/random.c"))).draw
    seed, index, episode, steps, count = 0xFEDCBA9876543210, 5, 9, 3, 11
    floats, integers = np.empty((steps + 1, count), np.float32), np.empty((steps + 1, count), "i4")
    kinds = [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32]
    draw.argtypes = [*kinds, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    draw(seed, index, episode, steps, count, floats.ctypes.data, integers.ctypes.data)
    for step in range(steps + 1):
        np.testing.assert_array_equal(floats[step], uniforms(seed, index, episode, step, count))
        stream = Stream(seed, index, episode, step)
        for _ in range(count):
            stream.uniform()
        assert integers[step].tolist() == [stream.integers(7) for _ in range(count)]


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize(
    ("flag", "workers"), [("", 1), ("", 3), ("-DMULTI", 3), ("-DCONTINUOUS", 1)]
)
def test_a_game_in_c_is_the_same_game(
    build_library: Build, flag: str, mode: str, workers: int
) -> None:
    options: dict[str, Any] = {"seed": 3, "autoreset_mode": mode}
    game = load(build_library(WALK, *filter(None, [flag])), trial=False)
    ours = operant.make(game, 37, workers=workers, **options)
    theirs = operant.make(TWINS[flag], 37, backend="reference", **options)
    assert_equal([ours.reset()[0]], [theirs.reset()[0]])
    found = trajectory(ours, 100)
    assert_equal(found, trajectory(theirs, 100))
    assert sum(result.sum() for result in found if result.dtype == np.bool_) > 100  # episodes ended
    state, other = ours.get_state(), theirs.get_state()
    for name in set(state) - {"state.bytes"}:
        np.testing.assert_array_equal(state[name], other[name])


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_a_game_that_ended_is_not_stepped(build_library: Build, mode: str) -> None:
    library = build_library(WALK, name="watched")
    env = operant.make(load(library, trial=False), 30, seed=1, autoreset_mode=mode)
    env.reset()
    trajectory(env, 60)
    counted = ctypes.c_int32.in_dll(ctypes.CDLL(str(library)), "steps_after_the_end")
    assert counted.value == 0


def test_seeds_choose_the_episodes(walk: type[operant.Env]) -> None:
    env = operant.make(walk, 6)
    first = env.reset(seed=1)[0]
    assert not np.array_equal(first, env.reset(seed=2)[0])
    np.testing.assert_array_equal(first, env.reset(seed=1)[0])
    alone = operant.make(walk, 2).reset(seed=[1, 1])[0]
    np.testing.assert_array_equal(alone, [first[0], first[0]])
    before = env.get_state()
    mask = np.array([True, False, False, True, False, False])
    env.reset(options={"reset_mask": mask})
    after = env.get_state()
    np.testing.assert_array_equal(before["state.bytes"][~mask], after["state.bytes"][~mask])
    assert (after["episode"] - before["episode"]).tolist() == mask.astype(int).tolist()


# The vector API -------------------------------------------------------------------------------
def test_what_a_library_declares(build_library: Build, walk: type[operant.Env]) -> None:
    assert (walk.__name__, walk.max_episode_steps, walk.reward_threshold) == ("Walk", 40, None)
    assert walk.observation_space == Walk.observation_space
    assert Rules.of(walk).memory["bytes"].shape == (48,)
    multi = load(build_library(WALK, "-DMULTI"), trial=False)
    assert multi.observation_space == MultiDiscrete([9, 1000])
    assert multi.action_space == MultiDiscrete([3, 2])
    batch = operant.make(multi, 5, seed=0)
    obs = batch.reset()[0]
    assert (obs.dtype, obs.shape) == (np.int64, (5, 2))
    assert batch.action_masks().shape == (5, 5)
    assert batch.step(actions(batch, 0))[0].dtype == np.int64
    continuous = load(build_library(WALK, "-DCONTINUOUS"), trial=False)
    assert continuous.action_space == Box(-1.0, 1.0, (1,))
    batch = operant.make(continuous, 5, seed=0)
    batch.reset()
    trajectory(batch, 50)
    with pytest.raises(ValueError, match="expected finite numbers"):
        batch.step(np.full((5, 1), np.nan, np.float32))


def test_the_native_backend_and_no_other(walk: type[operant.Env]) -> None:
    env = operant.make(walk, 3)
    assert (env.backend, env.workers) == ("native", 1)
    assert env.backend_reason == "auto: it is a compiled library"
    assert operant.make(walk, 3, backend="native").backend_reason == "asked for"
    assert operant.make(walk, 3, impl="native").backend == "native"
    assert operant.make(walk, 3, workers="auto").workers >= 1
    env.reset()
    assert env.compiled is not None
    for name in ("cpu", "reference", "cuda"):
        with pytest.raises(
            ValueError, match=f"which backend 'native' runs and no other; got '{name}"
        ):
            operant.make(walk, 3, backend=name)
    with pytest.raises(ValueError, match="is a game in C, which has no reference implementation"):
        operant.make(walk, 3, impl="reference")
    with pytest.raises(ValueError, match="in Python write impl='native' or backend='cpu'"):
        operant.make("CartPole-v1", backend="native")
    with pytest.raises(TypeError, match="Walk has no parameter 'gravity'"):
        operant.make(walk, 3, gravity=1.0)
    with pytest.raises(ValueError, match="Walk has no render function"):
        env.render_one(0)
    with pytest.raises(ValueError, match="no source is generated for it"):
        _ = operant.inspect(env).numba


def test_bad_actions_step_nobody(walk: type[operant.Env]) -> None:
    env = operant.make(walk, 4, seed=0)
    env.reset()
    before = env.get_state()
    for bad in ([0, 1, 2, 0], [0, -1, 1, 0], np.array([0, 1, 2**31, 0])):
        with pytest.raises(ValueError, match="is not allowed; expected an action of Discrete"):
            env.step(np.asarray(bad))
    with pytest.raises(ValueError, match="is not allowed"):
        env.step(np.array([0, -1, 1, 0], np.int32))
    assert_equal(list(before.values()), list(env.get_state().values()))
    env.step(np.array([0, 1, 1, 0], np.int32))


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_saved_state_continues_to_the_bit(snake: type[operant.Env], mode: str) -> None:
    env = operant.make(snake, 20, seed=1, autoreset_mode=mode)
    env.reset()
    trajectory(env, 30)
    saved = env.get_state()
    masks = env.action_masks()
    wanted = trajectory(env, 40)
    other = operant.make(snake, 20, workers=2, autoreset_mode=mode)
    other.set_state(saved)
    np.testing.assert_array_equal(other.action_masks(), masks)
    assert not masks.all()
    assert_equal(wanted, trajectory(other, 40))
    part = {name: value for name, value in saved.items() if name != "obs"}
    np.testing.assert_array_equal(other.set_state(part), saved["obs"])
    with pytest.raises(ValueError, match=r"'state\.bytes' must have shape"):
        other.set_state({"state.bytes": saved["state.bytes"][:, :-1]})


def test_workers_do_not_change_the_game(snake: type[operant.Env]) -> None:
    found = []
    for workers in (1, 2, 5):
        env = operant.make(snake, 100, seed=1, workers=workers, autoreset_mode="SameStep")
        assert env.workers == workers
        found.append([env.reset()[0], *trajectory(env, 60)])
        env.close()
    assert_equal(found[0], found[1])
    assert_equal(found[0], found[2])


def test_a_flag_that_is_neither_0_nor_1_is_noticed_at_run_time(build_library: Build) -> None:
    env = operant.make(load(build_library(WALK, "-DLIE=ODD_FLAG"), trial=False), 8, seed=0)
    env.reset()
    with pytest.raises(RuntimeError, match="wrote 2 to terminated, which must be 0 or 1"):
        trajectory(env, 100)


def test_it_can_be_registered(walk: type[operant.Env], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    operant.register("Walk-v0", walk)
    assert operant.make("Walk-v0", 3).backend == "native"
    single = gymnasium.make("operant/Walk-v0")
    assert single.reset(seed=1)[0].shape == (2,)
    assert len(single.step(1)) == 5
    assert PPO("Walk-v0", **SMALL).env.backend == "native"
    gymnasium.registry.pop("operant/Walk-v0")


# Loading --------------------------------------------------------------------------------------
def test_a_file_is_loaded_once(build_library: Build, tmp_path: Path) -> None:
    library = Path(shutil.copy(build_library(WALK), tmp_path / "libcopy.so"))
    env = load(library, trial=False)
    assert load(library, trial=False) is env
    library.unlink()
    shutil.copy(build_library(WALK, "-DMULTI"), library)
    with pytest.raises(NativeError, match=r"libcopy\.so was refused: it has changed since"):
        load(library, trial=False)
    assert {"operant_env.h", "operant_random.h"} <= {p.name for p in include_folder().iterdir()}


# What the documentation shows --------------------------------------------------------------------
def test_the_page_and_the_example_run(
    build_library: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = build_library(SNAKE, "-O2", name="snake")
    monkeypatch.chdir(library.parent)
    page = (ROOT / "docs" / "native.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(block.replace("500_000", "2_000").replace("4096", "64"), {})
    (line,) = [line for line in page.splitlines() if line.startswith("cc ")]
    assert f" *     {line}\n" in (ROOT / SNAKE).read_text()
    train = load_module(ROOT / "examples/native/train.py")
    assert -1.5 < train.main(library, 4_096) < 10
    assert "an apple is worth 1" in capsys.readouterr().out


# Training -------------------------------------------------------------------------------------
def weights(ppo: PPO) -> list[np.ndarray]:
    return [tensor.numpy().copy() for tensor in ppo.policy.state_dict().values()]


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_ppo_trains_and_resumes_to_the_bit(
    snake: type[operant.Env], engine: str, tmp_path: Path
) -> None:
    ppo = PPO(snake, seed=1, engine=engine, **SMALL)
    assert ppo.engine.name == engine
    before = weights(ppo)
    ppo.learn(3 * 128)
    assert ppo.episodes > 0
    assert any((a != b).any() for a, b in zip(before, weights(ppo), strict=True))
    saved = ppo.save(tmp_path)
    ppo.learn(6 * 128)
    other = PPO.load(saved, snake, workers=2).learn(6 * 128)
    assert_equal(weights(ppo), weights(other))
    assert_equal(list(ppo.env.get_state().values()), list(other.env.get_state().values()))
    with pytest.raises(
        ValueError, match="the environment 'Snake' of this checkpoint is not regist"
    ):
        PPO.load(saved)


def test_ppo_learns_the_walk(walk: type[operant.Env]) -> None:
    """To the right is 1 at the end, less 0.01 a step."""
    ppo = PPO(walk, seed=1, num_envs=32, num_steps=32, hidden=[16], learning_rate=3e-3, threads=1)
    assert ppo.learn(20_000).mean_return > 0.9
