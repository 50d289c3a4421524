"""The ints of functions over arrays: 64 bits that wrap around, on every backend.

Compiled code has them by nature. Plain Python does not, so there an author's ints are `Int64`. An
int becomes a float by one rounding, to the nearest float32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

_SIGN, _MASK = 1 << 63, (1 << 64) - 1
_EXACT = 1 << 53  # up to here a float64 holds every int: what rounds it to float32 rounds once
_FLOATS = (float, np.floating)
_new = int.__new__


def to_float32(x: Any) -> np.float32:
    """An int, truth value or float as the nearest float32."""
    if isinstance(x, int) and not -_EXACT <= x <= _EXACT:
        return np.int64(x).astype(np.float32)
    return np.float32(x)


def wrapped(value: int) -> Int64:
    """`value` modulo 2**64, from -2**63 to 2**63 - 1."""
    if -_SIGN <= value < _SIGN:
        return Int64(value)
    return Int64(((value + _SIGN) & _MASK) - _SIGN)


def _binary(of_ints: Callable[[Any, Any], Any], of_floats: Callable[[Any, Any], Any]) -> Any:
    def method(self: Int64, other: Any) -> Any:
        value = of_ints(self, other)
        if value is not NotImplemented:
            return _new(Int64, value) if -_SIGN <= value < _SIGN else wrapped(value)
        if isinstance(other, _FLOATS):
            return of_floats(to_float32(self), np.float32(other))
        return NotImplemented

    return method


def _bitwise(of_ints: Callable[[Any, Any], Any]) -> Any:
    def method(self: Int64, other: Any) -> Any:
        value = of_ints(self, other)
        return value if value is NotImplemented else _new(Int64, value)

    return method


def _comparison(of_ints: Callable[[Any, Any], Any], of_floats: Callable[[Any, Any], Any]) -> Any:
    def method(self: Int64, other: Any) -> Any:
        found = of_ints(self, other)
        if found is NotImplemented and isinstance(other, _FLOATS):
            return bool(of_floats(to_float32(self), np.float32(other)))
        return found

    return method


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


def _quotient(a: Any, b: Any) -> Any:
    return to_float32(a) / to_float32(b)


def _distance(count: int) -> int:
    if not 0 <= count < 64:
        raise ValueError(f"a shift is by 0 to 63 bits, got {int(count)}")
    return int(count)


class Int64(int):
    """An int of 64 bits. Where it meets a float it becomes a float32, as in compiled code."""

    __slots__ = ()
    __array_ufunc__ = None  # np.float32 leaves arithmetic with an Int64 to this class
    __hash__ = int.__hash__

    __add__ = _binary(int.__add__, operator.add)
    __radd__ = _binary(int.__radd__, _swapped(operator.add))
    __sub__ = _binary(int.__sub__, operator.sub)
    __rsub__ = _binary(int.__rsub__, _swapped(operator.sub))
    __mul__ = _binary(int.__mul__, operator.mul)
    __rmul__ = _binary(int.__rmul__, _swapped(operator.mul))
    __floordiv__ = _binary(int.__floordiv__, operator.floordiv)
    __rfloordiv__ = _binary(int.__rfloordiv__, _swapped(operator.floordiv))
    __mod__ = _binary(int.__mod__, operator.mod)
    __rmod__ = _binary(int.__rmod__, _swapped(operator.mod))
    __and__ = _bitwise(int.__and__)
    __rand__ = _bitwise(int.__rand__)
    __or__ = _bitwise(int.__or__)
    __ror__ = _bitwise(int.__ror__)
    __xor__ = _bitwise(int.__xor__)
    __rxor__ = _bitwise(int.__rxor__)
    __truediv__ = _quotient
    __rtruediv__ = _swapped(_quotient)

    __lt__ = _comparison(int.__lt__, operator.lt)
    __le__ = _comparison(int.__le__, operator.le)
    __gt__ = _comparison(int.__gt__, operator.gt)
    __ge__ = _comparison(int.__ge__, operator.ge)
    __eq__ = _comparison(int.__eq__, operator.eq)
    __ne__ = _comparison(int.__ne__, operator.ne)

    def __neg__(self) -> Int64:
        return wrapped(int.__neg__(self))

    def __pos__(self) -> Int64:
        return self

    def __abs__(self) -> Int64:
        return wrapped(int.__abs__(self))

    def __invert__(self) -> Int64:
        return Int64(int.__invert__(self))

    def __lshift__(self, count: int) -> Int64:
        return wrapped(int(self) << _distance(count))

    def __rlshift__(self, value: int) -> Int64:
        return wrapped(int(value) << _distance(self))

    def __rshift__(self, count: int) -> Int64:
        return Int64(int(self) >> _distance(count))

    def __rrshift__(self, value: int) -> Int64:
        return Int64(int(value) >> _distance(self))
