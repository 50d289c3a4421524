"""The words an environment may use, and how its functions reach a compiler.

An environment's functions are ordinary Python over numbers. Called with NumPy arrays they compute
(the ``reference`` backend); called with symbols they record what they compute, and the recorded
program is printed as source for a compiler (the other backends).

- `words`: the functions an author imports (``where``, ``sin``, ``clip``, ...).
- `trace`: symbols and the recorded program; `advice`: the errors for what it cannot hold.
- `floats`: ``sin``, ``exp``, ``log``, ... in float32, written in the language itself.
- `batch`: NumPy arrays that stay in float32.
- `numba_source`: a recorded program as source for Numba; `intrinsics`: instructions it needs.
"""

from operant.lang.advice import LanguageError
from operant.lang.arrays import Arrays, boolean, float32, int32, uint8
from operant.lang.words import (
    abs,
    atan,
    atan2,
    ceil,
    clip,
    cos,
    exp,
    floor,
    log,
    logical_not,
    maximum,
    minimum,
    normal,
    pi,
    randint,
    sign,
    sin,
    sqrt,
    tan,
    tanh,
    to_float,
    to_int,
    uniform,
    where,
)

__all__ = [
    "Arrays",
    "LanguageError",
    "abs",
    "atan",
    "atan2",
    "boolean",
    "ceil",
    "clip",
    "cos",
    "exp",
    "float32",
    "floor",
    "int32",
    "log",
    "logical_not",
    "maximum",
    "minimum",
    "normal",
    "pi",
    "randint",
    "sign",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "to_float",
    "to_int",
    "uint8",
    "uniform",
    "where",
]
