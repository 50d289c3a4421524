"""Formulas as LLVM instructions compute what the same functions compute on NumPy arrays.

One operation alone is rounded once on either path, so it must agree to the bit. The words made of
many may use fused multiply-adds when compiled: there both are as good as `operant.lang.words` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from llvmlite import ir
from numpy.typing import ArrayLike, NDArray

from operant import lang
from operant.compiler.emit.llvm_program import formula, instructions, recorded
from operant.lang.batch import batch
from operant.lang.words import bits_of, float_of

pytestmark = pytest.mark.usefixtures("compilers_seen")

Floats = NDArray[np.float32]
Function = Callable[[Any, Any], Any]
INF, NAN = math.inf, math.nan


def whole(x: Any) -> Any:
    """An int of some 20 bits, whatever `x` is."""
    return lang.to_int(lang.clip(lang.where(x == x, x, 0.0), -1e6, 1e6))


def flag(condition: Any) -> Any:
    return lang.to_float(condition)


def number(n: Any) -> Any:
    """An int's low bits as a float that holds them all."""
    return lang.to_float(n & 0x00FFFFFF)


EXACT: dict[str, Function] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "x + constant": lambda x, y: x + 0.1,
    "constant - x": lambda x, y: 2.5 - x,
    "-x": lambda x, y: -x,
    "abs": lambda x, y: lang.abs(x),
    "floor": lambda x, y: lang.floor(x),
    "ceil": lambda x, y: lang.ceil(x),
    "sqrt": lambda x, y: lang.sqrt(x),
    "sign": lambda x, y: lang.sign(x),
    "minimum": lambda x, y: lang.minimum(x, y),
    "maximum": lambda x, y: lang.maximum(x, y),
    "minimum, constant last": lambda x, y: lang.minimum(x, 0.5),
    "minimum, constant first": lambda x, y: lang.minimum(0.5, x),
    "maximum, constant last": lambda x, y: lang.maximum(x, -0.5),
    "maximum, constant first": lambda x, y: lang.maximum(-0.5, x),
    "clip": lambda x, y: lang.clip(x, -1.5, 2.0),
    "clip by variables": lambda x, y: lang.clip(x, -1.5, y),
    "where": lambda x, y: lang.where(x < y, x, y),
    "where, constants": lambda x, y: lang.where(x >= 1.0, 2.0, y),
    "where of truth values": lambda x, y: flag(lang.where(x < 0.0, x < y, y < 1.0)),
    "where of ints": lambda x, y: number(lang.where(x < y, whole(x), whole(y))),
    "x < y": lambda x, y: flag(x < y),
    "x <= y": lambda x, y: flag(x <= y),
    "x > y": lambda x, y: flag(x > y),
    "x >= y": lambda x, y: flag(x >= y),
    "x == y": lambda x, y: flag(x == y),
    "x != y": lambda x, y: flag(x != y),
    "x == x": lambda x, y: flag(x == x),
    "x != x": lambda x, y: flag(x != x),
    "and": lambda x, y: flag((x < 1.0) & (y < 1.0)),
    "or": lambda x, y: flag((x < 1.0) | (y < 1.0)),
    "xor": lambda x, y: flag((x < 1.0) ^ (y < 1.0)),
    "not": lambda x, y: flag(~(x < y)),
    "logical_not": lambda x, y: flag(lang.logical_not(x <= y)),
    "equal truth values": lambda x, y: flag((x < 1.0) == (y < 1.0)),
    "different truth values": lambda x, y: flag((x < 1.0) != (y < 1.0)),
    "to_int, to_float": lambda x, y: lang.to_float(whole(x)),
    "to_int of a truth value": lambda x, y: lang.to_float(lang.to_int(x < y) + 1),
    "ints: +": lambda x, y: number(whole(x) + whole(y)),
    "ints: -": lambda x, y: number(whole(x) - whole(y)),
    "ints: *, which wraps": lambda x, y: number(whole(x) * whole(y)),
    "ints: negative": lambda x, y: lang.to_float(-whole(x)),
    "ints: and": lambda x, y: number(whole(x) & whole(y)),
    "ints: or": lambda x, y: number(whole(x) | whole(y)),
    "ints: xor": lambda x, y: number(whole(x) ^ whole(y)),
    "ints: <<": lambda x, y: number(whole(x) << 3),
    "ints: >> keeps the sign": lambda x, y: lang.to_float(whole(x) >> 2),
    "ints: minimum": lambda x, y: lang.to_float(lang.minimum(whole(x), whole(y))),
    "ints: maximum": lambda x, y: lang.to_float(lang.maximum(whole(x), 7)),
    "ints: <": lambda x, y: flag(whole(x) < whole(y)),
    "ints: <=": lambda x, y: flag(whole(x) <= 3),
    "ints: ==": lambda x, y: flag(whole(x) == whole(y)),
    "ints: !=": lambda x, y: flag(whole(x) != 1),
    "bits": lambda x, y: float_of(bits_of(x) & 0x7FFFFFFF),
    "low bits": lambda x, y: number(bits_of(x)),
    "high bits": lambda x, y: lang.to_float(bits_of(x) >> 16),
}
# word -> function, relative and absolute error that both paths together may have
COMPOSED: dict[str, tuple[Function, float, float]] = {
    "sin": (lambda x, y: lang.sin(x), 0.0, 1e-6),
    "cos": (lambda x, y: lang.cos(x), 0.0, 1e-6),
    "tan": (lambda x, y: lang.tan(lang.clip(x, -1.5, 1.5)), 2e-6, 0.0),
    "exp": (lambda x, y: lang.exp(x), 1e-6, 0.0),
    "log": (lambda x, y: lang.log(x), 1e-6, 0.0),
    "tanh": (lambda x, y: lang.tanh(x), 1e-6, 0.0),
    "atan": (lambda x, y: lang.atan(x), 1e-6, 0.0),
    "atan2": (lambda x, y: lang.atan2(x, y), 1e-6, 0.0),
    "normal": (lambda x, y: lang.normal(0.001 + 0.0 * y, 0.25 * lang.cos(x)), 0.0, 1e-5),
    "exp of log": (lambda x, y: lang.exp(lang.log(lang.abs(y) + 0.5) * 0.5), 3e-6, 0.0),
}


