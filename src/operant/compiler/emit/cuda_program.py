"""A recorded program as C++ for the GPU: a thread computes one environment.

Compiled with `operant.toolchain.nvrtc.EXACT`, it rounds as the Triton kernels and NumPy do, to the
bit. What is printed calls the functions of `compiler.runtime.cuda_words`; composed words are called
``sin_exact`` and so on, because C++ has its own ``sin``.
"""

from __future__ import annotations

from collections.abc import Mapping

from operant.compiler.emit.program_source import COMPOSED, extremum, print_program, word_program
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Node, Program

TYPES = {FLOAT: "float", INT: "int", BOOL: "bool"}
SUFFIX = "_exact"
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
    "xor": "^",
    "shift_right": ">>",
}
_WRAPPED = {"add": "added", "subtract": "subtracted", "multiply": "multiplied"}
"""Ints wrap around, which C++ leaves undefined."""
_CALLS = {
    "floor": "floorf",
    "ceil": "ceilf",
    "sqrt": "sqrtf",
    "bits_of": "__float_as_int",
    "float_of": "__int_as_float",
    "floor_divide": "floor_divide",
    "mod": "floor_mod",
    "shift_left": "shifted_left",
    "to_float": "float",
    "to_int": "int",
}


def program_source(
    program: Program, values: Mapping[str, str], prefix: str = "v_"
) -> tuple[list[str], list[str]]:
    """The statements that compute a program, and the expressions of its outputs; see
    `print_program`."""
    lines, outputs = print_program(_expression, program, values, prefix, SUFFIX)
    return [f"const auto {line};" for line in lines], outputs


def word_source(word: str) -> str:
    """A composed word as a function of one result."""
    program = word_program(word)
    lines, outputs = program_source(program, {name: name for name in program.inputs})
    given = ", ".join(f"float {name}" for name in program.inputs)
    body = "".join(f"  {line}\n" for line in [*lines, f"return {outputs[0]};"])
    return f"DEVICE float {word}{SUFFIX}({given}) {{\n{body}}}\n"


def _expression(program: Program, node: Node, args: list[str], suffix: str) -> str:
    whole = node.dtype == INT
    match node.op:
        case "constant":
            return _constant(node)
        case "minimum" | "maximum":
            test, a, b = extremum(program, node, args)
            return (
                f"where<{TYPES[node.dtype]}>({test}, {a}, {b})" if test else f"{node.op}({a}, {b})"
            )
        case "to_int" if program.nodes[node.args[0]].dtype == FLOAT:
            return f"whole32({args[0]})"
        case "where":
            return f"where<{TYPES[node.dtype]}>({', '.join(args)})"
        case "negative":
            return f"subtracted(0, {args[0]})" if whole else f"(-{args[0]})"
        case "abs":
            return f"size_of({args[0]})" if whole else f"fabsf({args[0]})"
        case "not":
            return f"(!{args[0]})"
        case op if whole and op in _WRAPPED:
            return f"{_WRAPPED[op]}({args[0]}, {args[1]})"
        case op if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        case op if op in COMPOSED:
            return f"{op}{suffix}({', '.join(args)})"
        case op:
            return f"{_CALLS[op]}({', '.join(args)})"


def _constant(node: Node) -> str:
    if node.dtype == BOOL:
        return "true" if node.value else "false"
    if node.dtype == INT:
        return "(-2147483647 - 1)" if node.value == -(2**31) else f"({node.value})"
    return literal(float(node.value))  # type: ignore[arg-type]


def literal(value: float) -> str:
    """A float32 as C++ writes it."""
    if value != value:
        return "__int_as_float(0x7fc00000)"
    if value in (float("inf"), float("-inf")):
        return f"__int_as_float({'0x7f800000' if value > 0 else '(int)0xff800000'})"
    return f"({value!r}f)"  # exact: it is a float32, and the digits tell a float64 apart
