"""The fused engine on games in C: it plays what a batch of them plays, and trains the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import operant
from operant.models import PPO
from operant.ppo.engines import choose
from operant.training.episodes import Episodes
from operant.training.guard import NonFiniteError
from operant.vector.native import load

WALK, SNAKE = "tests/vector/native/walk.c", "examples/native/snake.c"
GAMES = [(WALK,), (WALK, "-DMULTI"), (WALK, "-DCONTINUOUS"), (SNAKE, "-O2")]
SMALL: dict[str, Any] = {"num_envs": 130, "num_steps": 24, "hidden": [8], "device": "cpu"}
Build = Callable[..., Path]


def made(game: type[operant.Env], **options: Any) -> PPO:
    ppo = PPO(game, **{"seed": 3, "threads": 1, "engine": "fused", **SMALL, **options})
    assert ppo.engine.name == options.get("engine", "fused"), ppo.engine_reason
    return ppo


def parameters(ppo: PPO) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in ppo.policy.state_dict().values()])


@pytest.fixture(params=GAMES, ids=" ".join)
def game(request: pytest.FixtureRequest, build_library: Build) -> type[operant.Env]:
    return load(build_library(*request.param), trial=False)


def assert_played(ppo: PPO, batch: Any, episodes: Episodes) -> None:
    """A batch that is given the rollout's actions answers what the rollout holds."""
    buffer, found, finals = ppo.engine.buffer, [], []
    for t in range(buffer.num_steps):
        masks = batch.action_masks()
        if masks is not None:
            np.testing.assert_array_equal(buffer.arrays["action_mask"][t], masks)
            parts = buffer.arrays["action"][t].reshape(batch.num_envs, -1)
            starts = np.cumsum((0, *batch.rules.action.choices[:-1]))
            assert np.take_along_axis(masks, parts + starts, 1).all()  # no masked action
        actions = ppo.distribution.to_env(buffer.action[t]).numpy()
        obs, reward, terminated, truncated, info = batch.step(actions)
        np.testing.assert_array_equal(buffer.arrays["obs"][t + 1], obs)
        for name, value in (
            ("reward", reward),
            ("terminated", terminated),
            ("truncated", truncated),
        ):
            np.testing.assert_array_equal(buffer.arrays[name][t], value, err_msg=name)
        cut = truncated & ~terminated
        finals += [info["final_obs"][cut]] if cut.any() else []
        if info:
            ended, report = np.flatnonzero(info["_episode"]), info["episode"]
            found.append((ended, report["r"][ended], report["l"][ended], cut[ended]))
    names = ("env_index", "returns", "lengths", "truncated")
    for name, values in zip(names, zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(getattr(episodes, name), np.concatenate(values))
    np.testing.assert_array_equal(buffer.final_obs, np.concatenate(finals))


def test_a_rollout_is_what_a_batch_plays(game: type[operant.Env]) -> None:
    ppo = made(game, threads=5, max_episode_steps=9)
    batch = operant.make(game, 130, autoreset_mode="SameStep", max_episode_steps=9)
    batch.set_state(ppo.env.get_state())
    for iteration in range(2):
        assert_played(ppo, batch, ppo.engine.collect(iteration, iteration * 24))
    wanted = batch.get_state()
    for name, array in ppo.env.get_state().items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_discrete_rollouts_are_the_eager_ones(build_library: Build) -> None:
    snake = load(build_library(SNAKE, "-O2"), trial=False)
    fused, eager = made(snake), made(snake, engine="eager")
    for ppo in (fused, eager):
        ppo.engine.collect(0, 0)
    for name in ("action", "action_mask", "obs", "reward", "terminated", "truncated"):
        ours, theirs = fused.engine.buffer.arrays[name], eager.engine.buffer.arrays[name]
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_the_same_seed_trains_the_same_bits_on_any_number_of_threads(
    game: type[operant.Env],
) -> None:
    one, two, other = trained = [
        made(game, **options).learn(3 * 24 * 130)
        for options in ({}, {"threads": 9}, {"seed": 4, "threads": 2})
    ]
    assert [ppo.engine.rollout_threads for ppo in trained] == [1, 9, 2]
    tiles = [ppo.engine._env_tile for ppo in (one, two)]
    assert tiles == [64, 16]  # threads share the games, however few there are
    assert torch.equal(parameters(one), parameters(two))
    assert not torch.equal(parameters(one), parameters(other))
    wanted = one.env.get_state()
    for name, array in two.env.get_state().items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_auto_is_fused_and_tries_how_many_threads_should_play(
    build_library: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.training.ranks.usable_cores", lambda: 4)
    ppo = PPO(load(build_library(WALK), trial=False), **SMALL)
    assert (ppo.engine.name, ppo.engine_reason) == ("fused", "the fastest for this job")
    assert ppo.env.backend == "native"
    played = []
    for iteration in range(3):
        played.append(ppo.engine.rollout_threads)
        ppo.engine.collect(iteration, 24 * iteration)
    assert played == [4, 4, 2]  # each size twice; how many train is another question
    assert ppo.engine.threads == 4


def test_with_the_policy_on_a_gpu_the_reason_says_what_to_do() -> None:
    job: Any = SimpleNamespace(device=torch.device("cuda", 0))
    reason = "the policy is on cuda:0; run.device=cpu lets it"
    assert reason in str(choose._why_not_fused(job))


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ("ODD_FLAG", "wrote 2 to terminated, which must be 0 or 1; try it: operant check"),
        ("NAN_REWARD", "the reward of environment 0 is not finite: nan at step 1"),
    ],
)
@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_what_a_game_does_wrong_is_said(
    build_library: Build, engine: str, lie: str, sentence: str
) -> None:
    ppo = made(load(build_library(WALK, f"-DLIE={lie}"), trial=False), engine=engine)
    with pytest.raises((RuntimeError, NonFiniteError), match=sentence):
        ppo.learn(10_000)
