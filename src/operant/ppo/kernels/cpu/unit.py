"""Units: functions that are compiled once and call each other by address.

Numba compiles a function for itself, and again inside each function that calls it. A unit is a C
function of int64: whoever calls it finds its address in the table. To import a unit's module
compiles nothing; `compiled` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import cfunc, types


class Unit:
    """A function of int64, returning one, that is not compiled yet."""

    def __init__(self, function: Callable[..., int]) -> None:
        self.function = function

    def compile(self) -> Any:
        """The C function, from Numba's cache if it is there."""
        count = len(inspect.signature(self.function).parameters)
        signature = types.int64(*[types.int64] * count)
        return cfunc(signature, cache=True, error_model="numpy")(self.function)
