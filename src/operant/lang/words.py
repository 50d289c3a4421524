"""The functions an environment's author may call.

Each word takes numbers and works on three kinds of them: unknown ones (it is recorded, for the
compiled backends), NumPy arrays (it computes, in float32, for the ``reference`` backend) and plain
Python numbers (it computes, for constants and rendering). The signatures speak of ``float`` because
an author thinks of one environment.

Accuracy, float32, against exact arithmetic (tested in ``tests/lang/test_floats.py``): ``sin`` and
``cos`` 5e-7 absolute for ``|x| <= 1e4``; ``tan`` 1e-6 relative for ``|x| <= 1.5``; ``exp``,
``log``, ``tanh``, ``atan``, ``atan2`` 5e-7 relative; ``sqrt``, ``floor``, ``ceil`` and the rest
exact.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from operant.lang.advice import fail
from operant.lang.batch import batch
from operant.lang.recorded import Recorded, recorder

pi = math.pi


def _has(kind: type, values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, kind) for value in values)


def _batches(value: Any) -> Any:
    """An array as a `Batch`, which keeps to float32; a number as it is."""
    return batch(value) if isinstance(value, np.ndarray) else value


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`; both are computed."""
    unknown = recorder(condition, a, b)
    if unknown is not None:
        return unknown.word("where", condition, a, b)
    if _has(np.ndarray, (condition, a, b)):
        floats = any(
            isinstance(v, float) or (isinstance(v, np.ndarray | np.generic) and v.dtype.kind == "f")
            for v in (a, b)
        )
        result = np.where(np.asarray(condition), np.asarray(a), np.asarray(b))
        return batch(result.astype(np.float32) if floats else result)
    return a if condition else b


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if either is NaN, and of two equal zeros the second."""
    unknown = recorder(a, b)
    if unknown is not None:
        return unknown.word("minimum", a, b)
    if _has(np.ndarray, (a, b)):
        a, b = _batches(a), _batches(b)
        return where((a < b) | (a != a), a, b)
    return a if a < b or a != a else b


def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if either is NaN, and of two equal zeros the second."""
    unknown = recorder(a, b)
    if unknown is not None:
        return unknown.word("maximum", a, b)
    if _has(np.ndarray, (a, b)):
        a, b = _batches(a), _batches(b)
        return where((a > b) | (a != a), a, b)
    return a if a > b or a != a else b


def clip(x: Any, low: Any, high: Any) -> Any:
    """`x` limited to ``[low, high]``; NaN stays NaN."""
    return minimum(high, maximum(low, x))


def abs(x: Any) -> Any:
    """The absolute value."""
    return builtins.abs(_batches(x))


def sign(x: Any) -> Any:
    """-1.0, 0.0 or 1.0."""
    return where(x > 0, 1.0, where(x < 0, -1.0, 0.0))


def logical_not(condition: Any) -> Any:
    """True where `condition` is not."""
    if isinstance(condition, Recorded):
        return condition.word("logical_not", condition)
    return np.logical_not(condition) if isinstance(condition, np.ndarray) else not condition


def to_float(x: Any) -> Any:
    """An int or truth value as a float."""
    if isinstance(x, Recorded):
        return x.word("to_float", x)
    return batch(np.asarray(x, np.float32)) if isinstance(x, np.ndarray) else float(x)


def to_int(x: Any) -> Any:
    """A float rounded towards zero, or a truth value, as an int.

    A float that does not fit into 32 bits, and NaN, is the least int, -2**31.
    """
    if isinstance(x, Recorded):
        return x.word("to_int", x)
    if isinstance(x, np.ndarray):
        values = np.asarray(x)
        if values.dtype.kind == "f":
            values = np.where(np.abs(values) < 2.0**31, values, np.float32(-(2.0**31)))
        return batch(values.astype(np.int32))
    return int(x)


def _elementary(name: str, scalar: Callable[..., Any]) -> Callable[..., Any]:
    """A word computed by one instruction of every backend, and by NumPy."""
    ufunc = getattr(np, name)

    def word(x: Any) -> Any:
        if isinstance(x, Recorded):
            return x.word(name, x)
        if isinstance(x, np.ndarray):
            return ufunc(to_float(x))
        return scalar(x)

    word.__name__ = word.__qualname__ = name
    return word


def _composed(name: str, scalar: Callable[..., Any]) -> Callable[..., Any]:
    """A word whose float32 arithmetic is written in `operant.lang.floats`."""

    form = "(y, x)" if name == "atan2" else "(x)"

    def word(*values: Any) -> Any:
        if len(values) != form.count(",") + 1:
            fail(f"{name}() got {len(values)} numbers; write {name}{form}")
        unknown = recorder(*values)
        if unknown is not None:
            return unknown.word(name, *values)
        if _has(np.ndarray, values):
            from operant.lang import floats

            return getattr(floats, name)(*[to_float(batch(np.asarray(v))) for v in values])
        return scalar(*values)

    word.__name__ = word.__qualname__ = name
    return word


floor = _elementary("floor", lambda x: float(math.floor(x)))
floor.__doc__ = "The largest whole number not above `x`, as a float."
ceil = _elementary("ceil", lambda x: float(math.ceil(x)))
ceil.__doc__ = "The smallest whole number not below `x`, as a float."
sqrt = _elementary("sqrt", math.sqrt)
sqrt.__doc__ = "The square root; NaN for a negative number."
sin = _composed("sin", math.sin)
sin.__doc__ = "The sine of `x` radians."
cos = _composed("cos", math.cos)
cos.__doc__ = "The cosine of `x` radians."
tan = _composed("tan", math.tan)
tan.__doc__ = "The tangent of `x` radians."
atan = _composed("atan", math.atan)
atan.__doc__ = "The angle in [-pi/2, pi/2] whose tangent is `x`."
atan2 = _composed("atan2", math.atan2)
atan2.__doc__ = "``atan2(y, x)``: the angle in [-pi, pi] of the point (x, y)."
exp = _composed("exp", math.exp)
exp.__doc__ = "e to the power `x`; infinity above 88.7, zero below -87.3."
log = _composed("log", math.log)
log.__doc__ = "The natural logarithm; -inf at zero, NaN below."
tanh = _composed("tanh", math.tanh)
tanh.__doc__ = "The hyperbolic tangent."


def bits_of(x: Any) -> Any:
    """The bits of a float as an int. For `operant.lang.floats`."""
    if isinstance(x, Recorded):
        return x.word("bits_of", x)
    return batch(np.asarray(x, np.float32).view(np.int32))


def float_of(bits: Any) -> Any:
    """The float with these bits. For `operant.lang.floats`."""
    if isinstance(bits, Recorded):
        return bits.word("float_of", bits)
    return batch(np.asarray(bits, np.int32).view(np.float32))


# Drawing from a distribution: `u` is one of the uniform numbers handed to reset() or step().


def uniform(u: Any, low: Any, high: Any) -> Any:
    """A float in ``[low, high)`` from one uniform number; rounding may give `high` itself."""
    return low + (high - low) * u


def randint(u: Any, n: Any) -> Any:
    """An int in ``0 .. n-1`` from one uniform number; `n` up to 2**24."""
    return minimum(to_int(u * n), n - 1)


def normal(u1: Any, u2: Any) -> Any:
    """A standard normal number from two uniform numbers (Box-Muller); at most 5.77 in size."""
    return sqrt(-2.0 * log(1.0 - u1)) * cos(2.0 * pi * u2)
