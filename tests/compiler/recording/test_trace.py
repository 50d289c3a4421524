"""Recording: what a program holds, and what is refused, at which line, with which advice."""

from __future__ import annotations

import cmath
import inspect
import math
import math as m
import operator
import re
from collections.abc import Callable
from math import hypot
from math import tan as tangent
from typing import Any

import numpy as np
import pytest

from operant import lang
from operant.compiler.recording.trace import (
    BOOL,
    FLOAT,
    INT,
    NODE_LIMIT,
    Program,
    Symbol,
    as_symbol,
)
from operant.lang import LanguageError

HERE = "<-"  # marks the line that an error must name


def symbols(*dtypes: str) -> list[Symbol]:
    """One input of each dtype, of one program."""
    program = Program()
    return [program.input(f"i{k}", dtype) for k, dtype in enumerate(dtypes)]


def ops(symbol: Symbol) -> list[str]:
    return [node.op for node in symbol.program.nodes]


# What is recorded -------------------------------------------------------------------------------
def test_a_program_lists_its_nodes_in_order() -> None:
    program = Program()
    x, n = program.input("x", FLOAT), program.input("n", INT)
    y = x * 2.0 + n
    program.outputs.append(y.index)
    assert program.inputs == ["x", "n"]
    assert ops(y) == ["input", "input", "constant", "multiply", "to_float", "add"]
    assert [node.args for node in program.nodes] == [(), (), (), (0, 2), (1,), (3, 4)]
    assert program.outputs == [5]
    assert repr(y) == "<float add #5>"


@pytest.mark.parametrize(
    ("value", "dtype", "kept"),
    [
        (0.1, FLOAT, float(np.float32(0.1))),
        (np.float64(0.1), FLOAT, float(np.float32(0.1))),
        (np.float32(0.1), FLOAT, float(np.float32(0.1))),
        (math.inf, FLOAT, math.inf),
        (7, INT, 7),
        (np.int64(7), INT, 7),
        (2**31 - 1, INT, 2**31 - 1),
        (-(2**31), INT, -(2**31)),
        (True, BOOL, True),
        (np.bool_(False), BOOL, False),
    ],
)
def test_constants_keep_their_type_and_round_to_float32(
    value: Any, dtype: str, kept: float | int | bool
) -> None:
    symbol = as_symbol(Program(), value)
    assert (symbol.dtype, symbol.node.op, symbol.node.value) == (dtype, "constant", kept)
    assert type(symbol.node.value) is type(kept)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_an_integer_beyond_32_bits_is_refused(value: int) -> None:
    with pytest.raises(LanguageError, match=f"the integer {value} does not fit in 32 bits"):
        Program().constant(value)


def test_equal_operations_are_recorded_once() -> None:
    x, y = symbols(FLOAT, FLOAT)
    first = lang.sin(x * y) + 1.0
    size = len(x.program.nodes)
    second = lang.sin(x * y) + 1.0
    assert second.index == first.index
    assert len(x.program.nodes) == size
    assert (y * x).index != (x * y).index  # not known to commute


def test_constants_that_compare_equal_are_kept_apart() -> None:
    program = Program()
    values = [0.0, -0.0, 1, 1.0, True, False, 0]
    assert len({program.constant(value).index for value in values}) == len(values)


