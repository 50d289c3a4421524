"""`check_env` passes what works and names what does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from operant.check import Finding, check_env, throughput
from operant.envs import env_ids, get_env

HERE = Path(__file__).parent


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


broken = load(HERE / "broken_envs.py")
lander = load(HERE.parent / "examples" / "lander.py")


def failures(env: type) -> dict[str, str]:
    return {f.name: f.detail for f in check_env(env) if not f.passed}


@pytest.mark.parametrize("env_id", env_ids())
def test_built_in_environments_pass(env_id: str) -> None:
    assert failures(get_env(env_id)) == {}


@pytest.mark.parametrize("env", [lander.Lander, broken.Good], ids=lambda env: env.__name__)
def test_user_environments_pass(env: type) -> None:
    findings = list(check_env(env))
    assert all(finding.passed for finding in findings)
    assert {finding.name for finding in findings} >= {
        *("actions", "spaces", "finite", "bounds", "resets"),
        *("parity", "determinism", "autoreset", "episodes"),
    }


@pytest.mark.parametrize(
    ("name", "check", "sentence"),
    [
        ("NotANumber", "finite", "the reward at step"),
        ("OutOfBounds", "bounds", "is outside [-2, 2]"),
        ("IgnoresActions", "actions", "step() never uses `action`"),
        ("TwoFaced", "parity", "differs between reference and cpu at step 1"),
        ("KeepsMemory", "determinism", "two runs on reference with the same seed"),
    ],
)
def test_broken_environments_fail_with_the_right_sentence(
    name: str, check: str, sentence: str
) -> None:
    found = failures(getattr(broken, name))
    assert check in found, found
    assert sentence in found[check]


def test_an_environment_that_never_ends_gets_a_note() -> None:
    class Endless(broken.Good):
        max_episode_steps = None

        def step(state, action):
            x = state.x * 0.9 + 0.01 * action
            return broken.State(x), x, False

    findings = {finding.name: finding for finding in check_env(Endless)}
    assert findings["episodes"] == Finding(
        "episodes",
        True,
        "no episode ended in 1010 steps; set max_episode_steps to limit them",
        note=True,
    )


def test_throughput_is_a_rate() -> None:
    assert throughput(broken.Good, "reference", num_envs=16, seconds=0.01) > 0
