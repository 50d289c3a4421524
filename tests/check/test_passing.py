"""`check_env` passes what works."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from operant.check.env_check import check_env
from operant.check.finding import Finding
from operant.check.plays import throughput
from operant.envs import env_ids, get_env

pytestmark = pytest.mark.usefixtures("unseen_test")


@pytest.mark.parametrize("env_id", env_ids())
def test_built_in_environments_pass(
    env_id: str, failures: Callable[[type], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only CartPole's episodes end within 100; whole ones are compared in tests/envs.
    monkeypatch.setattr("operant.check.plays.MAX_STEPS", 10)
    monkeypatch.setattr("operant.check.code.STEPS", 20)
    assert failures(get_env(env_id)) == {}


@pytest.mark.parametrize(("module", "name"), [("lander", "Lander"), ("broken", "Good")])
def test_user_environments_pass(module: str, name: str, request: pytest.FixtureRequest) -> None:
    findings = list(check_env(getattr(request.getfixturevalue(module), name)))
    assert all(finding.passed for finding in findings)
    assert {finding.name for finding in findings} >= {
        *("compiles", "errors", "actions", "spaces", "finite", "bounds", "resets"),
        *("parity", "determinism", "autoreset", "episodes"),
    }


def test_masks_are_checked_where_there_are_any(broken: ModuleType) -> None:
    findings = {finding.name: finding for finding in check_env(broken.Masked)}
    assert findings["masks"] == Finding(
        "masks", True, "the same on reference and cpu; every state met allows some action"
    )
    assert all(finding.passed for finding in findings.values())

    class Idle(broken.Good):
        def action_mask(state):
            return (True, True)

    found = {finding.name: finding.detail for finding in check_env(Idle)}
    assert found["masks"] == "every action was allowed in every state met"
    assert "masks" not in {finding.name for finding in check_env(broken.Good)}


def test_an_environment_that_never_ends_gets_a_note(broken: ModuleType) -> None:
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


def test_throughput_is_a_rate(broken: ModuleType) -> None:
    assert throughput(broken.Good, "reference", seconds=0.01).sps > 0


def test_a_slow_backend_is_measured_with_few_environments() -> None:
    """Where a step of 4096 would take seconds."""
    slow = throughput(get_env("Prospector-v0"), "reference", seconds=0.01)
    assert slow.num_envs == 64
    assert slow.sps > 0
    assert throughput(get_env("CartPole-v1"), "cpu", seconds=0.01).num_envs == 4096
