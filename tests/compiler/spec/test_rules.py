"""Defining an environment: what is refused, where and with which words; what parameters may be."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import random as python_random
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

import operant
from operant.compiler.recording.recorder import MAX_FIELDS
from operant.compiler.spec.rules import Rules, own_time_limit
from operant.lang import LanguageError, abs, sin, to_float, uniform, where


class Position(NamedTuple):
    x: float
    steps: int
    landed: bool


class Settings(NamedTuple):
    gravity: float = 9.8
    size: int = 2
    wrap: bool = False
    mode: str = "euler"


LINE = Box(-np.inf, np.inf, (1,), np.float32)


def _reset(random: Any) -> Any:
    return Position(uniform(random[0], -1.0, 1.0), 0, False)


def _step(state: Any, action: Any) -> Any:
    return Position(state.x + to_float(action), state.steps + 1, state.x > 9.0), 1.0, state.x > 9.0


def _observe(state: Any) -> Any:
    return (state.x,)


def define(**parts: Any) -> type[operant.Env]:
    """A working environment, with some parts replaced; None removes one."""
    body: dict[str, Any] = {
        "State": Position,
        "Params": Settings,
        "observation_space": LINE,
        "action_space": Discrete(2),
        "reset": _reset,
        "step": _step,
        "observe": _observe,
    }
    body = {name: part for name, part in (body | parts).items() if part is not None}
    return type("Catch", (operant.Env,), body)


def place(function: Callable[..., Any]) -> str:
    """file:line of a function, or of the line in it marked with an arrow."""
    lines, first = inspect.getsourcelines(function)
    marked = [first + k for k, text in enumerate(lines) if "# <-" in text]
    return f"{function.__code__.co_filename}:{marked[0] if marked else first}"


def refusal(error: type[Exception], **parts: Any) -> str:
    with pytest.raises(error) as caught:
        define(**parts)
    return str(caught.value)


# Parts ------------------------------------------------------------------------------------------
def test_the_plain_definition_works() -> None:
    rules = Rules.of(define())
    assert rules.fields == {"x": "float", "steps": "int", "landed": "bool"}
    assert rules.float_params == ("gravity",)
    assert rules.reset.inputs == ["u_0", "u_1", "u_2", "u_3", "p_gravity"]
    assert rules.step.inputs == ["s_x", "s_steps", "s_landed", "a_0", "p_gravity"]
    assert [rules.step.nodes[output].dtype for output in rules.step.outputs] == [
        *["float", "int", "bool"],
        *["float", "bool"],
    ]
    assert rules.step_draws == 0
    np.testing.assert_array_equal(rules.param_values(), np.float32([9.8]))


@pytest.mark.parametrize(
    "missing",
    [("State",), ("reset",), ("step", "observe"), ("observation_space", "action_space")],
)
def test_missing_parts_are_named(missing: tuple[str, ...]) -> None:
    message = refusal(TypeError, **dict.fromkeys(missing))
    assert message.startswith(f"Catch lacks {', '.join(missing)}; write ")


def test_a_class_without_rules_is_a_base_class() -> None:
    class Base(operant.Env):
        render_fps = 60

    with pytest.raises(LanguageError, match=r"Base lacks State, reset, step, observe, observ"):
        Rules.of(Base)


@dataclass
class PositionRecord:
    x: float = 0.0


@pytest.mark.parametrize(
    ("state", "got"),
    [
        (PositionRecord, "the class PositionRecord"),
        (tuple, "the class tuple"),
        (Position(0.0, 0, False), "Position(x=0.0, steps=0, landed=False)"),
        ({"x": 1}, "{'x': 1}"),
    ],
)
def test_state_must_be_a_named_tuple(state: Any, got: str) -> None:
    message = refusal(LanguageError, State=state)
    assert message.startswith(f"Catch.State must be a NamedTuple, got {got}; write class State(")


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        (str, "str; number the cases 0, 1, 2 and use an int"),
        (list[float], "list[float]; write one field for each number"),
        (np.float32, "float32; write float (32 bits)"),
        (float | None, "float | None"),
    ],
)
def test_a_field_has_a_type_that_compiles(kind: Any, got: str) -> None:
    fields = [("x", float), ("bad", kind)]
    message = refusal(LanguageError, State=NamedTuple("State", fields))
    assert message.startswith(f"Catch.State.bad: use float, int or bool, got {got}")


@pytest.mark.parametrize("count", [0, MAX_FIELDS + 1])
def test_the_number_of_fields_is_limited(count: int) -> None:
    state = NamedTuple("State", [(f"x{k}", float) for k in range(count)])
    message = refusal(TypeError, State=state)
    assert message.startswith(f"Catch.State needs 1 to {MAX_FIELDS} fields, got {count}; ")


def test_the_largest_state_is_accepted() -> None:
    state = NamedTuple("State", [(f"x{k}", float) for k in range(MAX_FIELDS)])
    env = define(
        State=state,
        reset=lambda random: state(*[random[0]] * MAX_FIELDS),
        step=lambda state, action: (state, 1.0, False),
        observe=lambda state: (state[-1],),
    )
    assert len(Rules.of(env).step.outputs) == MAX_FIELDS + 2


# Functions --------------------------------------------------------------------------------------
def _observe_other(states: Any) -> Any:
    return (states.x,)


def _reset_with_state(random: Any, state: Any) -> Any:
    return state


def _step_with_rest(state: Any, *rest: Any) -> Any:
    return state, 1.0, False


def _step_with_default(state: Any, action: Any, factor: float = 2.0) -> Any:
    return state, factor, False


WRITE_RESET = "; write def reset(random, params), or fewer"
WRITE_STEP = "; write def step(state, action, random, params), or fewer"


@pytest.mark.parametrize(
    ("name", "function", "allowed", "unknown"),
    [
        ("observe", _observe_other, "state, params", "'states'; did you mean 'state'?"),
        ("reset", _reset_with_state, "random, params", f"'state'{WRITE_RESET}"),
        ("step", _step_with_rest, "state, action, random, params", f"'rest'{WRITE_STEP}"),
        ("step", _step_with_default, "state, action, random, params", f"'factor'{WRITE_STEP}"),
    ],
)
def test_an_unknown_argument_is_named(
    name: str, function: Callable[..., Any], allowed: str, unknown: str
) -> None:
    message = refusal(LanguageError, **{name: function})
    assert message == (
        f"{place(function)}: {name}() takes any of {allowed}; got the argument {unknown}"
    )


def _one_number(state: Any) -> Any:
    return state.x  # <-


def _two_numbers(state: Any) -> Any:
    return state.x, state.x  # <-


def test_the_number_of_components_is_checked() -> None:
    message = refusal(LanguageError, observe=_two_numbers)
    assert message == (
        f"{place(_two_numbers)}: observe() must return 1 number for {LINE}, got 2; "
        "write Box(low, high, (2,)), or return 1"
    )
    message = refusal(LanguageError, observe=_one_number)
    assert message == (
        f"{place(_one_number)}: observe() must return 1 number for {LINE}, got a bare number; "
        "write a comma after it: return x,"
    )


def test_a_scalar_space_takes_one_number() -> None:
    scalar = Box(-1.0, 1.0, (), np.float32)
    assert Rules.of(define(observation_space=scalar, observe=_one_number)).observation.scalar
    message = refusal(LanguageError, observation_space=scalar, observe=_two_numbers)
    assert "observe() must give a float for component 0, got (float, float); give one" in message


def _float_for_int(random: Any) -> Any:
    return Position(1.0, random[0], False)  # <-


def _int_for_bool(random: Any) -> Any:
    return Position(1.0, 0, 0)  # <-


def _bool_for_float(random: Any) -> Any:
    return Position(random[0] > 0.5, 0, False)  # <-


def _none_for_float(random: Any) -> Any:
    return Position(None, 0, False)  # <-


def _dict_for_float(random: Any) -> Any:
    return Position({"x": 1.0}, 0, False)  # <-


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_float_for_int, "must give an int for State.steps, got a float; write to_int(x)"),
        (
            _int_for_bool,
            "must give a bool for State.landed, got an int; write a comparison",
        ),
        (_bool_for_float, "must give a float for State.x, got a bool; write to_float(x)"),
        (_none_for_float, "must give a float for State.x; expected a number, got None; values are"),
        (_dict_for_float, "must give a float for State.x; expected a number, got a dict"),
    ],
)
def test_a_field_of_another_type_is_refused(function: Callable[..., Any], problem: str) -> None:
    message = refusal(LanguageError, reset=function)
    assert message.startswith(f"{place(function)}: reset() {problem}")


def test_an_int_becomes_a_float_where_a_float_is_due() -> None:
    env = define(
        reset=lambda random: Position(3, 0, False),
        step=lambda state, action: (Position(action, 0, False), action, False),
    )
    step = Rules.of(env).step
    assert step.nodes[step.outputs[0]].op == "to_float"
    assert step.nodes[step.outputs[3]].op == "to_float"


def _bool_reward(state: Any, action: Any) -> Any:
    return state, state.x > 0.0, False  # <-


def _float_terminated(state: Any, action: Any) -> Any:
    return state, 1.0, state.x  # <-


def _int_terminated(state: Any, action: Any) -> Any:
    return state, 1.0, 0  # <-


def _no_terminated(state: Any, action: Any) -> Any:
    return state, 1.0  # <-


def _array_reward(state: Any, action: Any) -> Any:
    return state, np.ones(3), False  # <-


def _number_for_state(state: Any, action: Any) -> Any:
    return state.x, 1.0, False  # <-


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_bool_reward, "must give a float for the reward, got a bool; write to_float(x)"),
        (
            _float_terminated,
            "must give a bool for terminated, got a float; write a comparison",
        ),
        (
            _int_terminated,
            "must give a bool for terminated, got an int; write a comparison",
        ),
        (
            _no_terminated,
            "must return three values, (State, reward, terminated); got 2: (Position, 1.0)",
        ),
        (_array_reward, "must give a float for the reward; a NumPy array meets a number"),
        (
            _number_for_state,
            "must return Catch.State(x, steps, landed), reward, terminated; got a float for the",
        ),
    ],
)
def test_what_step_returns_is_checked(function: Callable[..., Any], problem: str) -> None:
    message = refusal(LanguageError, step=function)
    assert message.startswith(f"{place(function)}: step() {problem}")


def _branching(state: Any, action: Any) -> Any:
    speed = state.x + 1.0
    if speed > 2.0:  # <-
        speed = speed - 1.0
    return Position(speed, 0, False), 1.0, False


def test_what_cannot_be_compiled_is_refused_at_its_line() -> None:
    message = refusal(LanguageError, step=_branching)
    assert message.startswith(f"{place(_branching)}: `if` on a value that differs")


def test_wrong_kinds_of_components_are_refused() -> None:
    message = refusal(LanguageError, observation_space=Discrete(3), observe=_one_number)
    assert message.endswith("must give an int for component 0, got a float; write to_int(x)")


# Purity -----------------------------------------------------------------------------------------
IMPURE = "gives another program each time it is called; it must not keep or draw anything"


def _python_random() -> Any:
    return Position(python_random.random(), 0, False)  # <-


def _numpy_random(state: Any, action: Any) -> Any:
    return Position(state.x * np.random.default_rng().random(), 0, False), 1.0, False  # <-


calls = itertools.count()


def _counter(state: Any) -> Any:
    return (state.x + float(next(calls)),)


kept: list[Any] = []


_put: Any = eval("lambda items, value: items.append(value)")
"""It has no text that could be looked through."""


def _keeper(random: Any) -> Any:
    _put(kept, random[0])
    return Position(kept[0], 0, False)  # <-


def test_a_function_that_counts_its_calls_is_refused() -> None:
    message = refusal(LanguageError, observe=_counter)
    assert message.startswith(f"{place(_counter)}: observe() {IMPURE}")


@pytest.mark.parametrize(
    ("name", "function", "drawn"),
    [
        ("reset", _python_random, "python_random.random()"),
        ("step", _numpy_random, "np.random.default_rng()"),
    ],
)
def test_other_random_numbers_are_refused(
    name: str, function: Callable[..., Any], drawn: str
) -> None:
    message = refusal(LanguageError, **{name: function})
    assert message == (
        f"{place(function)}: {drawn} draws once, when the class is defined, and not in each "
        "episode; write uniform(random[0], low, high), randint(random[0], n) or "
        "normal(random[0], random[1])"
    )


def test_a_constant_table_may_be_drawn() -> None:
    table = np.random.default_rng(0).random(4)
    env = define(observe=lambda state: (state.x * np.random.default_rng(0).random(),))
    assert any(node.value == np.float32(table[0]) for node in Rules.of(env).observe.nodes)


def test_a_value_kept_from_another_call_is_refused() -> None:
    message = refusal(LanguageError, reset=_keeper)
    assert message.startswith(f"{place(_keeper)}: reset() must give a float for State.x; ")
    assert "a value of another call was kept and used" in message


def test_a_constant_nan_is_no_impurity() -> None:
    env = define(step=lambda state, action: (state, where(state.x > 0.0, math.nan, 1.0), False))
    constants = [node.value for node in Rules.of(env).step.nodes if node.op == "constant"]
    assert any(value != value for value in constants)


# Python errors ----------------------------------------------------------------------------------
def _needs_helper(random: Any) -> Any:
    x = random[0]
    return Position(helper_below(x), 0, False)  # <-  # noqa: F821


def test_a_helper_defined_below_gives_a_hint() -> None:
    message = refusal(LanguageError, reset=_needs_helper)
    assert message == (
        f"{place(_needs_helper)}: the name 'helper_below' is not defined "
        "(the functions run when the class is defined: put helpers above it)"
    )


def _unpacks_two(random: Any) -> Any:
    first, _second = random  # <-
    return Position(first, 0, False)


def test_a_wrong_count_of_random_numbers_gives_a_hint() -> None:
    message = refusal(LanguageError, reset=_unpacks_two)
    assert message.startswith(f"{place(_unpacks_two)}: ValueError: too many values to unpack")
    assert message.endswith("(random holds 4 numbers; the class says how many: random_numbers = 2)")
    define(reset=_unpacks_two, random_numbers=2)


def test_the_line_of_an_error_is_the_authors_own() -> None:
    def reset(random: Any) -> Any:
        return Position(functools.reduce(lambda a, b: a + b, []), 0, False)  # <-

    message = refusal(LanguageError, reset=reset)
    assert message.startswith(f"{place(reset)}: TypeError: reduce() of empty iterable")


@pytest.mark.parametrize("count", [-1, 65])
def test_the_count_of_random_numbers_is_limited(count: int) -> None:
    message = refusal(TypeError, random_numbers=count)
    assert message == f"Catch.random_numbers must be 0 to 64, got {count}"


@pytest.mark.parametrize("limit", [0, -5, 2.5, "200"])
def test_the_time_limit_is_a_positive_int(limit: Any) -> None:
    message = refusal(TypeError, max_episode_steps=limit)
    assert message == (
        f"Catch.max_episode_steps must be a whole number of at least 1, or None, got {limit!r}"
    )


def test_the_time_limit_may_follow_the_parameters() -> None:
    def steps_of(params: Any) -> int:
        return 10 * int(params.size)

    env = define(time_limit=steps_of, max_episode_steps=20)
    assert Rules.of(env).max_episode_steps == own_time_limit(env, {}) == 20
    assert Rules.of(env, {"size": 7}).max_episode_steps == own_time_limit(env, {"size": 7}) == 70
    assert refusal(LanguageError, time_limit=steps_of, max_episode_steps=50) == (
        f"{place(steps_of)}: Catch.time_limit(params) returns 20 at the default parameters and "
        "max_episode_steps is 50; write max_episode_steps = 20"
    )


# Spaces -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "space",
    [
        Box(-1.0, 1.0, (1,), np.float64),
        Box(0, 255, (1,), np.uint8),
        MultiBinary(1),
        Dict({"x": LINE}),
        Tuple([LINE]),
    ],
)
def test_an_unsupported_observation_space_is_refused(space: Space[Any]) -> None:
    message = refusal(LanguageError, observation_space=space)
    assert message.startswith(
        "Catch.observation_space must be a float32 Box, a Discrete or a MultiDiscrete, "
        f"got {space}; "
    )


@pytest.mark.parametrize(
    "space",
    [
        Box(-1.0, 1.0, (1,), np.float64),
        Box(0, 5, (1,), np.int32),
        Dict({"x": Discrete(2)}),
        Tuple([Discrete(2)]),
    ],
)
def test_an_unsupported_action_space_is_refused(space: Space[Any]) -> None:
    message = refusal(LanguageError, action_space=space)
    assert message.startswith(
        "Catch.action_space must be a Discrete, MultiDiscrete, MultiBinary or float32 Box, "
        f"got {space}; "
    )


@pytest.mark.parametrize("attribute", ["observation_space", "action_space"])
@pytest.mark.parametrize("space", [3, (2,), lambda params: "Discrete(2)"])
def test_a_space_must_be_a_space(attribute: str, space: Any) -> None:
    message = refusal(TypeError, **{attribute: space})
    assert message.startswith(f"Catch.{attribute} must be a gymnasium space, or a function of")


@pytest.mark.parametrize(
    ("space", "dtype", "scalar", "size", "low", "high"),
    [
        (Discrete(3, start=-1), "int", True, 1, (-1,), (2,)),
        (MultiDiscrete([3, 5]), "int", False, 2, (0, 0), (3, 5)),
        (MultiDiscrete([3, 5], start=[1, -2]), "int", False, 2, (1, -2), (4, 3)),
        (MultiBinary(3), "int", False, 3, (0, 0, 0), (2, 2, 2)),
        (Box(-1.0, 1.0, (2, 2), np.float32), "float", False, 4, (), ()),
        (Box(-1.0, 1.0, (), np.float32), "float", True, 1, (), ()),
    ],
)
def test_the_layout_of_an_action(
    space: Space[Any],
    dtype: str,
    scalar: bool,
    size: int,
    low: tuple[int, ...],
    high: tuple[int, ...],
) -> None:
    seen: list[Any] = []

    def step(state: Any, action: Any) -> Any:
        _put(seen, action)
        return state, 1.0, False

    layout = Rules.of(define(action_space=space, step=step)).action
    assert (layout.dtype, layout.scalar, layout.size) == (dtype, scalar, size)
    assert (layout.low, layout.high) == (low, high)
    assert isinstance(seen[0], tuple) != scalar
    if not scalar:
        assert [action.dtype for action in seen[0]] == [dtype] * size


def test_a_space_may_depend_on_the_parameters() -> None:
    class Sized(operant.Env):
        State, Params = Position, Settings
        extra = 1
        reset, step = _reset, _step

        def observation_space(params: Any) -> Any:
            return Box(-params.gravity, params.gravity, (params.size + Sized.extra,), np.float32)

        @staticmethod
        def action_space(params: Any) -> Any:
            return Discrete(params.size)

        def observe(state: Any, params: Any) -> Any:
            return [state.x] * (params.size + 1)

    assert Rules.of(Sized).observation.shape == (3,)
    rules = Rules.of(Sized, {"size": 5, "gravity": 2.0})
    assert rules.observation.shape == (6,)
    assert rules.observation.space == Box(-2.0, 2.0, (6,), np.float32)
    assert rules.action.high == (5,)


# Names ------------------------------------------------------------------------------------------
SOURCE = textwrap.dedent(
    """
    class Counter(operant.Env):
        class State(NamedTuple):
            {fields}

        size = {size}
        observation_space = Box(-np.inf, np.inf, ({size},), np.float32)
        action_space = Discrete(2)

        @staticmethod
        def reset(random):
            return Counter.State(*random[: Counter.size])

        @staticmethod
        def step(state, action):
            {line}
            return Counter.State(*[x + action for x in state]), 1.0, state[0] > 3.0

        @staticmethod
        def observe(state):
            return state
    """
)


def run_source(scope: dict[str, Any], size: int, line: str = "pass") -> None:
    fields = "; ".join(f"x{k}: float" for k in range(size))
    scope |= {"operant": operant, "NamedTuple": NamedTuple, "np": np}
    scope |= {"Box": Box, "Discrete": Discrete, "__name__": "notebook"}
    exec(SOURCE.format(fields=fields, size=size, line=line), scope)


def test_a_class_may_be_defined_again_under_its_name() -> None:
    """As in a notebook, where the old class still has the name while the new one is made."""
    scope: dict[str, Any] = {}
    run_source(scope, 1)
    first = scope["Counter"]
    run_source(scope, 3)
    second = scope["Counter"]
    assert list(Rules.of(second).fields) == ["x0", "x1", "x2"]
    assert scope["Counter"] is second
    scope["Counter"] = first
    assert list(Rules.of(second).fields) == ["x0", "x1", "x2"]
    assert scope["Counter"] is first  # whatever had the name has it again


def test_a_failed_definition_leaves_the_name_alone() -> None:
    scope: dict[str, Any] = {}
    with pytest.raises(LanguageError):
        run_source(scope, 1, "assert state[0] > 0.0")
    assert "Counter" not in scope
    run_source(scope, 1)
    works = scope["Counter"]
    with pytest.raises(LanguageError):
        run_source(scope, 2, "assert state[0] > 0.0")
    assert scope["Counter"] is works


def test_a_class_within_a_function_may_name_itself() -> None:
    def make(offset: float) -> type[operant.Env]:
        class Inner(operant.Env):
            class State(NamedTuple):
                x: float

            observation_space = LINE
            action_space = Discrete(2)

            @staticmethod
            def reset(random: Any) -> Any:
                return Inner.State(random[0] + offset)

            @staticmethod
            def step(state: Any, action: Any) -> Any:
                return Inner.State(state.x + offset), 1.0, False

            @staticmethod
            def observe(state: Any) -> Any:
                return Inner.State(state.x)

        return Inner

    first, second = make(1.0), make(2.0)
    assert Rules.of(first).reset.signature() != Rules.of(second).reset.signature()
    assert Rules.of(first).reset.signature() == Rules.of(make(1.0)).reset.signature()


def test_a_subclass_may_change_one_part() -> None:
    base = define()

    class Slow(base):
        max_episode_steps = 7

        @staticmethod
        def step(state: Any, action: Any) -> Any:
            after, reward, over = base.step(state, action)
            return after, reward - 0.5, over

    assert Rules.of(Slow).step.signature() != Rules.of(base).step.signature()
    assert Rules.of(Slow).reset.signature() == Rules.of(base).reset.signature()


# Parameters -------------------------------------------------------------------------------------
def test_an_unknown_parameter_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError) as caught:
        Rules.of(define(), {"gravty": 1.0})
    assert str(caught.value) == (
        "Catch has no parameter 'gravty'; did you mean 'gravity'? "
        "(it has: gravity, size, wrap, mode)"
    )
    with pytest.raises(TypeError) as caught:
        Rules.of(define(Params=None), {"zzz": 1.0})
    assert str(caught.value) == "Catch has no parameter 'zzz' (it has: none)"


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("gravity", "9.8", "float"),
        ("gravity", True, "float"),
        ("gravity", None, "float"),
        ("size", 2.0, "int"),
        ("size", True, "int"),
        ("wrap", 1, "bool"),
        ("mode", 3, "str"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused(name: str, value: Any, kind: str) -> None:
    with pytest.raises(TypeError) as caught:
        Rules.of(define(), {name: value})
    assert str(caught.value) == f"parameter {name!r} of Catch must be {kind}, got {value!r}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_a_parameter_must_be_a_finite_float32(value: float) -> None:
    with pytest.raises(ValueError, match="parameter 'gravity' of Catch must be a finite float32"):
        Rules.of(define(), {"gravity": value})


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("gravity", 3, 3.0),
        ("gravity", np.float32(0.5), 0.5),
        ("gravity", np.int64(3), 3.0),
        ("size", np.int32(4), 4),
        ("wrap", np.bool_(True), True),
        ("mode", "verlet", "verlet"),
    ],
)
def test_a_parameter_gets_its_declared_type(name: str, value: Any, kept: Any) -> None:
    params = Rules.of(define(), {name: value}).params
    assert isinstance(params, Settings)
    assert getattr(params, name) == kept
    assert type(getattr(params, name)) is type(kept)


def test_params_must_be_a_named_tuple_with_defaults() -> None:
    message = refusal(TypeError, Params=PositionRecord)
    assert message.startswith("Catch.Params must be a NamedTuple, got the class PositionRecord; ")
    message = refusal(TypeError, Params=NamedTuple("Params", [("gravity", float)]))
    assert message == "Catch.Params needs a default for each field; write gravity: float = ..."


class ListParams(NamedTuple):
    masses: list = [1.0]


class BadDefault(NamedTuple):
    gravity: float = "9.8"


def test_the_kinds_of_params_are_checked_at_the_definition() -> None:
    message = refusal(TypeError, Params=ListParams)
    line = inspect.getsourcelines(ListParams)[1] + 1
    assert message == (
        f"{__file__}:{line}: Catch.Params.masses: use float, int, bool or str, got list"
    )
    message = refusal(TypeError, Params=BadDefault)
    assert message == "parameter 'gravity' of Catch must be float, got '9.8'"


def _with_params(state: Any, action: Any, params: Any) -> Any:
    x = state.x + params.gravity
    if params.wrap:
        x = sin(x)
    if params.mode == "euler":
        x = x * 0.5
    for _ in range(params.size):
        x = x + 1.0
    return Position(x, 0, False), 1.0, abs(x) > 1.0


def test_static_parameters_may_be_used_in_if_and_range() -> None:
    env = define(step=_with_params)

    def ops(**overrides: Any) -> list[str]:
        return [node.op for node in Rules.of(env, overrides).step.nodes]

    assert "sin" not in ops()
    assert "sin" in ops(wrap=True)
    assert "multiply" in ops()
    assert "multiply" not in ops(mode="verlet")
    assert ops(size=5).count("add") == ops(size=2).count("add") + 3


def test_a_float_parameter_is_an_input_not_a_constant() -> None:
    env = define(step=_with_params)
    light, heavy = Rules.of(env, {"gravity": 1.0}), Rules.of(env, {"gravity": 2.0})
    assert light.step.signature() == heavy.step.signature()
    assert light.param_values() != heavy.param_values()

    def branching(state: Any, action: Any, params: Any) -> Any:
        return state, (1.0 if params.gravity > 1.0 else 0.0), False  # <-

    message = refusal(LanguageError, step=branching)
    assert message.startswith(f"{place(branching)}: `a if condition else b` on a float param")


# Instances --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((4,), {}), ((), {"num_envs": 4})])
def test_an_environment_class_has_no_instances(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as caught:
        define()(*args, **kwargs)
    assert str(caught.value) == (
        "Catch holds rules and has no instances; run it with operant.make(Catch, num_envs=...)"
    )


class Plain(operant.Env):
    """Functions without @staticmethod: nobody makes an instance, so nothing is bound."""

    class State(NamedTuple):
        x: float

    observation_space = LINE
    action_space = Discrete(2)

    def reset(random: Any) -> Any:
        return Plain.State(uniform(random[0], 5.0, 6.0))

    def step(state: Any, action: Any) -> Any:
        x = state.x
        x += where(action == 1, 1.0, -1.0)
        return Plain.State(x), x - state.x, x < 0.0

    def observe(state: Any) -> Any:
        return state


@pytest.fixture
def plain() -> Iterator[operant.VecEnv]:
    env = operant.make(Plain, num_envs=3, backend="reference", seed=1)
    yield env
    env.close()


def test_functions_need_no_staticmethod(plain: operant.VecEnv) -> None:
    before, _ = plain.reset()
    assert ((before >= 5.0) & (before <= 6.0)).all()
    after, reward, terminated, _, _ = plain.step(np.array([1, 0, 1]))
    np.testing.assert_array_equal(reward, [1.0, -1.0, 1.0])
    np.testing.assert_allclose(after - before, [[1.0], [-1.0], [1.0]], atol=1e-6)
    assert not terminated.any()


def test_a_classmethod_works_too() -> None:
    env = define(observe=classmethod(lambda cls, state: (state.x + 0.5 * len(cls.__name__),)))
    assert Rules.of(env).observe.nodes[-2].value == 2.5
