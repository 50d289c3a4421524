"""What a recorded function may not do, said with the author's file and line and what to write.

Python tells a symbol only that its truth value, or its float, is wanted. Which ``if``, ``and`` or
``math.sin`` wanted it is read from the author's source at the line that is running.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

_PACKAGE = Path(__file__).parents[1]
_OURS = (str(_PACKAGE / "lang"), str(_PACKAGE / "compiler"))
"""Code that an author's functions call, and that reads them."""


class LanguageError(TypeError):
    """An environment's function does something no compiled backend can run.

    The message starts with ``file:line`` of the author's own code.
    """


def fail(message: str, part: str = "") -> NoReturn:
    """Raise `LanguageError` located at the author's line.

    While a class statement runs that is where it begins; `part` is a name of its body, whose line
    is said instead.
    """
    frame = author_frame()
    if frame is None:
        raise LanguageError(message)
    line = _line_of(frame, part) if part else frame.f_lineno
    raise LanguageError(f"{frame.f_code.co_filename}:{line}: {message}")


def _line_of(frame: FrameType, part: str) -> int:
    """The line that gives `part` its value, in the class statement that a frame has come to."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return frame.f_lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.lineno == frame.f_lineno:
            for line in node.body:
                targets = line.targets if isinstance(line, ast.Assign) else []
                targets = [line.target] if isinstance(line, ast.AnnAssign) else targets
                if any(isinstance(one, ast.Name) and one.id == part for one in targets):
                    return line.lineno
    return frame.f_lineno


def author_frame() -> FrameType | None:
    """The innermost frame outside this package, NumPy and NamedTuple: the author's line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        module = frame.f_globals.get("__name__", "")
        if not name.startswith(_OURS) and not module.startswith(("numpy", "collections")):
            return frame
        frame = frame.f_back
    return None


_WORDS = {
    "absolute": "abs",
    "fabs": "abs",
    "arctan": "atan",
    "arctan2": "atan2",
    "fmin": "minimum",
    "fmax": "maximum",
    "min": "minimum",
    "max": "maximum",
    "amin": "minimum",
    "amax": "maximum",
}
"""What other libraries call a word of the language."""

_INSTEAD = {
    "acos": "atan2(sqrt(1.0 - x * x), x)",
    "all": "(a) & (b)",
    "any": "(a) | (b)",
    "arccos": "atan2(sqrt(1.0 - x * x), x)",
    "arcsin": "atan2(x, sqrt(1.0 - x * x))",
    "array": "a tuple, (x, y)",
    "asarray": "a tuple, (x, y)",
    "asin": "atan2(x, sqrt(1.0 - x * x))",
    "bool_": "the comparison alone, which is a truth value",
    "cosh": "0.5 * (exp(x) + exp(-x))",
    "deg2rad": "x * pi / 180.0",
    "degrees": "x * 180.0 / pi",
    "dist": "sqrt(dx * dx + dy * dy)",
    "dot": "a[0] * b[0] + a[1] * b[1]",
    "float32": "to_float(x)",
    "float64": "to_float(x)",
    "fmod": "x % y",
    "hypot": "sqrt(x * x + y * y)",
    "int32": "to_int(x)",
    "int64": "to_int(x)",
    "isclose": "abs(x - y) < 1e-6",
    "isfinite": "abs(x) < 1e38",
    "isinf": "abs(x) > 1e38",
    "isnan": "x != x",
    "linspace": "the numbers one by one",
    "log10": "log(x) / log(10.0)",
    "log2": "log(x) / log(2.0)",
    "logical_and": "(a) & (b)",
    "logical_or": "(a) | (b)",
    "mean": "(a + b) / 2.0",
    "mod": "x % y",
    "norm": "sqrt(x * x + y * y)",
    "pow": "x ** 2 for whole exponents, exp(y * log(x)) for others",
    "power": "x ** 2 for whole exponents, exp(y * log(x)) for others",
    "prod": "a * b",
    "rad2deg": "x * 180.0 / pi",
    "radians": "x * pi / 180.0",
    "remainder": "x % y",
    "rint": "floor(x + 0.5)",
    "round": "floor(x + 0.5)",
    "sinh": "0.5 * (exp(x) - exp(-x))",
    "square": "x * x",
    "stack": "a tuple, (x, y)",
    "sum": "a + b",
    "trunc": "to_int(x)",
}
"""What to write for a function that has no word."""


