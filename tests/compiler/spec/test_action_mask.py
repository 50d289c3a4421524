"""Defining which actions are allowed: what is recorded, and what is refused with which words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

import operant
from operant.compiler.spec.rules import Rules
from operant.lang import LanguageError, to_float, where

PAGE = Path(__file__).parents[3] / "docs" / "environments.md"


class Position(NamedTuple):
    x: float
    lucky: bool


class Settings(NamedTuple):
    limit: float = 2.0
    open: bool = False


def _step(state: Any, action: Any) -> Any:
    return Position(state.x + 1.0, state.lucky), 1.0, state.x > 9.0


def define(action_mask: Any, action_space: Space[Any] | None = None) -> type[operant.Env]:
    body: dict[str, Any] = {
        "State": Position,
        "Params": Settings,
        "observation_space": Box(-np.inf, np.inf, (1,), np.float32),
        "action_space": Discrete(2) if action_space is None else action_space,
        "reset": lambda random: Position(random[0], random[1] < 0.5),
        "step": _step,
        "observe": lambda state: (state.x,),
        "action_mask": action_mask,
    }
    return type("Catch", (operant.Env,), body)


def refusal(action_mask: Callable[..., Any], action_space: Space[Any] | None = None) -> str:
    """What is said of it, after file and line of the function."""
    with pytest.raises(LanguageError) as caught:
        define(action_mask, action_space)
    code = action_mask.__code__
    place, message = str(caught.value).split(": ", 1)
    assert place == f"{code.co_filename}:{code.co_firstlineno}"
    return message


def allowing(count: int) -> Callable[..., Any]:
    return lambda state: (True,) * count


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (Discrete(3), 3),
        (Discrete(3, start=-1), 3),
        (MultiDiscrete([2, 3]), 5),
        (MultiDiscrete([[2, 3], [1, 4]]), 10),
        (MultiBinary(3), 6),
    ],
)
def test_a_mask_has_a_value_for_each_action(space: Space[Any], size: int) -> None:
    rules = Rules.of(define(lambda state: [state.x > 1.0] * size, space))
    assert rules.mask is not None
    assert rules.mask_size == len(rules.mask.outputs) == size == sum(rules.action.choices)
    assert {rules.mask.nodes[output].dtype for output in rules.mask.outputs} == {"bool"}
    for wrong in (size - 1, size + 1):
        assert refusal(allowing(wrong), space) == (
            f"action_mask() must return {size} truth values, one for each action of {space}, "
            f"got {wrong}"
        )


def test_state_and_parameters_are_inputs() -> None:
    def action_mask(params: Any, state: Any) -> Any:
        return (state.x < params.limit, True if params.open else state.lucky)

    rules = Rules.of(define(action_mask))
    assert rules.mask is not None
    assert rules.mask.inputs == ["s_x", "s_lucky", "p_limit"]
    other = Rules.of(define(action_mask), {"limit": 1.0, "open": True})
    assert other.mask is not None
    assert other.mask.nodes[other.mask.outputs[1]].value is True


@pytest.mark.parametrize("values", [(True, False), [True, False], (np.bool_(True), True)])
def test_constants_are_accepted(values: Any) -> None:
    assert Rules.of(define(lambda state: values)).mask_size == 2


def test_none_means_no_mask_also_in_a_subclass() -> None:
    base = define(lambda state: (True, state.lucky))
    assert Rules.of(base).mask_size == 2
    without = type("Free", (base,), {"action_mask": None})
    assert Rules.of(without).mask is None
    assert Rules.of(without).mask_size == 0
    assert Rules.of(define(None)).mask_size == 0


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [Box(-1.0, 1.0, (2,), np.float32), Box(0.0, 1.0, (), np.float32)])
def test_continuous_actions_have_no_mask(space: Space[Any]) -> None:
    message = refusal(lambda state: (True, True), space)
    assert message == (
        "action_mask() chooses among the actions of a Discrete, MultiDiscrete or MultiBinary "
        f"action_space, got {space}"
    )


def test_the_number_of_values_is_checked() -> None:
    head = "action_mask() must return 2 truth values, one for each action of Discrete(2), got"
    assert refusal(lambda state: (True,)) == f"{head} 1"
    assert refusal(lambda state: (True, True, state.lucky)) == f"{head} 3"
    assert refusal(lambda state: ()) == f"{head} 0"
    assert refusal(lambda state: True) == f"{head} True"
    assert refusal(lambda state: None) == f"{head} nothing: a `return` is missing"
    assert refusal(lambda state: state.lucky) == f"{head} a bool"


PAIR = MultiDiscrete([2, 2], start=[0, 5])


@pytest.mark.parametrize(
    ("function", "space", "problem"),
    [
        (lambda state: (True, 1), None, "action 1, got an int; write a comparison"),
        (lambda state: (state.x, True), None, "action 0, got a float; write a comparison"),
        (
            lambda state: (True, to_float(state.lucky)),
            Discrete(2, start=4),
            "action 5, got a float; write a comparison",
        ),
        (
            lambda state: (True, True, True, where(state.lucky, 1, 0)),
            PAIR,
            "action 6 of component 1, got an int; write a comparison",
        ),
        (lambda state: (None, True), None, "action 0; expected a number, got None"),
    ],
)
def test_a_value_that_is_no_truth_value_is_refused(
    function: Callable[..., Any], space: Space[Any] | None, problem: str
) -> None:
    message = refusal(function, space)
    assert message.startswith(f"action_mask() must give a bool for {problem}")


def test_an_unknown_argument_is_named() -> None:
    message = refusal(lambda state, action: (True, True))
    assert message == (
        "action_mask() takes any of state, params; got the argument 'action'; write def "
        "action_mask(state, params), or fewer"
    )


def test_what_cannot_be_compiled_is_refused() -> None:
    message = refusal(lambda state: (True, state.lucky and state.x > 0.0))
    assert message.startswith("`and` on a value that differs per environment")


calls = itertools.count()


def test_an_impure_mask_is_refused() -> None:
    def counter(state: Any) -> Any:
        return (True, state.x > float(next(calls)))

    message = refusal(counter)
    assert message.startswith("action_mask() gives another program each time it is called")


def test_a_mask_may_name_its_class() -> None:
    """Nothing else names it, so the cell with the name is found through the mask alone."""

    class Named(operant.Env):
        State = Position
        edge = 3.0
        observation_space = Box(-9.0, 9.0, (1,))
        action_space = Discrete(2)

        def reset(random: Any) -> Any:
            return Position(random[0], False)

        def step(state: Any, action: Any) -> Any:
            return state, 1.0, state.lucky

        def observe(state: Any) -> Any:
            return (state.x,)

        def action_mask(state: Any) -> Any:
            return (True, state.x < Named.edge)

    assert Rules.of(Named).mask_size == 2


# The page ---------------------------------------------------------------------------------------


def test_python_blocks_of_the_page_run() -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(block, scope)
    assert scope["masks"].shape == (4096, 4)
    assert not scope["masks"].all()
    assert scope["masks"].any(axis=1).all()
