"""What a function's names stand for outside it: constants, tables, words, other functions."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from operant.lang.arrays import as_cells

MISSING = object()


def outer_value(function: FunctionType, name: str) -> Any:
    """What `name`, which is no variable of the function, stands for; `MISSING` if nothing.

    Tuples and lists of numbers become tables, as NumPy arrays do, see `as_cells`.

    Raises:
        TypeError: a table that does not hold numbers.
    """
    free = function.__code__.co_freevars
    if name in free:
        cell = (function.__closure__ or ())[free.index(name)]
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell: the class whose body is still running
            return MISSING
        return _as_known(value)
    if name in function.__globals__:
        return _as_known(function.__globals__[name])
    return getattr(builtins, name, MISSING)


def _as_known(value: Any) -> Any:
    if isinstance(value, tuple | list) and value and not hasattr(value, "_fields"):
        try:
            array = np.asarray(value)
        except ValueError:
            raise TypeError(f"a {type(value).__name__} whose rows have several lengths") from None
        if array.dtype.kind not in "fiub":
            raise TypeError(f"a {type(value).__name__} of other things than numbers")
        return as_cells(array)
    if isinstance(value, np.ndarray):
        return as_cells(value)
    if isinstance(value, np.generic) and value.dtype.kind in "fiub":
        return value.item()
    return value


def plain_function(value: Any) -> FunctionType | None:
    """The Python function behind `value`, if it is one whose source is the author's."""
    unwrapped = inspect.unwrap(value) if isinstance(value, Callable) else value  # type: ignore[arg-type]
    return unwrapped if isinstance(unwrapped, FunctionType) else None
