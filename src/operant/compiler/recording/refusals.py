"""What Python asks of a number and a symbol cannot answer: each says what to write instead."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from operant.lang.advice import TEXT, array_advice, call_advice, fail, index_advice, word_for
from operant.lang.recorded import Recorded

_RECORDED: list[str] = []


@contextmanager
def recording(file: str) -> Iterator[None]:
    """While an author's function in `file` runs, its symbols have no text for it, either.

    Debuggers, and our own messages, do see them: they ask from other files.
    """
    _RECORDED.append(file)
    try:
        yield
    finally:
        _RECORDED.remove(file)


def refuse_text() -> None:
    """Raise if the function that is recorded asks for the ``repr`` of a symbol."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name == "__repr__":  # of a NamedTuple
        frame = frame.f_back
    if frame.f_code.co_filename in _RECORDED:
        fail(f"text {TEXT}")


class Refusals(Recorded):
    """The part of `operant.compiler.recording.trace.Symbol` that only refuses."""

    __slots__ = ()

    # Python numbers ---------------------------------------------------------------------------
    def __float__(self) -> float:
        fail(call_advice("float()", "to_float(x)"))

    def __int__(self) -> int:
        fail(call_advice("int()", "to_int(x)"))

    def __index__(self) -> int:
        fail(index_advice())

    def __round__(self, digits: int | None = None) -> float:
        better = "floor(x + 0.5)" if not digits else f"floor(x * 1e{digits} + 0.5) / 1e{digits}"
        fail(f"round() of a value that differs per environment; write {better}")

    def __floor__(self) -> int:
        fail("math.floor() cannot be compiled; write operant.lang.floor(x)")

    def __ceil__(self) -> int:
        fail("math.ceil() cannot be compiled; write operant.lang.ceil(x)")

    def __trunc__(self) -> int:
        fail("math.trunc() cannot be compiled; write to_int(x)")

    def __divmod__(self, other: object) -> NoReturn:
        fail("divmod() cannot be compiled; write x // y and x % y")

    __rdivmod__ = __divmod__

    def __rlshift__(self, other: object) -> NoReturn:
        fail("a shift needs a constant distance; choose with where(k == 0, 1, where(k == 1, 2, 4))")

    __rrshift__ = __rlshift__

    def __matmul__(self, other: object) -> NoReturn:
        fail("`@` cannot be compiled; write the products out: a[0] * b[0] + a[1] * b[1]")

    __rmatmul__ = __matmul__

    # Text ---------------------------------------------------------------------------------------
    def __format__(self, spec: str) -> NoReturn:
        fail(f"an f-string or format() {TEXT}")

    def __str__(self) -> str:
        fail(f"text {TEXT}")

    # Containers and calls -----------------------------------------------------------------------
    def __hash__(self) -> int:
        fail(
            "a value that differs per environment cannot be looked up in a dict or set; "
            "write where(x == 0, a, where(x == 1, b, c))"
        )

    def __iter__(self) -> NoReturn:
        fail("a single number was unpacked or looped over; is this a scalar space or field?")

    def __len__(self) -> int:
        fail("len() of a single number")

    def __getitem__(self, key: object) -> NoReturn:
        fail("a single number was indexed; a Discrete action is a plain int, not a tuple")

    def __setitem__(self, key: object, value: object) -> NoReturn:
        fail("a single number was indexed; fields of the state are numbers, and never change")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse: ``2 (x + 1)`` is meant to be a product."""
        fail("a number was called like a function; is a `*` missing?")

    # NumPy --------------------------------------------------------------------------------------
    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        fail(array_advice())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: object) -> Any:
        if method == "__call__" and not kwargs and ufunc.__name__ in _OPERATORS:
            # np.float64(2) * symbol; np.float64(2) < symbol hands over an array of no dimensions
            values = [v.item() if getattr(v, "ndim", 1) == 0 else v for v in inputs]
            if any(isinstance(value, np.ndarray) for value in values):
                fail("a NumPy array meets a number; write the components out one by one")
            return _OPERATORS[ufunc.__name__](*values)
        fail(f"np.{ufunc.__name__} cannot be compiled; {word_for(ufunc.__name__)}")

    def __array_function__(self, function: Any, *args: object, **kwargs: object) -> NoReturn:
        fail(f"np.{function.__name__} cannot be compiled; {word_for(function.__name__)}")


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "remainder": operator.mod,
    "floor_divide": operator.floordiv,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}
