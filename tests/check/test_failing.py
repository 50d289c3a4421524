"""`check_env` names what does not work."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


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