def word_for(name: str) -> str:
    """Advice for a function of another library: the word of the language, if there is one."""
    from operant import lang

    word = _WORDS.get(name, name)
    if word in lang.__all__ and word not in _INSTEAD:
        return f"write operant.lang.{word}"
    if name in _INSTEAD:
        return f"write {_INSTEAD[name]}"
    words = [word for word in lang.__all__ if word.islower() and word not in ("boolean", "uint8")]
    words = [word for word in words if word not in ("float32", "int32")]
    return f"write it with the words of operant.lang: {', '.join(words)}"


def is_known_word(name: str) -> bool:
    """Whether `word_for` has more than a list of all words for a function's name."""
    from operant import lang

    return is_known_elsewhere(name) or name in lang.__all__


def is_known_elsewhere(name: str) -> bool:
    """Whether `word_for` has advice for a function's name."""
    return name in _WORDS or name in _INSTEAD


Span = tuple[tuple[int, int], tuple[int, int]]


def expression_at(
    frame: FrameType, instruction: int, wanted: Callable[[ast.AST], bool]
) -> ast.AST | None:
    """The innermost wanted syntax node around an instruction of a frame; None if none is known."""
    positions = list(frame.f_code.co_positions())
    line, end_line, column, end_column = positions[min(instruction // 2, len(positions) - 1)]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    best: tuple[Span, ast.AST] | None = None
    for node in ast.walk(tree):
        span = _span(node)
        if span is None or not wanted(node):
            continue
        inside = span[0] <= (line, column) and (end_line, end_column) <= span[1]
        if inside and (best is None or (best[0][0] <= span[0] and span[1] <= best[0][1])):
            best = (span, node)
    return None if best is None else best[1]


def _span(node: ast.AST) -> Span | None:
    """Where a node begins and ends; of a statement with a body, where its condition does."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return _span(node.test)
    if not isinstance(node, ast.expr | ast.pattern | ast.stmt):
        return None
    if node.end_lineno is None or node.end_col_offset is None:
        return None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _author_expression(wanted: Callable[[ast.AST], bool]) -> ast.AST | None:
    frame = author_frame()
    return None if frame is None else expression_at(frame, frame.f_lasti, wanted)


def _asks_for_truth(node: ast.AST) -> bool:
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.BoolOp() | ast.Assert():
            return True
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[_, _, *_]):
            return True
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return True
        case ast.Call() | ast.pattern():
            return True
    return False


TEXT = (
    "of a value that differs per environment and is not known here; remove it, and print "
    "env.get_state() after env.step()"
)
_DIFFERS = "on a value that differs per environment"
_WHERE = "write where(condition, a, b)"


def truth_advice(parameter: bool = False) -> str:
    """What to write instead of asking a symbol for its truth value.

    `parameter`: it depends on float parameters alone.
    """
    node = _author_expression(_asks_for_truth)
    differs = "on a float parameter, which may change after compiling" if parameter else _DIFFERS
    where = f"declare it int, bool or str, or {_WHERE}" if parameter else _WHERE
    match node:
        case ast.BoolOp(op=ast.And()):
            return f"`and` {differs}; write (a) & (b)"
        case ast.BoolOp(op=ast.Or()):
            return f"`or` {differs}; write (a) | (b)"
        case ast.UnaryOp(op=ast.Not()):
            return f"`not` {differs}; write logical_not(a)"
        case ast.Compare(ops=[_, _, *_]):
            better = bracketed(node)
            if better:
                return brackets_advice(better)
            return f"a chained comparison {differs}; write (a < b) & (b < c)"
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return f"`in` {differs}; write (x == a) | (x == b)"
        case ast.Call():
            return _call_truth_advice(node, differs)
        case ast.While():
            return f"`while` {differs}; loop over a constant range() and select with where()"
        case ast.Assert():
            return f"`assert` {differs}; remove it (`operant check` looks for NaN and bounds)"
        case ast.IfExp():
            return f"`a if condition else b` {differs}; {where}"
        case ast.pattern():
            return f"`match` {differs}; write where(x == 0, a, where(x == 1, b, c))"
    return f"`if` {differs}; {where}"


def _call_truth_advice(node: ast.Call, differs: str) -> str:
    name = ast.unparse(node.func)
    instead = {
        "min": "minimum(a, b)",
        "max": "maximum(a, b)",
        "sorted": "minimum(a, b) and maximum(a, b)",
        "any": "(a) | (b)",
        "all": "(a) & (b)",
        "filter": "where(condition, a, b)",
    }.get(name, "where(condition, a, b)")
    if name == "bool":
        return f"bool() {differs}; a comparison already is a truth value"
    return f"{name}() {differs}; write {instead}"


_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor)


def brackets_advice(better: str) -> str:
    """For ``a == 2 & b > 0``, which Python reads as ``a == (2 & b) > 0``."""
    return f"`&` and `|` bind tighter than comparisons: brackets are missing; write {better}"


def missing_brackets() -> str:
    """The comparison that the author is evaluating, with the brackets it lacks; empty if none."""
    node = _author_expression(
        lambda node: isinstance(node, ast.Compare) and bool(bracketed(node)),
    )
    return bracketed(node) if isinstance(node, ast.Compare) else ""


def bracketed(node: ast.Compare, words: Mapping[str, str] | None = None) -> str:
    """A comparison of ``x & y`` with something, as ``(.. x) & (y ..)``; empty if there is none.

    `words` stand for ``&`` and ``|`` where the language has them.
    """
    groups: list[list[str]] = [[]]
    joins: list[str] = []
    for operator, operand in zip([None, *node.ops], [node.left, *node.comparators], strict=True):
        if operator is not None:
            groups[-1].append(_sign(operator))
        parts, between = _bit_operands(operand)
        groups[-1].append(parts[0])
        groups += [[part] for part in parts[1:]]
        joins += between
    if not joins:
        return ""
    if words is not None and set(joins) <= words.keys():
        joins = [words[join] for join in joins]
    texts = [" ".join(group) for group in groups]
    texts = [text if text.isidentifier() or text[0] == "(" else f"({text})" for text in texts]
    return texts[0] + "".join(
        f" {join} {text}" for join, text in zip(joins, texts[1:], strict=True)
    )


def _bit_operands(node: ast.expr) -> tuple[list[str], list[str]]:
    """The operands of ``a & b | c`` and the signs between them."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, _BITS)):
        text = ast.unparse(node)
        return [f"({text})" if isinstance(node, ast.Compare) else text], []
    left, signs = _bit_operands(node.left)
    right, more = _bit_operands(node.right)
    sign = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}[type(node.op)]
    return left + right, [*signs, sign, *more]


def _sign(operator: ast.cmpop) -> str:
    text = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))
    return text.removeprefix("a ").removesuffix(" b")


