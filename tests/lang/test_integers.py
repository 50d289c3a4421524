"""Ints of 64 bits in plain Python: what NumPy's int64 computes, and one rounding to float32."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.lang.integers import Int64, to_float32, wrapped

WORDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100) | st.sampled_from([-(2**63)])
OPERATORS = [operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor]


@pytest.mark.parametrize("operation", OPERATORS)
@given(a=WORDS, b=WORDS)
def test_arithmetic_wraps_around_as_int64_does(operation: Any, a: int, b: int) -> None:
    with np.errstate(over="ignore"):
        wanted = int(operation(np.int64(a), np.int64(b)))
    for x, y in ((Int64(a), Int64(b)), (Int64(a), b), (a, Int64(b))):
        found = operation(x, y)
        assert type(found) is Int64
        assert int(found) == wanted


@given(a=WORDS, b=WORDS)
def test_divisions_round_down(a: int, b: int) -> None:
    if b == 0:
        with pytest.raises(ZeroDivisionError):
            Int64(a) // b
        return
    assert int(Int64(a) // b) == int(wrapped(a // b))
    assert int(a % Int64(b)) == a % b
    assert type(Int64(a) % b) is Int64


@given(a=WORDS, n=st.integers(0, 63))
def test_shifts(a: int, n: int) -> None:
    assert int(Int64(a) << n) == int(np.left_shift(np.int64(a), np.int64(n)))
    assert int(Int64(a) >> Int64(n)) == a >> n
    assert int(a << Int64(n)) == int(Int64(a) << n)


@pytest.mark.parametrize("n", [-1, 64, 1000])
def test_a_shift_by_more_than_there_is_raises(n: int) -> None:
    for shift in (operator.lshift, operator.rshift):
        with pytest.raises(ValueError, match=f"0 to 63 bits, got {n}"):
            shift(Int64(1), n)


@given(a=WORDS)
def test_signs(a: int) -> None:
    assert int(-Int64(a)) == int(wrapped(-a))
    assert int(abs(Int64(a))) == int(wrapped(abs(a)))
    assert int(~Int64(a)) == ~a
    assert hash(Int64(a)) == hash(a)


@given(a=WORDS)
def test_an_int_is_rounded_once(a: int) -> None:
    found = to_float32(Int64(a))
    near = [
        found,
        np.nextafter(found, np.float32(np.inf)),
        np.nextafter(found, -np.float32(np.inf)),
    ]
    errors = [abs(Fraction(float(value)) - a) for value in near]
    assert errors[0] == min(errors)
    assert found == np.int64(a).astype(np.float32)


def test_the_int_that_two_roundings_get_wrong() -> None:
    assert to_float32(9007199791611905) == np.float32(9007200328482816.0)
    assert np.float32(9007199791611905) != to_float32(9007199791611905)  # by way of a float64


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_beside_a_float_it_is_a_float32(operation: Any) -> None:
    number, x = Int64(9007199791611905), np.float32(0.3)
    for found, wanted in (
        (operation(number, x), operation(to_float32(number), x)),
        (operation(x, number), operation(x, to_float32(number))),
    ):
        assert type(found) is np.float32
        assert found == wanted


def test_comparisons_with_floats_are_of_float32() -> None:
    near = Int64(16777217)
    assert near == np.float32(16777216.0)
    assert np.float32(16777216.0) == near
    assert not np.float32(16777216.0) < near
    assert Int64(2) < np.float32(2.5)
    assert np.float32(2.5) >= Int64(2)
    assert Int64(3) != np.float32(2.5)
    assert Int64(3) == 3
    assert Int64(3) > 2


def test_int_by_int_is_a_float32() -> None:
    found = Int64(1) / Int64(3)
    assert type(found) is np.float32
    assert found == np.float32(1) / np.float32(3)


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError):
        Int64(1) + "1"  # type: ignore[operator]
    with pytest.raises(TypeError):
        "1" - Int64(1)  # type: ignore[operator]
