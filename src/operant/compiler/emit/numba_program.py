"""A recorded program as Python source for Numba.

Numba types Python literals as float64 and widens int32 arithmetic to int64; both would halve the
SIMD width. So every constant is written ``f32(...)`` or ``i32(...)`` and every integer result is
cast back.
"""

from __future__ import annotations

from collections.abc import Mapping

from operant.compiler.emit.program_source import (
    COMPOSED,
    extremum,
    print_function,
    print_program,
    print_word,
)
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Node, Program

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "and": "&",
    "or": "|",
    "shift_left": "<<",
    "shift_right": ">>",
    "floor_divide": "//",
    "mod": "%",
}
_CALLS = {
    "where": "select",
    "to_float": "f32",
    "to_int": "i32",
    "bits_of": "bits_of",
    "float_of": "float_of",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "sqrt",
}


def program_source(
    program: Program, values: Mapping[str, str], prefix: str = "v_", suffix: str = ""
) -> tuple[list[str], list[str]]:
    """The lines that compute a program, and the expressions of its outputs; see `print_program`."""
    return print_program(expression, program, values, prefix, suffix)


def function_source(program: Program, name: str, suffix: str = "") -> str:
    """``def name(inputs): ... return outputs``; composed words are called as ``word + suffix``."""
    return print_function(expression, program, name, suffix)


def word_source(word: str, suffix: str = "") -> str:
    """A composed word as a function of one result."""
    return print_word(expression, word, suffix)


def expression(program: Program, node: Node, args: list[str], suffix: str) -> str:
    """An operation; see `operant.compiler.emit.program_source.Dialect`."""
    match node.op:
        case "minimum" | "maximum":
            test, a, b = extremum(program, node, args)
            return f"select({test}, {a}, {b})" if test else f"{node.op}({a}, {b})"
        case "to_int" if program.nodes[node.args[0]].dtype == FLOAT:
            return f"whole32({args[0]})"
        case "constant":
            return _constant(node)
        case "negative":
            text = f"(-{args[0]})"
        case "abs":
            text = f"fabs({args[0]})" if node.dtype == FLOAT else f"abs({args[0]})"
        case "not":
            text = f"(not {args[0]})"
        case "xor":
            text = f"({args[0]} {'!=' if node.dtype == BOOL else '^'} {args[1]})"
        case op if op in _INFIX:
            text = f"({args[0]} {_INFIX[op]} {args[1]})"
        case op if op in COMPOSED:
            return f"{op}{suffix}({', '.join(args)})"
        case op:
            return f"{_CALLS[op]}({', '.join(args)})"
    return f"i32{text if text.startswith('(') else f'({text})'}" if node.dtype == INT else text


def _constant(node: Node) -> str:
    if node.dtype == BOOL:
        return str(node.value)
    if node.dtype == INT:
        return f"i32({node.value})"
    value = float(node.value)  # type: ignore[arg-type]
    return f"f32({value!r})"  # inf and nan are names in the generated module