def test_signatures_tell_programs_apart() -> None:
    def recorded(*constants: float | int) -> tuple[object, ...]:
        program = Program()
        x = program.input("x", FLOAT)
        for value in constants:
            program.outputs.append((x + value).index)
        return program.signature()

    assert recorded(1.0, 2.0) == recorded(1.0, 2.0)
    assert recorded(1.0, 2.0) != recorded(2.0, 1.0)
    assert recorded(0.0) != recorded(-0.0)
    assert recorded(math.nan) == recorded(math.nan)


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul])
@pytest.mark.parametrize(
    ("dtypes", "dtype"),
    [((INT, INT), INT), ((INT, FLOAT), FLOAT), ((FLOAT, INT), FLOAT), ((FLOAT, FLOAT), FLOAT)],
)
def test_floats_win_over_ints(
    operation: Callable[[Any, Any], Symbol], dtypes: tuple[str, str], dtype: str
) -> None:
    result = operation(*symbols(*dtypes))
    assert result.dtype == dtype
    assert {result.program.nodes[arg].dtype for arg in result.node.args} == {dtype}


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (lambda x, n: n * 0.5, FLOAT),
        (lambda x, n: 0.5 * n, FLOAT),
        (lambda x, n: n * 2, INT),
        (lambda x, n: 2 - n, INT),
        (lambda x, n: x * 2, FLOAT),
        (lambda x, n: n / n, FLOAT),
        (lambda x, n: n / 2, FLOAT),
        (lambda x, n: 1 / n, FLOAT),
        (lambda x, n: n // 2, INT),
        (lambda x, n: 7 // n, INT),
        (lambda x, n: n // 2.0, FLOAT),
        (lambda x, n: 7 % n, INT),
        (lambda x, n: n % 2, INT),
        (lambda x, n: x % n, FLOAT),
        (lambda x, n: n**2, INT),
        (lambda x, n: n**0.5, FLOAT),
        (lambda x, n: -n, INT),
        (lambda x, n: +n, INT),
        (lambda x, n: abs(n), INT),
        (lambda x, n: abs(x), FLOAT),
        (lambda x, n: n << 3, INT),
        (lambda x, n: n >> 31, INT),
        (lambda x, n: n & 1, INT),
        (lambda x, n: 1 | n, INT),
        (lambda x, n: 1 ^ n, INT),
        (lambda x, n: x < n, BOOL),
        (lambda x, n: x <= 1, BOOL),
        (lambda x, n: 1 > x, BOOL),  # noqa: SIM300
        (lambda x, n: n >= 2, BOOL),
        (lambda x, n: n == 2, BOOL),
        (lambda x, n: x != 2, BOOL),
        (lambda x, n: (x < 1) & (n == 2), BOOL),
        (lambda x, n: (x < 1) | True, BOOL),
        (lambda x, n: np.bool_(True) & (x < 1), BOOL),
        (lambda x, n: (x < 1) ^ (n == 2), BOOL),
        (lambda x, n: ~(x < 1), BOOL),
        (lambda x, n: np.float64(2) * x, FLOAT),
        (lambda x, n: np.int64(2) * n, INT),
        (lambda x, n: np.float32(2) - n, FLOAT),
        (lambda x, n: np.float64(2) / n, FLOAT),
        (lambda x, n: np.float64(2) < x, BOOL),
        (lambda x, n: lang.sin(n), FLOAT),
        (lambda x, n: lang.floor(x), FLOAT),
        (lambda x, n: lang.minimum(n, 3), INT),
        (lambda x, n: lang.minimum(n, x), FLOAT),
        (lambda x, n: lang.clip(n, 0, 3), INT),
        (lambda x, n: lang.clip(n, 0.0, 3), FLOAT),
        (lambda x, n: lang.sign(n), FLOAT),
        (lambda x, n: lang.to_int(x), INT),
        (lambda x, n: lang.to_float(n), FLOAT),
        (lambda x, n: lang.to_float(x < 0), FLOAT),
        (lambda x, n: lang.to_int(x < 0), INT),
        (lambda x, n: lang.logical_not(x < 0), BOOL),
        (lambda x, n: lang.where(x < 0, n, 1), INT),
        (lambda x, n: lang.where(x < 0, n, 1.0), FLOAT),
        (lambda x, n: lang.where(x < 0, n > 1, x > 1), BOOL),
        (lambda x, n: lang.where(True, 1, x), FLOAT),
        (lambda x, n: lang.where(False, x, n), FLOAT),
        (lambda x, n: lang.randint(x, 5), INT),
        (lambda x, n: lang.randint(x, n), INT),
        (lambda x, n: lang.uniform(x, 0, 1), FLOAT),
        (lambda x, n: lang.normal(x, x), FLOAT),
    ],
)
def test_the_dtype_of_a_result(expression: Callable[..., Symbol], dtype: str) -> None:
    result = expression(*symbols(FLOAT, INT))
    assert isinstance(result, Symbol)
    assert result.dtype == dtype


def test_powers_are_repeated_products() -> None:
    (x,) = symbols(FLOAT)
    cube = x**3
    assert ops(cube) == ["input", "multiply", "multiply"]
    assert cube.node.args == (1, 0)
    for exponent in (3.0, np.int64(3)):
        assert (x**exponent).index == cube.index
    assert (x**1).index == x.index
    assert (x**0.5).node.op == "sqrt"
    assert (x**16).index == x.program.nodes.index(x.program.nodes[-1])


def test_remainder_and_floor_of_floats_are_spelled_out() -> None:
    """All backends must agree on them, and C's fmod has another sign."""
    x, y = symbols(FLOAT, FLOAT)
    assert ops(x // y) == ["input", "input", "divide", "floor"]
    assert ops(x % y) == ["input", "input", "divide", "floor", "multiply", "subtract"]
    assert (symbols(INT)[0] % 3).node.op == "mod"
    assert (symbols(INT)[0] // 3).node.op == "floor_divide"


def test_greater_is_less_with_the_sides_changed() -> None:
    x, y = symbols(FLOAT, FLOAT)
    assert (x > y).index == (y < x).index
    assert (x >= y).index == (y <= x).index
    assert (x > 1.0).node.args == (x.program.constant(1.0).index, x.index)


def test_augmented_assignment_leaves_the_original() -> None:
    (x,) = symbols(FLOAT)
    y = x
    y += 1.0
    assert y.node.op == "add"
    assert x.node.op == "input"


def test_a_choice_already_made_is_not_recorded() -> None:
    x, y = symbols(FLOAT, FLOAT)
    assert lang.where(True, x, y).index == x.index
    assert lang.where(np.bool_(False), x, y).index == y.index
    assert lang.where(x < y, x, x).index == x.index
    assert "where" not in ops(x)


def test_casts_of_constants_are_made_at_once() -> None:
    (n,) = symbols(INT)
    half = n + 0.5
    assert ops(half) == ["input", "constant", "to_float", "add"]
    assert lang.to_int(as_symbol(n.program, 2.75)).node.value == 2
    assert lang.to_float(as_symbol(n.program, True)).node.value == 1.0


# What is refused --------------------------------------------------------------------------------
Refused = tuple[Callable[..., Any], tuple[str, ...], str]
REFUSED: list[Refused] = []


def refused(advice: str, *dtypes: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function of symbols of these dtypes to the list of what must be refused."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        REFUSED.append((function, dtypes or (FLOAT,), advice))
        return function

    return add


def marked_line(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    (line,) = [first + k for k, text in enumerate(lines) if text.rstrip().endswith(HERE)]
    return line


PER_ENV = "on a value that differs per environment"


@refused(f"`if` {PER_ENV}; write where(condition, a, b)")
def if_statement(x: Any) -> Any:
    y = x + 1.0
    if y > 0.0:  # <-
        y = y - 1.0
    return y


@refused(f"`if` {PER_ENV}; write where(condition, a, b)")
def elif_statement(x: Any) -> Any:
    flag = False
    if flag:
        y = x
    elif x > 0.0:  # <-
        y = -x
    else:
        y = 2.0 * x
    return y


@refused(f"`if` {PER_ENV}; write where(condition, a, b)", BOOL)
def if_a_truth_value(landed: Any) -> Any:
    if landed:  # <-
        return 1.0
    return 0.0


@refused(f"`if` {PER_ENV}; write where(condition, a, b)")
def filter_of_a_comprehension(x: Any) -> Any:
    return [
        value
        for value in (x, 1.0)
        if value > 0.0  # <-
    ]


@refused(f"`while` {PER_ENV}; loop over a constant range() and select with where()")
def while_loop(x: Any) -> Any:
    while x > math.pi:  # <-
        x = x - 2.0 * math.pi
    return x


@refused(f"`a if condition else b` {PER_ENV}; write where(condition, a, b)")
def ternary(x: Any) -> Any:
    y = 2.0 * x
    return y if x > 0.0 else -y  # <-


@refused(f"`a if condition else b` {PER_ENV}; write where(condition, a, b)")
def ternary_within_an_allowed_if(x: Any) -> Any:
    flag = True
    if flag:
        x = 1.0 if x > 0.0 else 2.0  # <-
    return x


@refused(f"`and` {PER_ENV}; write (a) & (b)")
def and_operator(x: Any) -> Any:
    return x > 0.0 and x < 1.0  # <-


@refused(f"`and` {PER_ENV}; write (a) & (b)")
def and_within_if(x: Any) -> Any:
    if x > 0.0 and x < 1.0:  # <-
        return 1.0
    return 0.0


@refused(f"`or` {PER_ENV}; write (a) | (b)")
def or_operator(x: Any) -> Any:
    return (
        x < -1.0  # <-
        or x > 1.0
    )


@refused(f"`not` {PER_ENV}; write logical_not(a)", BOOL)
def not_operator(landed: Any) -> Any:
    return not landed  # <-


@refused(f"{PER_ENV}; write", BOOL)
def if_not(landed: Any) -> Any:
    if not landed:  # <-
        return 1.0
    return 0.0


@refused(f"a chained comparison {PER_ENV}; write (a < b) & (b < c)")
def chained_comparison(x: Any) -> Any:
    return -1.0 < x < 1.0  # <-


@refused(f"`in` {PER_ENV}; write (x == a) | (x == b)", INT)
def in_a_tuple(action: Any) -> Any:
    return action in (1, 3)  # <-


@refused(f"`in` {PER_ENV}; write (x == a) | (x == b)", INT)
def not_in_a_tuple(action: Any) -> Any:
    if action not in (1, 3):  # <-
        return 1.0
    return 0.0


@refused(f"min() {PER_ENV}; write minimum(a, b)")
def builtin_min(x: Any) -> Any:
    return min(x, 1.0)  # <-


@refused(f"max() {PER_ENV}; write maximum(a, b)")
def builtin_max_over_lines(x: Any) -> Any:
    y = x + 1.0
    return 2.0 * max(  # <-
        y,
        0.0,
    )


@refused(f"bool() {PER_ENV}; a comparison already is a truth value")
def builtin_bool(x: Any) -> Any:
    return bool(x > 0.0)  # <-


@refused(f"`assert` {PER_ENV}; remove it")
def assertion(x: Any) -> Any:
    assert x > 0.0  # <-
    return x


OF_ENV = "of a value that differs per environment"


@refused(f"float() {OF_ENV}; write to_float(x)")
def builtin_float(x: Any) -> Any:
    return float(x)  # <-


@refused(f"int() {OF_ENV}; write to_int(x)")
def builtin_int(x: Any) -> Any:
    return int(x) + 1  # <-


@refused(f"round() {OF_ENV}; write floor(x + 0.5)")
def builtin_round(x: Any) -> Any:
    return round(x)  # <-


@refused("math.sin() cannot be compiled; write operant.lang.sin")
def math_sin(x: Any) -> Any:
    y = 2.0 * x
    return y + math.sin(y)  # <-


@refused("math.cos() cannot be compiled; write operant.lang.cos")
def math_cos_over_lines(x: Any) -> Any:
    return (
        1.0 + lang.sin(x) - math.cos(x)  # <-
    )


@refused("math.sqrt() cannot be compiled; write operant.lang.sqrt")
def math_within_a_word(x: Any) -> Any:
    return lang.sin(math.sqrt(x))  # <-


@refused("math.fabs() cannot be compiled; write operant.lang.abs")
def math_fabs(x: Any) -> Any:
    return math.fabs(x)  # <-


@refused("math.erf() cannot be compiled; write it with the words of operant.lang: abs, atan")
def math_without_a_word(x: Any) -> Any:
    return math.erf(x)  # <-


@refused("m.exp() cannot be compiled; write operant.lang.exp")
def math_by_another_name(x: Any) -> Any:
    return m.exp(x)  # <-


@refused("cmath.log() cannot be compiled; write operant.lang.log")
def complex_log(x: Any) -> Any:
    return cmath.log(x)  # <-


@refused("hypot() cannot be compiled; write sqrt(x * x + y * y)")
def imported_function(x: Any) -> Any:
    return hypot(x, 1.0)  # <-


@refused("tangent() cannot be compiled; write it with the words of operant.lang")
def imported_and_renamed(x: Any) -> Any:
    return tangent(x)  # <-


@refused("math.floor() cannot be compiled; write operant.lang.floor")
def math_floor(x: Any) -> Any:
    return math.floor(x)  # <-


@refused("math.ceil() cannot be compiled; write operant.lang.ceil")
def math_ceil(x: Any) -> Any:
    return math.ceil(x)  # <-


@refused("math.trunc() cannot be compiled; write to_int(x)")
def math_trunc(x: Any) -> Any:
    return math.trunc(x)  # <-


@refused("np.sin cannot be compiled; write operant.lang.sin")
def numpy_sin(x: Any) -> Any:
    return np.sin(x)  # <-


@refused("np.arctan2 cannot be compiled; write operant.lang.atan2")
def numpy_arctan2(x: Any) -> Any:
    return np.arctan2(1.0, x)  # <-


@refused("np.absolute cannot be compiled; write operant.lang.abs")
def numpy_abs(x: Any) -> Any:
    return np.abs(x)  # <-


@refused("np.maximum cannot be compiled; write operant.lang.maximum")
def numpy_maximum(x: Any) -> Any:
    return np.maximum(x, 0.0)  # <-


@refused("np.where cannot be compiled; write operant.lang.where")
def numpy_where(x: Any) -> Any:
    return np.where(x > 0.0, x, -x)  # <-


@refused("np.clip cannot be compiled; write operant.lang.clip")
def numpy_clip(x: Any) -> Any:
    return np.clip(x, -1.0, 1.0)  # <-


@refused("np.isnan cannot be compiled; write x != x")
def numpy_without_a_word(x: Any) -> Any:
    return np.isnan(x)  # <-


@refused("np.array() cannot be compiled; write a tuple, (x, y)")
def numpy_array(x: Any) -> Any:
    return np.array([x, 2.0 * x], np.float32)  # <-


@refused("a NumPy array meets a number; write the components out one by one")
def array_times_symbol(x: Any) -> Any:
    return np.ones(2) * x  # <-


@refused("a NumPy array meets a number; write the components out one by one")
def symbol_times_array(x: Any) -> Any:
    return x * np.ones(2)  # <-


@refused("a single number was indexed; a Discrete action is a plain int, not a tuple", INT)
def indexing(action: Any) -> Any:
    return action[0]  # <-


@refused("a single number was unpacked or looped over")
def unpacking(x: Any) -> Any:
    first, second = x  # <-
    return first + second


@refused("a single number was unpacked or looped over")
def looping(x: Any) -> Any:
    total = 0.0
    for value in x:  # <-
        total = total + value
    return total


@refused("len() of a single number")
def length(x: Any) -> Any:
    return len(x)  # <-


@refused("used as an index; write where(action == 0, a, where(action == 1, b, c))", INT)
def index_of_a_list(action: Any) -> Any:
    forces = [-1.0, 0.0, 1.0]
    return forces[action]  # <-


@refused("used as a loop bound; loop over a constant range(n) and select with where(", INT)
def loop_bound(action: Any) -> Any:
    total = 0.0
    for _ in range(action):  # <-
        total = total + 1.0
    return total


ARITHMETIC = "on a truth value; write to_float(condition) or where(condition, a, b)"


@refused(f"`+` {ARITHMETIC}", BOOL)
def sum_with_a_truth_value(landed: Any) -> Any:
    return 1.0 + landed  # <-


@refused(f"`*` {ARITHMETIC}")
def product_with_a_comparison(x: Any) -> Any:
    return x * (x > 0.0)  # <-


@refused(f"`-` {ARITHMETIC}", FLOAT)
def difference_with_true(x: Any) -> Any:
    return x - True  # <-


@refused(f"`*` {ARITHMETIC}", BOOL)
def product_of_truth_values(landed: Any) -> Any:
    return landed**2  # <-


@refused(f"`//` {ARITHMETIC}", BOOL, BOOL)
def floor_of_truth_values(a: Any, b: Any) -> Any:
    return a // b  # <-


@refused(f"`%` {ARITHMETIC}", BOOL)
def remainder_of_a_truth_value(landed: Any) -> Any:
    return landed % 2  # <-


@refused("`divide` of a truth value; convert it: to_float(condition)", BOOL)
def quotient_of_a_truth_value(landed: Any) -> Any:
    return landed / 2.0  # <-


@refused("`-` of a truth value; write logical_not(condition)", BOOL)
def minus_a_truth_value(landed: Any) -> Any:
    return -landed  # <-


@refused("abs() of a truth value", BOOL)
def abs_of_a_truth_value(landed: Any) -> Any:
    return lang.abs(landed)  # <-


@refused("`sin` of a truth value; convert it: to_float(condition)", BOOL)
def sin_of_a_truth_value(landed: Any) -> Any:
    return lang.sin(landed)  # <-


@refused("`less` mixes a truth value with a number", FLOAT, BOOL)
def comparison_of_truth_and_number(x: Any, landed: Any) -> Any:
    return x < landed  # <-


@refused("where() mixes a truth value with a number; convert it: to_float(condition)")
def where_mixes_truth_and_number(x: Any) -> Any:
    return lang.where(  # <-
        x > 0.0,
        x > 1.0,
        0.0,
    )


@refused("where() mixes a truth value with a number")
def where_mixes_although_decided(x: Any) -> Any:
    return lang.where(True, x, False)  # <-


@refused("where() chooses by a truth value, got a float; write x != 0")
def where_by_a_number(x: Any) -> Any:
    return lang.where(x, 1.0, 2.0)  # <-


@refused("`&` needs two truth values or two ints, got bool and float; write comparisons in")
def bitwise_and_of_floats(x: Any) -> Any:
    return (x > 0.0) & x  # <-


@refused("`~` needs a truth value, got an int; write -x - 1 for an int", INT)
def invert_an_integer(n: Any) -> Any:
    return ~n  # <-


EXPONENT = "`**` takes a whole exponent from 1 to 16, or 0.5, got"


@refused(f"{EXPONENT} 2.5; write exp(y * log(x)) for other powers of a positive x")
def broken_exponent(x: Any) -> Any:
    return x**2.5  # <-


@refused(f"{EXPONENT} 0;")
def exponent_zero(x: Any) -> Any:
    return x**0  # <-


@refused(f"{EXPONENT} -1;")
def negative_exponent(x: Any) -> Any:
    return x**-1  # <-


@refused(f"{EXPONENT} 17;")
def large_exponent(x: Any) -> Any:
    return x**17  # <-


@refused("`**` with a variable exponent; write exp(y * log(x)) for a positive x")
def variable_exponent(x: Any) -> Any:
    return x**x  # <-


@refused("`**` with a variable exponent; write exp(y * log(x)) for a positive x")
def constant_to_a_variable_exponent(x: Any) -> Any:
    return 2.0**x  # <-


SHIFT = "a shift needs an integer and a constant distance from 0 to 31"


@refused(SHIFT, INT)
def shift_too_far(n: Any) -> Any:
    return n << 32  # <-


@refused(SHIFT, INT)
def shift_by_a_variable(n: Any) -> Any:
    return n >> n  # <-


@refused(SHIFT)
def shift_of_a_float(x: Any) -> Any:
    return x << 1  # <-


@refused("the integer 2147483648 does not fit in 32 bits", INT)
def large_integer(n: Any) -> Any:
    return n + 2**31  # <-


@refused("expected a number, got None; values are never None")
def comparison_with_none(x: Any) -> Any:
    nothing = None
    return x == nothing  # <-


@refused("expected a number, got 'left'; number the cases 0, 1, 2", INT)
def comparison_with_a_string(action: Any) -> Any:
    return action == "left"  # <-


KEPT: list[Symbol] = symbols(FLOAT)


@refused("a value of another call was kept and used; compute it again in this function")
def value_of_another_call(x: Any) -> Any:
    return x + KEPT[0]  # <-


@refused("a value of another call was kept and used")
def value_of_another_call_in_a_word(x: Any) -> Any:
    return lang.atan2(KEPT[0], x)  # <-


@refused(f"the function unrolls to more than {NODE_LIMIT} operations; shorten the Python loop")
def long_loop(x: Any) -> Any:
    for _ in range(NODE_LIMIT):
        x = x * x  # <-
    return x


@pytest.mark.parametrize(
    ("function", "dtypes", "advice"), REFUSED, ids=[case[0].__name__ for case in REFUSED]
)
def test_refused(function: Callable[..., Any], dtypes: tuple[str, ...], advice: str) -> None:
    with pytest.raises(LanguageError) as caught:
        function(*symbols(*dtypes))
    place, _, message = str(caught.value).partition(": ")
    assert place == f"{function.__code__.co_filename}:{marked_line(function)}"
    assert advice in message


def test_the_line_is_that_of_the_helper() -> None:
    def helper(x: Any) -> Any:
        return min(x, 0.0)  # <-

    def step(x: Any) -> Any:
        return helper(2.0 * x)

    with pytest.raises(LanguageError, match=f"test_trace.py:{marked_line(helper)}: min"):
        step(*symbols(FLOAT))


def test_code_without_source_is_refused_with_its_place() -> None:
    """As in an interactive session, where there is no file to read."""
    scope: dict[str, Any] = {}
    exec(
        compile(
            "def step(x):\n    y = x + 1.0\n    return y if y > 0.0 else x\n", "<typed>", "exec"
        ),
        scope,
    )
    with pytest.raises(LanguageError, match=re.escape("<typed>:3: `if` on a value that differs")):
        scope["step"](*symbols(FLOAT))


def test_the_node_limit_counts_distinct_operations() -> None:
    (x,) = symbols(FLOAT)
    for _ in range(NODE_LIMIT + 1):
        y = x + 1.0
    assert len(y.program.nodes) == 3


def test_a_symbol_is_no_dictionary_key() -> None:
    with pytest.raises(TypeError, match="cannot be looked up in a dict or set"):
        hash(symbols(INT)[0])


def test_a_language_error_is_a_type_error() -> None:
    assert issubclass(LanguageError, TypeError)
