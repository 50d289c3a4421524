"""A recorded program as Python source: what printers for different compilers have in common.

A compiler's own part is a `Dialect`, which writes one operation as an expression.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Protocol

from operant.compiler.recording.trace import FLOAT, INT, Node, Program, Symbol
from operant.lang import floats

COMPOSED = ("sin", "cos", "tan", "exp", "log", "tanh", "atan", "atan2")
"""Words whose arithmetic is written in `operant.lang.floats`."""
_LINE = 88  # longer expressions get a name of their own


class Dialect(Protocol):
    """Writes an operation."""

    def __call__(self, program: Program, node: Node, args: list[str], suffix: str) -> str:
        """`node` of `program` as an expression of `args`, the expressions of its arguments.

        Composed words are called as ``word + suffix``.
        """


def print_program(
    dialect: Dialect, program: Program, values: Mapping[str, str], prefix: str, suffix: str = ""
) -> tuple[list[str], list[str]]:
    """The lines that compute a program, and the expressions of its outputs.

    `values` are the expressions of its inputs. Intermediate results are called `prefix` and a
    number.
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
            text = dialect(program, node, [texts[arg] for arg in node.args], suffix)
            if node.op != "constant" and (uses[index] > 1 or len(text) > _LINE):
                lines.append(f"{prefix}{index} = {text}")
                text = f"{prefix}{index}"
            texts[index] = text
    return lines, [texts[output] for output in program.outputs]


def print_function(dialect: Dialect, program: Program, name: str, suffix: str = "") -> str:
    """``def name(inputs): ... return outputs``: a tuple of them."""
    names = {name: name for name in program.inputs}
    lines, outputs = print_program(dialect, program, names, "v_", suffix)
    lines.append(f"return ({', '.join(outputs)},)")
    body = "".join(f"    {line}\n" for line in lines)
    return f"def {name}({', '.join(program.inputs)}):\n{body}"


def print_word(dialect: Dialect, word: str, suffix: str = "") -> str:
    """A composed word as a function of one result."""
    text = print_function(dialect, word_program(word), word + suffix, suffix)
    head, _, result = text.rpartition("return (")
    return f"{head}return {result.rstrip().removesuffix(',)')}\n"


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


def extremum(program: Program, node: Node, args: list[str]) -> tuple[str, str, str]:
    """How minimum or maximum of `args` is chosen: a test and the values if it holds and if not.

    ``minimum(a, b)`` is a if a < b or a is NaN, else b: NaN if either is, and of two equal zeros
    the second. The test is empty where both may be NaN.
    """
    a, b = args
    first, second = (program.nodes[arg] for arg in node.args)
    less = "<" if node.op == "minimum" else ">"
    if never_nan(first):
        return f"{a} {less} {b}", a, b
    if never_nan(second):
        return f"{b} {less}= {a}", b, a
    return "", a, b


def never_nan(node: Node) -> bool:
    """Whether a value is a number for sure: a constant, an integer, or a (checked) parameter."""
    if node.op == "constant":
        return node.value == node.value
    return node.dtype == INT or (node.op == "input" and str(node.value).startswith("p_"))
