"""Functions that are compiled once and call each other by address.

Numba compiles a function for itself, and again inside each function that calls it. A compiled
function is a C function of int64: whoever calls it finds its address among the kernels' arguments.
To import its module compiles nothing; `compilation` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import cfunc, types


class CompiledFunction:
    """A function of int64, returning one, that is not compiled before it is asked for."""

    def __init__(self, function: Callable[..., int]) -> None:
        self.function = function

    def compile(self) -> Any:
        """The C function, from Numba's cache if it is there."""
        count = len(inspect.signature(self.function).parameters)
        signature = types.int64(*[types.int64] * count)
        return cfunc(signature, cache=True, error_model="numpy")(self.function)


def compiled(function: Callable[..., int]) -> CompiledFunction:
    """A decorator: `function` as a `CompiledFunction`."""
    return CompiledFunction(function)
