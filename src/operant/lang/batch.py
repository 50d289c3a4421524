"""NumPy arrays that compute as the compiled backends do: float32 and int32, never float64.

NumPy turns ``int32 * float32`` and ``int32 / int32`` into float64; a compiled environment does not.
`Batch` keeps the two alike, so that the ``reference`` backend differs from the others by no more
than fused multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.lang.advice import fail
from operant.lang.recorded import Recorded


class Batch(np.ndarray):
    """One value per environment, shape ``[num_envs]``, dtype float32, int32 or bool."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or "out" in kwargs:
            if "out" in kwargs:
                kwargs["out"] = tuple(np.asarray(part) for part in kwargs["out"])
            return getattr(ufunc, method)(*[np.asarray(value) for value in inputs], **kwargs)
        values = [_plain(value) for value in inputs]
        floats = ufunc is np.true_divide or any(_is_float(value) for value in values)
        if floats:
            values = [_to_float(value) for value in values]
        if floats and ufunc in (np.remainder, np.floor_divide):  # as compiled, not as NumPy does
            left, right = values
            result = np.floor(left / right)
            if ufunc is np.remainder:
                result = left - result * right
        else:
            result = ufunc(*values, **kwargs)
        if isinstance(result, tuple):
            return tuple(batch(part) for part in result)
        return batch(result)

    def __pow__(self, exponent: Any, mod: None = None) -> Any:
        factors = factors_of_power(exponent)
        if factors == 0:
            return np.sqrt(batch(_to_float(np.asarray(self))))
        result: Any = self
        for _ in range(factors - 1):  # repeated products, as the compiled backends do
            result = result * self
        return result


# ``x += 1`` makes a new array, as it makes a new symbol: where `x` came from stays as it was.
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
for _name in (*_OPERATORS, "and", "or", "xor", "lshift", "rshift"):
    setattr(Batch, f"__i{_name}__", getattr(Batch, f"__{_name}__"))


def batch(values: Any) -> Any:
    """`values` as a `Batch` in float32, int32 or bool; a 0-d result as a NumPy scalar."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype != np.float32:
        array = array.astype(np.float32)
    elif array.dtype.kind in "iu" and array.dtype != np.int32:
        array = array.astype(np.int32)
    return array.view(Batch) if array.ndim else array[()]


def _plain(value: Any) -> Any:
    if isinstance(value, np.float64):
        return float(value)  # a constant such as np.deg2rad(12): weak, like a Python float
    if not isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)  # np.float64(2) < batch hands over an array of no dimensions
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _is_float(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind == "f"
    return isinstance(value, float)


def _to_float(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu":
        return value.astype(np.float32)
    return value


def factors_of_power(exponent: object) -> int:
    """How many factors ``x ** exponent`` has; 0 stands for the square root."""
    if isinstance(exponent, Recorded):
        fail("`**` with a variable exponent; write exp(y * log(x)) for a positive x")
    if isinstance(exponent, np.generic):
        exponent = exponent.item()
    if isinstance(exponent, float) and exponent == 0.5:
        return 0
    if isinstance(exponent, float) and exponent.is_integer():
        exponent = int(exponent)
    if not isinstance(exponent, int) or isinstance(exponent, bool) or not 1 <= exponent <= 16:
        fail(
            f"`**` takes a whole exponent from 1 to 16, or 0.5, got {exponent!r}; "
            "write exp(y * log(x)) for other powers of a positive x"
        )
    return exponent
