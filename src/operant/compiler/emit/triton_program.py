"""A recorded program as Python source for Triton: one value is a block of environments.

A literal takes the type of what it meets, so constants are written plainly; where a constant meets
nothing (``sin(1.0)``, a reward that is always 1) it is made a value first. Divisions and roots are
the correctly rounded ones: Triton's own ``/`` is an approximation in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from operant.compiler.emit.program_source import COMPOSED, extremum, print_program, print_word
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Node, Program

_EXACT = "exact_float("
TYPES = {FLOAT: "tl.float32", INT: "tl.int32", BOOL: "tl.int1"}
_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}
_CALLS = {
    "divide": "tl.div_rn",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "tl.sqrt_rn",
    "abs": "tl.abs",
    "where": "tl.where",
    "floor_divide": "floor_divide",
    "mod": "mod",
}
_METHODS = {
    "to_float": ".to(tl.float32)",
    "to_int": ".to(tl.int32)",
    "bits_of": ".to(tl.int32, bitcast=True)",
    "float_of": ".to(tl.float32, bitcast=True)",
}


def program_source(
    program: Program, values: Mapping[str, str], prefix: str = "v_"
) -> tuple[list[str], list[str]]:
    """The lines that compute a program, and the expressions of its outputs, each a block
    ``[BLOCK]``; see `print_program`."""
    lines, outputs = print_program(_expression, program, values, prefix)
    return lines, [
        f"tl.full([BLOCK], {text}, {TYPES[program.nodes[index].dtype]})"
        if program.nodes[index].op == "constant" and not text.startswith(_EXACT)
        else f"tl.broadcast_to({text}, [BLOCK])"
        for index, text in zip(program.outputs, outputs, strict=True)
    ]


def word_source(word: str) -> str:
    """A composed word as a function of one result."""
    return print_word(_expression, word)


def _expression(program: Program, node: Node, args: list[str], suffix: str) -> str:
    given = [program.nodes[arg] for arg in node.args]
    if given and all(arg.op == "constant" for arg in given):
        args = [_made(args[0], given[0].dtype), *args[1:]]
    match node.op:
        case "constant":
            return _constant(node)
        case "minimum" | "maximum":
            test, a, b = extremum(program, node, args)
            return f"tl.where({test}, {a}, {b})" if test else f"{node.op}({a}, {b})"
        case "to_int" if given[0].dtype == FLOAT:
            return f"whole32({args[0]})"
        case "negative":
            # Triton's own minus is 0 - x, which loses the sign of zero.
            return f"({args[0]} * -1.0)" if node.dtype == FLOAT else f"(-{args[0]})"
        case "not":
            return f"(~{args[0]})"
        case op if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        case op if op in _METHODS:
            return f"{args[0]}{_METHODS[op]}"
        case op if op in COMPOSED:
            return f"{op}{suffix}({', '.join(args)})"
        case "where" if all(arg.op == "constant" for arg in given[1:]):
            args = [args[0], _made(args[1], node.dtype), args[2]]
            return f"tl.where({', '.join(args)})"
        case op:
            return f"{_CALLS[op]}({', '.join(args)})"


def _made(constant: str, dtype: str) -> str:
    """A constant as a value of its own."""
    if constant.startswith(_EXACT):
        return constant
    return f"tl.full([], {constant}, {TYPES[dtype]})"


def _constant(node: Node) -> str:
    if node.dtype != FLOAT:
        return str(node.value)
    value = np.float32(node.value)
    text = repr(float(value))
    if text == "-0.0" or 0.0 < abs(value) < np.finfo(np.float32).tiny:
        return f"{_EXACT}{int(value.view(np.int32))})"
    return f'float("{text}")' if text.strip("-") in ("inf", "nan") else text