def compiled(functions: list[Function]) -> Callable[[ArrayLike, ArrayLike], Floats]:
    """All functions as one formula, in a loop over arrays; results ``[functions, size]``."""

    def all_of_them(x: Any, y: Any) -> Any:
        return tuple(function(x, y) for function in functions)

    word = formula(all_of_them)

    @numba.njit(error_model="numpy")
    def loop(x, y, out):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            found = word(x[i], y[i])
            for k in range(len(found)):
                out[k, i] = found[k]

    def run(x: ArrayLike, y: ArrayLike) -> Floats:
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        out = np.empty((len(functions), x.size), np.float32)
        loop(x, y, out)
        return out

    return run


def with_numpy(function: Function, x: ArrayLike, y: ArrayLike) -> Floats:
    with np.errstate(all="ignore"):
        result = function(batch(np.asarray(x, np.float32)), batch(np.asarray(y, np.float32)))
    return np.asarray(result)


SPECIAL = [0.0, 1.0, 0.5, 1.5, 2.0, 7.0, 88.0, 90.0, 1e-40, 1.2e-38, 3e38, 1e4, INF]
VALUES = np.array([sign * v for v in SPECIAL for sign in (1, -1)] + [NAN], np.float32)
X, Y = (grid.ravel() for grid in np.meshgrid(VALUES, VALUES))
RANDOM = np.random.default_rng(0).uniform(-20, 20, (2, 20_000)).astype(np.float32)
X, Y = np.concatenate([X, RANDOM[0]]), np.concatenate([Y, RANDOM[1]])


@pytest.fixture(scope="module")
def exact() -> dict[str, Floats]:
    return dict(zip(EXACT, compiled(list(EXACT.values()))(X, Y), strict=True))


