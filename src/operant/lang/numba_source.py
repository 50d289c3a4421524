"""A recorded program as Python source for Numba.

Numba types Python literals as float64 and widens int32 arithmetic to int64; both would halve the
SIMD width. So every constant is written ``f32(...)`` or ``i32(...)`` and every integer result is
cast back.
"""

from __future__ import annotations

from collections.abc import Mapping

from operant.lang.source import COMPOSED, never_nan, print_function, print_program, print_word
from operant.lang.trace import BOOL, FLOAT, INT, Node, Program

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
    return print_program(_expression, program, values, prefix, suffix)


def function_source(program: Program, name: str, suffix: str = "") -> str:
    """``def name(inputs): ... return outputs``; composed words are called as ``word + suffix``."""
    return print_function(_expression, program, name, suffix)


def word_source(word: str, suffix: str = "") -> str:
    """A composed word as a function of one result."""
    return print_word(_expression, word, suffix)


def sure_expression(program: Program, node: Node, args: list[str], suffix: str) -> str:
    """As for other programs, but floats beyond 32 bits become ints as on the ``reference`` backend,
    which ``i32`` leaves to the compiler: ``whole32`` of the printed module."""
    if node.op == "to_int" and program.nodes[node.args[0]].dtype == FLOAT:
        return f"whole32({args[0]})"
    return _expression(program, node, args, suffix)


def _extremum(program: Program, node: Node, args: list[str]) -> str:
    """minimum or maximum in one instruction where one side is no NaN, which decides the order."""
    sign = "<" if node.op == "minimum" else ">"
    for sure, other in ((0, 1), (1, 0)):
        if never_nan(program.nodes[node.args[sure]]):
            return f"select({args[sure]} {sign} {args[other]}, {args[sure]}, {args[other]})"
    return f"{node.op}({args[0]}, {args[1]})"


def _expression(program: Program, node: Node, args: list[str], suffix: str) -> str:
    match node.op:
        case "minimum" | "maximum":
            return _extremum(program, node, args)
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
