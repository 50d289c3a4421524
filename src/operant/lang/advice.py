"""What a recorded function may not do, said with the author's file and line and what to write.

Python tells a symbol only that its truth value, or its float, is wanted. Which ``if``, ``and`` or
``math.sin`` wanted it is read from the author's source at the line that is running.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

_HERE = str(Path(__file__).parent)


class LanguageError(TypeError):
    """An environment's function does something no compiled backend can run.

    The message starts with ``file:line`` of the author's own code.
    """


def fail(message: str) -> NoReturn:
    """Raise `LanguageError` located at the author's line."""
    frame = author_frame()
    if frame is None:
        raise LanguageError(message)
    raise LanguageError(f"{frame.f_code.co_filename}:{frame.f_lineno}: {message}")


def author_frame() -> FrameType | None:
    """The innermost frame outside this package and NumPy: the line the author wrote."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        module = frame.f_globals.get("__name__", "")
        if not name.startswith(_HERE) and not module.startswith("numpy"):
            return frame
        frame = frame.f_back
    return None


_RENAMED = {
    "absolute": "abs",
    "fabs": "abs",
    "arctan": "atan",
    "arctan2": "atan2",
    "fmin": "minimum",
    "fmax": "maximum",
    "min": "minimum",
    "max": "maximum",
    "float32": "to_float",
    "int32": "to_int",
}


def word_for(name: str) -> str:
    """Advice for a function of another library: the word of the language, if there is one."""
    from operant import lang

    word = _RENAMED.get(name, name)
    if word in lang.__all__:
        return f"write operant.lang.{word}"
    return "use the words of operant.lang"


def _author_expression(wanted: Callable[[ast.AST], bool]) -> ast.AST | None:
    """The innermost wanted syntax node around the author's current instruction."""
    frame = author_frame()
    if frame is None:
        return None
    positions = list(frame.f_code.co_positions())
    line, _, column, _ = positions[min(frame.f_lasti // 2, len(positions) - 1)]
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    best: ast.AST | None = None
    best_size = sys.maxsize
    here = (line or frame.f_lineno, column or 0)
    for node in ast.walk(tree):
        if wanted(node) and hasattr(node, "end_lineno"):
            start = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
            end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
            size = (end[0] - start[0]) * 1000 + end[1] - start[1]
            if start <= here < end and size < best_size:
                best, best_size = node, size
    return best


def _asks_for_truth(node: ast.AST) -> bool:
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.BoolOp() | ast.Assert():
            return True
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[_, _, *_]):
            return True
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return True
        case ast.Call(func=ast.Name(id="min" | "max" | "bool")):
            return True
    return False


def truth_advice() -> str:
    """What to write instead of asking a symbol for its truth value."""
    node = _author_expression(_asks_for_truth)
    differs = "on a value that differs per environment"
    match node:
        case ast.BoolOp(op=ast.And()):
            return f"`and` {differs}; write (a) & (b)"
        case ast.BoolOp(op=ast.Or()):
            return f"`or` {differs}; write (a) | (b)"
        case ast.UnaryOp(op=ast.Not()):
            return f"`not` {differs}; write logical_not(a)"
        case ast.Compare(ops=[_, _, *_]):
            return f"a chained comparison {differs}; write (a < b) & (b < c)"
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return f"`in` {differs}; write (x == a) | (x == b)"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            return f"{name}() {differs}; write {name}imum(a, b)"
        case ast.Call(func=ast.Name(id="bool")):
            return f"bool() {differs}; a comparison already is a truth value"
        case ast.While():
            return f"`while` {differs}; loop over a constant range() and select with where()"
        case ast.Assert():
            return f"`assert` {differs}; remove it (`operant check` looks for NaN and bounds)"
        case ast.IfExp():
            return f"`a if condition else b` {differs}; write where(condition, a, b)"
    return f"`if` {differs}; write where(condition, a, b)"


def call_advice(what: str, instead: str) -> str:
    """What to write instead of turning a symbol into a Python number."""
    node = _author_expression(lambda node: isinstance(node, ast.Call))
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as function):
            return f"{ast.unparse(function)}() cannot be compiled; {word_for(name)}"
        case ast.Call(func=ast.Name(id=name)) if name not in ("float", "int"):  # from math import
            return f"{name}() cannot be compiled; {word_for(name)}"
    return f"{what} of a value that differs per environment; write {instead}"
