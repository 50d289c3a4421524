"""`check_env` names what does not work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from operant.check import pictures
from operant.check.env_check import check_env
from operant.check.finding import CheckFailed


@pytest.mark.parametrize(
    ("name", "check", "sentence"),
    [
        ("NotANumber", "finite", "the reward at step"),
        ("OutOfBounds", "bounds", "is outside [-2, 2]"),
        ("IgnoresActions", "actions", "step() never uses `action`"),
        ("TwoFaced", "parity", "differs between reference and cpu at step 1"),
        ("KeepsMemory", "determinism", "two runs on reference with the same seed"),
        ("NothingAllowed", "masks", "action_mask() allows no action at step"),
        ("NothingAllowedAtTheEnd", "masks", ", the last state of an episode); allow at least one"),
        ("NothingForTheSecond", "masks", "allows no action of component 1 at step"),
        ("TwoFacedMask", "masks", "action_mask() differs between reference and cpu after reset()"),
        ("UnknownColour", "render", "no colour is called 'redd'; did you mean red"),
        ("Infinite", "finite", "the reward at step 1 is inf"),
    ],
)
def test_broken_environments_fail_with_the_right_sentence(
    broken: ModuleType,
    failures: Callable[[type], dict[str, str]],
    name: str,
    check: str,
    sentence: str,
) -> None:
    found = failures(getattr(broken, name))
    assert check in found, found
    assert sentence in found[check]


@pytest.mark.parametrize("name", ["NothingAllowed", "NothingForTheSecond", "TwoFacedMask"])
def test_a_mask_fails_its_own_check_only(
    broken: ModuleType, failures: Callable[[type], dict[str, str]], name: str
) -> None:
    assert list(failures(getattr(broken, name))) == ["masks"]


def test_a_picture_fails_its_own_check_only(
    broken: ModuleType, failures: Callable[[type], dict[str, str]]
) -> None:
    assert list(failures(broken.UnknownColour)) == ["render"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("UnknownColour", "no colour is called 'redd'; did you mean red"),
        ("FloatColour", "from 0 to 255, so (1.0, 0.2, 0.2) is black; write (255, "),
        ("NoRadius", "'color'; write canvas.circle(x, y, radius, color) (in the picture"),
        ("DrawsAnotherField", "'State' object has no attribute 'pos' (it has: x)"),
        ("DrawsNothing", "render() leaves every picture empty: it draws on `canvas`"),
        ("DrawsLate", "no colour is called 'redd'"),
    ],
)
def test_what_is_wrong_with_a_picture_and_where(
    broken: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    # Pictures are plain Python, whatever plays: here nothing is compiled for them.
    monkeypatch.setattr(pictures, "available_backends", lambda env: ("reference",))
    with pytest.raises(CheckFailed) as error:
        pictures.check_render(getattr(broken, name))
    assert str(error.value).startswith(f"{broken.__file__}:")
    assert sentence in str(error.value)


@pytest.mark.filterwarnings("error")
def test_infinite_numbers_are_found_once_and_have_a_place(
    broken: ModuleType, failures: Callable[[type], dict[str, str]]
) -> None:
    found = failures(broken.Infinite)
    assert list(found) == ["finite"]
    line = broken.Infinite.step.__code__.co_firstlineno + 2
    assert found["finite"].startswith(f"{broken.__file__}:{line}: the reward at step 1 is inf")
    assert "x / 0.0 is infinite" in found["finite"]


def test_bounds_name_the_space(
    broken: ModuleType, failures: Callable[[type], dict[str, str]]
) -> None:
    line = failures(broken.OutOfBounds)["bounds"].partition(": ")[0].rpartition(":")[2]
    text = Path(str(broken.__file__)).read_text().splitlines()[int(line) - 1]
    assert text.strip() == "observation_space = Box(-2.0, 2.0, (1,))"


def test_a_state_that_never_changes_is_noted(broken: ModuleType) -> None:
    env = broken.ReturnsTheOldState
    found = {finding.name: finding for finding in check_env(env)}
    line = env.step.__code__.co_firstlineno + 2
    assert found["state"].note
    assert found["state"].detail == (
        f"{broken.__file__}:{line}: step() returns the state as it came, so nothing in it ever "
        "changes; if that is not meant, write ReturnsTheOldState.State(...) with the new values"
    )
    assert all(finding.passed for finding in found.values())


def test_a_long_time_limit_is_not_asked_for_again(broken: ModuleType) -> None:
    found = {finding.name: finding for finding in check_env(broken.Long)}
    assert found["episodes"].note
    assert found["episodes"].detail == (
        "no episode ended in 1010 steps; max_episode_steps = 3000 is more than what is played here"
    )
