"""Arrays that stay in float32 and int32, and compute what a compiled environment computes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from operant import lang
from operant.lang import LanguageError
from operant.lang.batch import Batch, batch

F, N, B = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)
FLOATS = batch(np.array([-2.5, -1.0, 0.5, 3.0]))
INTS = batch(np.array([-7, 2, 3, 2**24 + 1]))
FLAGS = batch(np.array([True, False, True, False]))


def test_batch_narrows_and_keeps_the_values() -> None:
    for source, dtype in [
        (np.array([0.1, 2.0]), F),
        (np.array([0.1], np.float16), F),
        (np.array([1, 2]), N),
        (np.array([1, 2], np.uint8), N),
        (np.array([True]), B),
        ([1.5, 2.5], F),
    ]:
        result = batch(source)
        assert isinstance(result, Batch)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.asarray(source).astype(dtype))


def test_a_batch_of_no_dimensions_is_a_number() -> None:
    assert type(batch(2.5)) is np.float32
    assert type(batch(2)) is np.int32
    assert type(batch(True)) is np.bool_


NUMBERS = {
    "floats": (FLOATS, F),
    "ints": (INTS, N),
    "plain float32": (np.array([1.0, 2.0, 3.0, 4.0], np.float32), F),
    "plain float64": (np.array([1.0, 2.0, 3.0, 4.0]), F),
    "plain int64": (np.array([1, 2, 3, 4]), N),
    "float": (2.5, F),
    "int": (3, N),
    "np.float64": (np.float64(2.5), F),
    "np.float32": (np.float32(2.5), F),
    "np.int64": (np.int64(3), N),
    "np.int32": (np.int32(3), N),
    "no dimensions": (np.array(2.5), F),
}
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("operation", [*ARITHMETIC, operator.truediv, *COMPARISONS])
def test_no_operator_leaves_32_bits(
    operation: Callable[[Any, Any], Any], name: str, values: Batch, swap: bool
) -> None:
    other, dtype = NUMBERS[name]
    result = operation(other, values) if swap else operation(values, other)
    expected = F if F in (values.dtype, dtype) or operation is operator.truediv else N
    assert isinstance(result, Batch)
    assert result.dtype == (B if operation in COMPARISONS else expected)


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (lambda: -INTS, N),
        (lambda: abs(INTS), N),
        (lambda: abs(FLOATS), F),
        (lambda: INTS**3, N),
        (lambda: FLOATS**2, F),
        (lambda: abs(INTS) ** 0.5, F),
        (lambda: INTS & 1, N),
        (lambda: INTS << 2, N),
        (lambda: INTS >> 2, N),
        (lambda: 1 | INTS, N),
        (lambda: ~FLAGS, B),
        (lambda: FLAGS & (FLOATS > 0), B),
        (lambda: FLAGS | True, B),
        (lambda: FLAGS ^ FLAGS, B),
        (lambda: lang.sin(INTS), F),
        (lambda: lang.sin(np.array([0.5, 1.0])), F),
        (lambda: lang.atan2(1.0, INTS), F),
        (lambda: lang.sqrt(abs(INTS)), F),
        (lambda: lang.floor(INTS), F),
        (lambda: lang.floor(np.array([0.5])), F),
        (lambda: lang.abs(np.array([-0.5])), F),
        (lambda: lang.minimum(INTS, 2), N),
        (lambda: lang.minimum(INTS, 2.5), F),
        (lambda: lang.minimum(1.0, np.array([0.5, 2.0])), F),
        (lambda: lang.maximum(1, np.array([0, 2])), N),
        (lambda: lang.clip(np.array([0.5, 2.0]), 0, 1), F),
        (lambda: lang.sign(INTS), F),
        (lambda: lang.where(FLAGS, 1, 2), N),
        (lambda: lang.where(FLAGS, 1.5, 2), F),
        (lambda: lang.where(FLAGS, INTS, 0.5), F),
        (lambda: lang.where(FLAGS, True, False), B),
        (lambda: lang.where(True, INTS, np.float64(0.5)), F),
        (lambda: lang.to_float(INTS), F),
        (lambda: lang.to_float(FLAGS), F),
        (lambda: lang.to_int(FLOATS), N),
        (lambda: lang.to_int(FLAGS), N),
        (lambda: lang.logical_not(FLAGS), B),
        (lambda: lang.uniform(abs(FLOATS), 0, 1), F),
        (lambda: lang.randint(abs(FLOATS), 5), N),
    ],
)
def test_no_word_leaves_32_bits(expression: Callable[[], Any], dtype: np.dtype[Any]) -> None:
    result = expression()
    assert isinstance(result, Batch)
    assert result.dtype == dtype


FINITE = arrays(np.float32, 8, elements=st.floats(-1e6, 1e6, width=32)).map(batch)
WHOLE = arrays(np.int32, 8, elements=st.integers(-(2**31), 2**31 - 1)).map(batch)


@settings(deadline=None)
@given(n=WHOLE, x=FINITE)
def test_ints_round_to_float32_before_they_meet_floats(n: Batch, x: Batch) -> None:
    """As a compiled environment does; NumPy would compute in float64 and round the result."""
    rounded = np.asarray(n).astype(np.float32)
    plain = np.asarray(x)
    np.testing.assert_array_equal(n + x, rounded + plain)
    np.testing.assert_array_equal(n * 0.1, rounded * np.float32(0.1))
    np.testing.assert_array_equal(n / 3, rounded / np.float32(3))
    np.testing.assert_array_equal(n < x, rounded < plain)
    np.testing.assert_array_equal(lang.maximum(n, x), np.maximum(rounded, plain))
    np.testing.assert_array_equal(abs(n // 2) ** 0.5, np.sqrt(np.asarray(abs(n // 2), np.float32)))


@settings(deadline=None)
@given(x=FINITE)
def test_a_constant_is_rounded_to_float32_first(x: Batch) -> None:
    plain, tenth = np.asarray(x), np.float32(0.1)
    for constant in (0.1, np.float64(0.1), np.array(0.1)):
        np.testing.assert_array_equal(x + constant, plain + tenth)
        np.testing.assert_array_equal(x < constant, plain < tenth)
        np.testing.assert_array_equal(constant <= x, tenth <= plain)
    equal = batch(np.full(3, 0.1))
    assert (equal == 0.1).all()
    assert (np.float64(0.1) == equal).all()
    assert not (np.float64(0.1) < equal).any()


@settings(deadline=None)
@given(x=FINITE, y=FINITE)
def test_floor_and_remainder_of_floats_have_the_compiled_definition(x: Batch, y: Batch) -> None:
    left, right = np.asarray(x), np.asarray(y)
    with np.errstate(all="ignore"):
        whole = np.floor(left / right)
        np.testing.assert_array_equal(x // y, whole)
        np.testing.assert_array_equal(x % y, left - whole * right)


def test_floor_is_that_of_the_rounded_quotient() -> None:
    """1 / 0.1 is 10 in float32; NumPy's own // gives 9, since 0.1 is a little above a tenth."""
    one, tenth = batch(np.ones(1)), batch(np.full(1, 0.1))
    assert np.floor_divide(np.float32(1.0), np.float32(0.1)) == 9
    assert (one // tenth)[0] == 10
    assert (1.0 // tenth)[0] == 10
    assert (one // 0.1)[0] == 10


def test_floor_and_remainder_of_ints_follow_the_divisor() -> None:
    n = batch(np.array([7, -7, 7, -7]))
    d = batch(np.array([2, 2, -2, -2]))
    assert (n // d).tolist() == [3, -4, -4, 3]
    assert (n % d).tolist() == [1, 1, -1, -1]


@settings(deadline=None)
@given(x=FINITE, exponent=st.integers(1, 16))
def test_powers_are_repeated_products(x: Batch, exponent: int) -> None:
    expected = np.asarray(x)
    with np.errstate(all="ignore"):
        for _ in range(exponent - 1):
            expected = expected * np.asarray(x)
        for same in (exponent, float(exponent), np.int64(exponent)):
            np.testing.assert_array_equal(x**same, expected)


@pytest.mark.parametrize("exponent", [0, -1, 17, 2.5, True, FLOATS])
def test_other_powers_are_refused_as_when_recording(exponent: Any) -> None:
    with pytest.raises(LanguageError, match=r"test_batch.py:\d+: `\*\*` takes a whole exponent"):
        FLOATS**exponent


OPERATORS: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], Batch, Any]] = [
    (operator.iadd, operator.add, FLOATS, 1.0),
    (operator.isub, operator.sub, FLOATS, FLOATS),
    (operator.imul, operator.mul, FLOATS, 2),
    (operator.itruediv, operator.truediv, FLOATS, 3.0),
    (operator.ifloordiv, operator.floordiv, FLOATS, 0.1),
    (operator.imod, operator.mod, FLOATS, 0.1),
    (operator.ipow, operator.pow, FLOATS, 3),
    (operator.iand, operator.and_, FLAGS, True),
    (operator.ior, operator.or_, FLAGS, ~FLAGS),
    (operator.ixor, operator.xor, FLAGS, FLAGS),
    (operator.ilshift, operator.lshift, INTS, 3),
    (operator.irshift, operator.rshift, INTS, 1),
    (operator.iadd, operator.add, INTS, 0.5),
    (operator.itruediv, operator.truediv, INTS, 2),
]


@pytest.mark.parametrize(("in_place", "plain", "values", "other"), OPERATORS)
def test_augmented_assignment_leaves_the_original(
    in_place: Callable[[Any, Any], Any],
    plain: Callable[[Any, Any], Any],
    values: Batch,
    other: Any,
) -> None:
    """A step that says ``x = state.x; x += 1`` must not change the state it was given."""
    original = values.copy()
    result = in_place(original, other)
    expected = plain(values, other)
    assert result is not original
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(original, values)


def test_numpy_may_write_into_a_batch() -> None:
    target = FLOATS.copy()
    np.add(FLOATS, 1.0, out=target)
    np.testing.assert_array_equal(target, np.asarray(FLOATS) + 1.0)
    assert FLOATS.sum() == np.asarray(FLOATS).sum()


def test_nan_wins_in_minimum_and_maximum_and_stays_in_clip() -> None:
    x = batch(np.array([math.nan, 1.0, math.nan, -math.inf]))
    y = batch(np.array([1.0, math.nan, math.nan, 2.0]))
    np.testing.assert_array_equal(lang.minimum(x, y), [math.nan] * 3 + [-math.inf])
    np.testing.assert_array_equal(lang.maximum(x, y), [math.nan] * 3 + [2.0])
    np.testing.assert_array_equal(lang.clip(x, 0.0, 0.5), [math.nan, 0.5, math.nan, 0.0])
    assert np.isnan(lang.clip(x, math.nan, 1.0)).all()


def test_conversion_to_int_rounds_towards_zero_without_a_warning() -> None:
    assert lang.to_int(batch(np.array([-2.9, -0.5, 0.5, 2.9]))).tolist() == [-2, 0, 0, 2]
    lang.to_int(batch(np.array([math.nan, math.inf, 1e30])))  # undefined, yet silent


def test_the_logarithm_of_a_positive_number_gives_no_warning() -> None:
    np.testing.assert_allclose(lang.log(batch(np.array([1.0, math.e]))), [0.0, 1.0], atol=1e-6)
