"""`operant check` finds comparisons of the action with what it never is."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from operant.check.actions import check_actions
from operant.check.finding import CheckFailed

from ..modules import load


@pytest.fixture(scope="module")
def arrays() -> ModuleType:
    return load(Path(__file__).parent / "array_envs.py")


def marked_line(module: ModuleType, name: str) -> int:
    """The line ``#!`` of a class."""
    lines = Path(str(module.__file__)).read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"class {name}("))
    return next(k for k, line in enumerate(lines, 1) if k > start and line.endswith("#!"))


def said_of(module: ModuleType, name: str) -> str:
    with pytest.raises(CheckFailed) as found:
        check_actions(getattr(module, name))
    place, _, text = str(found.value).partition(": ")
    assert place == f"{module.__file__}:{marked_line(module, name)}"
    return text


WRITE = "; write a number of these, or a larger action_space"


def test_an_action_that_there_is_not(broken: ModuleType, arrays: ModuleType) -> None:
    assert said_of(broken, "AsksForThree") == (
        f"`action == 3` is never true: action is 0 to 2 in Discrete(3){WRITE}"
    )
    assert said_of(broken, "AsksBeyond") == (
        f"`action[1] >= MANY` is never true: action[1] is 0 to 2 in MultiDiscrete([2 3]){WRITE}"
    )
    assert said_of(arrays, "Jumps") == (
        f"`action == Move.JUMP` is never true: action is 0 to 1 in Discrete(2){WRITE}"
    )


def test_what_is_no_mistake(broken: ModuleType, arrays: ModuleType) -> None:
    for env in (broken.OfSomeSpace, broken.AsksWhatIsAlwaysTrue, arrays.Good):
        check_actions(env)
