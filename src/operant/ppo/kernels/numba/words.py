"""The closed forms of `operant.ppo.closed_form`, and the words they use, as Numba functions."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import inf, nan
from typing import Any

import numba
from numba import njit

from operant.lang import intrinsics
from operant.lang.numba_source import composed_words, function_source, word_source
from operant.lang.trace import FLOAT, Program
from operant.ppo import closed_form

FAST = {
    "error_model": "numpy",
    "forceinline": True,
    "nogil": True,
    "fastmath": {"contract", "arcp", "nsz"},
}


def recorded(function: Callable[..., Any]) -> Program:
    """What a formula computes, from floats."""
    program = Program()
    inputs = [program.input(name, FLOAT) for name in inspect.signature(function).parameters]
    program.outputs += [output.index for output in function(*inputs)]
    return program


def _compiled() -> dict[str, Any]:
    scope: dict[str, Any] = {**vars(intrinsics), "inf": inf, "nan": nan, "bool_": numba.boolean}
    scope |= {"f32": numba.float32, "i32": numba.int32}
    programs = {function.__name__: recorded(function) for function in closed_form.FORMULAS}
    for word in composed_words(list(programs.values())):
        exec(word_source(word), scope)
        scope[word] = njit(**FAST)(scope[word])
    for name, program in programs.items():
        exec(function_source(program, name), scope)
        scope[name] = njit(**FAST)(scope[name])
    return scope


_functions = _compiled()
exp, log = _functions["exp"], _functions["log"]
surrogate, value_error = _functions["surrogate"], _functions["value_error"]
choice, choice_slope = _functions["choice"], _functions["choice_slope"]
gaussian, gaussian_sample = _functions["gaussian"], _functions["gaussian_sample"]
log_total = _functions["log_total"]
