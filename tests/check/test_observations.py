"""`operant check` finds numbers of an observation that no line of observe() writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from operant.compiler.emit.dialects import PythonText
from operant.compiler.spec.rules import Rules
from operant.lang import LanguageError

from ..modules import load
from .test_actions import marked_line


@pytest.fixture(scope="module")
def arrays() -> ModuleType:
    return load(Path(__file__).parent / "array_envs.py")


def test_a_number_that_is_not_written(
    arrays: ModuleType, failures: Callable[[type], dict[str, str]]
) -> None:
    place = f"{arrays.__file__}:{marked_line(arrays, 'LacksOne')}"
    assert failures(arrays.LacksOne) == {
        "spaces": f"{place}: observe() never writes to obs[1, 0], which is always 0; write "
        "obs[1, 0] = ..., or give observation_space another shape (1 of 6 numbers are not written)"
    }


@pytest.mark.parametrize("name", ["Good", "WritesSomewhere", "WritesRows"])
def test_what_may_be_written(arrays: ModuleType, name: str) -> None:
    rules = Rules.of(getattr(arrays, name))
    assert rules.library(PythonText())[0].shown.all()  # type: ignore[attr-defined]


def test_other_parameters_may_write_more(
    arrays: ModuleType, failures: Callable[[type], dict[str, str]]
) -> None:
    assert failures(arrays.Shows) == {}


def test_an_observation_of_which_nothing_is_written_is_refused(arrays: ModuleType) -> None:
    def observe(state, obs):
        obs = 0.0  # noqa: F841  (not an element)

    def looks(state, obs):
        x = obs[0, 0]  # noqa: F841

    with pytest.raises(LanguageError, match="the argument obs is given another value"):
        type("Rebinds", (arrays.Good,), {"observe": observe})
    with pytest.raises(LanguageError, match=r"observe\(\) never writes to `obs`, so every"):
        type("Looks", (arrays.Good,), {"observe": looks})
