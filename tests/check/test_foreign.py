"""`check_foreign`: what it says of environments of Gymnasium's API, sound and broken."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import gymnasium
import pytest

from operant.check.finding import Finding
from operant.check.foreign_check import check_foreign

from .foreign_envs import Walk

CHECKS = {"made", "spaces", "reset", "step", "observations", "rewards", "ends", "determinism"}
CHECKS |= {"seeds", "episodes", "saving", "processes", "speed", "close"}


def findings(make_env: Any, timeout_s: float = 60.0) -> dict[str, Finding]:
    return {finding.name: finding for finding in check_foreign(make_env, timeout_s)}


def made(env_id: str) -> Any:
    if not env_id.startswith("MiniGrid"):
        return gymnasium.make(env_id)
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(gymnasium.make(env_id))


@pytest.mark.parametrize(
    ("env_id", "package", "savable"),
    [  # MiniGrid: its own observations have a text in them
        ("CartPole-v1", "gymnasium", True),
        ("FrozenLake-v1", "gymnasium", True),
        ("LunarLander-v3", "Box2D", False),
        ("MiniGrid-DoorKey-5x5-v0", "minigrid", False),
        ("InvertedPendulum-v5", "mujoco", False),
    ],
)
def test_sound_environments_pass(env_id: str, package: str, savable: bool) -> None:
    pytest.importorskip(package)
    found = findings(partial(made, env_id))
    assert all(finding.passed for finding in found.values()), found
    assert set(found) == CHECKS
    assert found["saving"].note != savable
    assert "auto takes" in found["speed"].detail


@pytest.mark.parametrize(
    ("how", "check", "sentence"),
    [
        ("shape", "observations", "an observation has shape (3,); its space has shape (2,)"),
        ("nan", "observations", "an observation is nan at [1] (at step 2)"),
        ("inf", "observations", "an observation is inf at [1]"),
        ("outside", "observations", "is 200 at [1], outside [-100, 100]; widen"),
        ("unseeded", "determinism", "something else in a second environment, after reset()"),
        ("shared", "determinism", "while another environment steps in the same process"),
        ("counts", "determinism", "reset(seed) must set all that is random"),
        ("no space", "spaces", "it has no observation_space; set it in __init__"),
        ("text", "spaces", "write a text as a MultiDiscrete"),
        ("raises", "step", "step() 3 raised KeyError: 'lost' (foreign_envs.py:"),
        ("no seed", "reset", "unexpected keyword argument 'seed'; write def reset(self, *, seed="),
        ("sys.exit", "step", "step() 3 raised SystemExit: 1"),
        ("exits", "step", "step() 3 ended the process with exit code 7"),
        ("aborts", "step", "step() 3 crashed with SIGABRT"),
        ("four", "step", "truncated, info), it returned a tuple of 4"),
        ("reward", "rewards", "a reward is None, which is no number"),
        ("array", "rewards", "a reward is an array of shape (2,)"),
        ("nan reward", "rewards", "a reward is nan (at step 1)"),
        ("flag", "ends", "terminated is array([False]) (ndarray); it must be True or False"),
        ("mask of two", "masks", 'info["action_mask"] has 2 values of int8; Discrete(3) has 3'),
        ("empty mask", "masks", "allows no action; at least one must be allowed"),
        ("float image", "render", "render() gave float64 of shape (4, 4, 3); rgb_array means"),
        ("forgets", "saving", "gives something else at step 0; get_state() must hold all of it"),
    ],
)
def test_broken_environments_fail_with_their_sentence(how: str, check: str, sentence: str) -> None:
    found = findings(partial(Walk, how))
    failed = [finding.name for finding in found.values() if not finding.passed]
    assert set(failed) - {"saving"} == {check} - {"saving"}, found
    assert sentence in found[check].detail


def test_what_is_worth_a_note() -> None:
    found = {how: findings(partial(Walk, how)) for how in ("wide", "not random", "endless", "mask")}
    assert all(finding.passed for checks in found.values() for finding in checks.values()), found
    assert "observations are float64 and the space says" in found["wide"]["observations"].detail
    assert "nothing here is random, or seeds are" in found["not random"]["seeds"].detail
    assert "give it a time limit" in found["endless"]["episodes"].detail
    assert "fits the actions" in found["mask"]["masks"].detail


def test_one_that_hangs_is_named() -> None:
    found = findings(partial(Walk, "hangs in reset"), timeout_s=3.0)
    assert found["reset"] == Finding("reset", False, "reset(seed=1) did not return within 3 s")


def test_one_that_cannot_be_sent_is_checked_here() -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return Walk()

    found = findings(make)
    assert found["processes"].note
    assert 'only backend="serial" and "threads"' in found["processes"].detail
    assert all(finding.passed for finding in found.values()), found