@pytest.mark.parametrize("name", EXACT)
def test_one_operation_agrees_to_the_bit(exact: dict[str, Floats], name: str) -> None:
    # A NaN equals any NaN here, and 0.0 equals -0.0.
    np.testing.assert_array_equal(exact[name], with_numpy(EXACT[name], X, Y))


@pytest.fixture(scope="module")
def composed() -> Callable[[ArrayLike, ArrayLike], dict[str, Floats]]:
    run = compiled([function for function, _, _ in COMPOSED.values()])
    return lambda x, y: dict(zip(COMPOSED, run(x, y), strict=True))


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_words_agree(
    composed: Callable[[ArrayLike, ArrayLike], dict[str, Floats]], name: str
) -> None:
    function, relative, absolute = COMPOSED[name]
    found, wanted = composed(X, Y)[name], with_numpy(function, X, Y)
    if name in ("sin", "cos", "normal"):  # beyond, they promise only to stay within 1
        near = ~(np.abs(X) > 1e4) | ~np.isfinite(X)
        found, wanted = found[near], wanted[near]
    np.testing.assert_allclose(found, wanted, relative, absolute)
    if name == "sin":
        assert np.nanmax(np.abs(composed(X, Y)["sin"])) <= 1.0


@settings(deadline=None, max_examples=60)
@given(values=arrays(np.float32, (2, 8), elements=st.floats(-80, 80, width=32)))
def test_composed_words_agree_on_any_numbers(
    composed: Callable[[ArrayLike, ArrayLike], dict[str, Floats]], values: Floats
) -> None:
    found = composed(*values)
    for name, (function, relative, absolute) in COMPOSED.items():
        wanted = with_numpy(function, *values)
        np.testing.assert_allclose(found[name], wanted, relative, absolute + 1e-37, err_msg=name)


# What it is as a function -------------------------------------------------------------------------
def test_one_result_is_a_tuple_of_one_and_other_numbers_are_converted() -> None:
    def total(x: Any, y: Any) -> Any:
        return x + y

    word = formula(total)

    @numba.njit
    def run(x, y):  # type: ignore[no-untyped-def]
        return word(word(x, y)[0], y)

    (result,) = run(1, 0.25)
    assert result == 1.5
    assert total(1, 2) == 3  # the function itself stays what it was


def test_a_function_that_ignores_an_argument() -> None:
    run = compiled([lambda x, y: 2.0 * y])
    assert run([NAN], [3.0]) == 6.0


def test_recorded() -> None:
    program = recorded(lambda x, y: (x + y, x - y))
    assert program.inputs == ["x", "y"]
    assert [program.nodes[k].op for k in program.outputs] == ["add", "subtract"]
    assert len(recorded(lambda x: x).outputs) == 1


UNSUPPORTED: dict[str, Function] = {
    "floor_divide of int": lambda x, y: lang.to_float(whole(x) // 3),
    "mod of int": lambda x, y: lang.to_float(whole(x) % 3),
    "abs of int": lambda x, y: lang.to_float(lang.abs(whole(x))),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_has_no_form_is_refused_by_name(name: str) -> None:
    program = recorded(UNSUPPORTED[name])
    kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 2)
    function = ir.Function(ir.Module(), kind, "f")
    builder = ir.IRBuilder(function.append_basic_block())
    with pytest.raises(NotImplementedError, match=name):
        instructions(builder, program, function.args)
    with pytest.raises(NotImplementedError, match=name):
        compiled([UNSUPPORTED[name]])([1.0], [2.0])


# Rare ones ----------------------------------------------------------------------------------------
RARE: dict[str, Function] = {
    "truth values: <": lambda x, y: flag((x < 1.0) < (y < 1.0)),
    "truth values: <=": lambda x, y: flag((x < 1.0) <= (y < 1.0)),
    "minimum, constant NaN": lambda x, y: lang.minimum(x, NAN),
    "maximum, constant NaN": lambda x, y: lang.maximum(NAN, x),
}


@pytest.mark.parametrize("name", RARE)
def test_rare_ones_agree(name: str) -> None:
    found = compiled([RARE[name]])(X, Y)[0]
    np.testing.assert_array_equal(found, with_numpy(RARE[name], X, Y))