def call_advice(what: str, instead: str) -> str:
    """What to write instead of turning a symbol into a Python number."""
    node = _author_expression(lambda node: isinstance(node, ast.Call))
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as function):
            return f"{ast.unparse(function)}() cannot be compiled; {word_for(name)}"
        case ast.Call(func=ast.Name(id=name)) if name not in ("float", "int"):  # from math import
            return f"{name}() cannot be compiled; {word_for(name)}"
        case ast.Call():
            return f"{what} of a value that differs per environment; write {instead}"
    if what == "float()":  # no call: "%f" % x, or an array's element
        text = _author_expression(
            lambda node: isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant)
        )
        if text is not None:
            return f"text {TEXT}"
        return (
            "a NumPy array cannot hold a value that differs per environment; keep it in a variable "
            "or a tuple"
        )
    return f"{what} of a value that differs per environment; write {instead}"


def index_advice() -> str:
    """What to write where a symbol chooses an element or bounds a loop."""
    node = _author_expression(lambda node: isinstance(node, ast.Call | ast.Subscript))
    differs = "a value that differs per environment was used as"
    match node:
        case ast.Call(func=ast.Name(id="range")):
            return (
                f"{differs} a loop bound; loop over a constant range(n) and select with "
                "where(k < bound, a, b)"
            )
        case ast.Subscript(slice=index):
            at = ast.unparse(index)
            return f"{differs} an index; write where({at} == 0, a, where({at} == 1, b, c))"
        case ast.Call(func=function):
            name = ast.unparse(function)
            return f"{name}() cannot be compiled; {word_for(name.rpartition('.')[2])}"
    return (
        f"{differs} an index or a loop bound; choose with where(), or loop over a constant range()"
    )


def array_advice() -> str:
    """What to write where NumPy makes an array of symbols."""
    node = _author_expression(lambda node: isinstance(node, ast.Call | ast.Subscript))
    match node:
        case ast.Subscript():
            return index_advice()
        case ast.Call(func=ast.Attribute(attr=name) as function):
            return f"{ast.unparse(function)}() cannot be compiled; {word_for(name)}"
    return "a NumPy function cannot be compiled; use the words of operant.lang"
