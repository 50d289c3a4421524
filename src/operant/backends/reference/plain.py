"""The author's functions over arrays, run by Python itself, computing what compiled code computes.

The code is the author's own, line by line, so a debugger steps through it. What changes is what its
names and constants stand for: floats are ``np.float32``, ints `Int64`, tables `Cells`, and the
words work on single numbers in float32. NumPy then rounds after every operation, as compiled code
does.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from operant.compiler.emit.program_source import COMPOSED
from operant.compiler.outer import MISSING, outer_value
from operant.lang import floats, words
from operant.lang.batch import batch
from operant.lang.integers import Int64, to_float32, wrapped

_INFECTIOUS = (float, np.floating)


def _same_kind(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as float32 if either is a float."""
    if isinstance(a, _INFECTIOUS) or isinstance(b, _INFECTIOUS):
        return to_float32(a), to_float32(b)
    return a, b


def minimum(*values: Any) -> Any:
    """The smallest; NaN if one is NaN."""
    least = values[0]
    for value in values[1:]:
        a, b = _same_kind(least, value)
        least = a if a < b or a != a else b
    return least


def maximum(*values: Any) -> Any:
    """The largest; NaN if one is NaN."""
    most = values[0]
    for value in values[1:]:
        a, b = _same_kind(most, value)
        most = a if a > b or a != a else b
    return most


def to_int(x: Any) -> Int64:
    """A float rounded towards zero, or a truth value, as an int."""
    if np.isinf(x) or not -(2**63) <= int(x) < 2**63:
        raise ValueError(f"{x} does not fit into 64 bits")
    return Int64(int(x))


def counted(*limits: int) -> Iterator[Int64]:
    """``range()``."""
    return map(Int64, range(*limits))


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` if `condition` holds, else `b`."""
    a, b = _same_kind(a, b)
    return a if condition else b


def _word(name: str) -> Any:
    function = getattr(floats, name)

    def word(*values: Any) -> np.float32:
        with np.errstate(all="ignore"):
            found = function(*[batch([to_float32(value)]) for value in values])
        return np.float32(found[0])

    word.__name__ = word.__qualname__ = name
    return word


def _instruction(name: str) -> Any:
    ufunc = getattr(np, name)

    def instruction(x: Any) -> np.float32:
        with np.errstate(all="ignore"):
            return np.float32(ufunc(to_float32(x)))

    instruction.__name__ = instruction.__qualname__ = name
    return instruction


WORDS: dict[Any, Any] = {
    words.to_float: to_float32,
    builtins.float: to_float32,
    words.to_int: to_int,
    builtins.int: to_int,
    words.minimum: minimum,
    builtins.min: minimum,
    words.maximum: maximum,
    builtins.max: maximum,
    words.abs: builtins.abs,
    builtins.range: counted,
    words.where: where,
    words.logical_not: lambda condition: not condition,
    **{getattr(words, name): _word(name) for name in COMPOSED},
    **{getattr(words, name): _instruction(name) for name in ("floor", "ceil", "sqrt")},
}
"""What stands for a word or a built-in function."""


class _Outside:
    """A module or class whose functions and constants are looked at one by one."""

    def __init__(self, functions: PlainFunctions, thing: Any) -> None:
        self._functions, self._thing = functions, thing

    def __getattr__(self, name: str) -> Any:
        return self._functions.known(getattr(self._thing, name))


class PlainFunctions:
    """Functions bound to float32 constants; each function once, also those that others call."""

    def __init__(self) -> None:
        self._bound: dict[FunctionType, FunctionType] = {}

    def bind(self, function: FunctionType) -> FunctionType:
        """The same code with other constants and other words."""
        if function in self._bound:
            return self._bound[function]
        code = function.__code__
        namespace: dict[str, Any] = {"__builtins__": builtins, "__name__": function.__module__}
        cells = tuple(CellType() for _ in code.co_freevars)
        bound = FunctionType(
            _with_numbers(code), namespace, function.__name__, function.__defaults__, cells
        )
        self._bound[function] = bound
        for name in code.co_names:
            try:
                value = outer_value(function, name)
            except TypeError:  # no variable but an attribute, which is called like a list of words
                continue
            if value is not MISSING:
                namespace[name] = self.known(value)
        for name, cell in zip(code.co_freevars, cells, strict=True):
            value = outer_value(function, name)
            if value is not MISSING:
                cell.cell_contents = self.known(value)
        return bound

    def known(self, value: Any) -> Any:
        """What stands for something outside the functions."""
        if isinstance(value, int | float):
            return known_number(value)
        try:
            if value in WORDS:
                return WORDS[value]
        except TypeError:  # cannot be looked up: a table
            return value
        if isinstance(value, FunctionType):
            return self.bind(value)
        own = isinstance(value, type) and value.__module__ != "builtins"
        return _Outside(self, value) if own or isinstance(value, ModuleType) else value


def _with_numbers(code: CodeType) -> CodeType:
    return code.replace(co_consts=known_number(code.co_consts))


def known_number(value: Any) -> Any:
    """A number as the functions compute with it, also within a tuple: Python makes one constant of
    ``0.1, 0.2``. Anything else is left alone."""
    if isinstance(value, tuple):
        return tuple(map(known_number, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return wrapped(value)  # also an IntEnum's, which times a float32 would be a float64
    with np.errstate(over="ignore"):
        return np.float32(value) if isinstance(value, float) else value
