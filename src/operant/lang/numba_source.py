"""A recorded program as Python source for Numba.

Numba types Python literals as float64 and widens int32 arithmetic to int64; both would halve the
SIMD width. So every constant is written ``f32(...)`` or ``i32(...)`` and every integer result is
cast back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from operant.lang import floats
from operant.lang.trace import BOOL, FLOAT, INT, Node, Program, Symbol

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
COMPOSED = ("sin", "cos", "tan", "exp", "log", "tanh", "atan", "atan2")
_LINE = 88  # longer expressions get a name of their own


def program_source(
    program: Program, values: Mapping[str, str], prefix: str = "v", suffix: str = ""
) -> tuple[list[str], list[str]]:
    """The lines that compute a program, and the expressions of its outputs.

    `values` are the expressions of its inputs. Intermediate results are called `prefix` and a
    number, composed words ``word + suffix``.
    """
    uses = [0] * len(program.nodes)
    for node in program.nodes:
        for arg in node.args:
            uses[arg] += 1
    for output in program.outputs:
        uses[output] += 1
    texts: dict[int, str] = {}
    lines = []
    for index, node in enumerate(program.nodes):
        if node.op == "input":
            texts[index] = values[str(node.value)]
        elif uses[index] > 0:
            text = _expression(program, node, [texts[arg] for arg in node.args], suffix)
            if node.op != "constant" and (uses[index] > 1 or len(text) > _LINE):
                lines.append(f"{prefix}{index} = {text}")
                text = f"{prefix}{index}"
            texts[index] = text
    return lines, [texts[output] for output in program.outputs]


def function_source(program: Program, name: str, suffix: str = "") -> str:
    """``def name(inputs): ... return outputs``; composed words are called as ``word + suffix``."""
    lines, outputs = program_source(program, {name: name for name in program.inputs}, "v", suffix)
    lines.append(f"return ({', '.join(outputs)},)")
    body = "".join(f"    {line}\n" for line in lines)
    return f"def {name}({', '.join(program.inputs)}):\n{body}"


def composed_words(programs: list[Program]) -> list[str]:
    """The composed words these programs call, directly or through each other, in order."""
    found: list[str] = []
    for program in programs:
        for node in program.nodes:
            if node.op in COMPOSED and node.op not in found:
                inner = composed_words([word_program(node.op)])
                found.extend(word for word in inner if word not in found)
                found.append(node.op)
    return found


def word_program(word: str) -> Program:
    """The recorded float32 arithmetic of a composed word."""
    function: Callable[..., Symbol] = getattr(floats, word)
    program = Program()
    inputs = [program.input(name, FLOAT) for name in inspect.signature(function).parameters]
    program.outputs.append(function(*inputs).index)
    return program


def word_source(word: str, suffix: str = "") -> str:
    """A composed word as a function of one result."""
    text = function_source(word_program(word), word + suffix, suffix)
    head, _, result = text.rpartition("return (")
    return f"{head}return {result.rstrip().removesuffix(',)')}\n"


def _never_nan(node: Node) -> bool:
    """Whether a value is a number for sure: a constant, an integer, or a (checked) parameter."""
    if node.op == "constant":
        return node.value == node.value
    return node.dtype == INT or (node.op == "input" and str(node.value).startswith("p_"))


def _extremum(program: Program, node: Node, args: list[str]) -> str:
    """minimum or maximum in one instruction where one side is no NaN, which decides the order."""
    sign = "<" if node.op == "minimum" else ">"
    for sure, other in ((0, 1), (1, 0)):
        if _never_nan(program.nodes[node.args[sure]]):
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
