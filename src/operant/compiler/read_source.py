"""The syntax tree of a function that was imported: of its own text, not of what the file says now.

A file may be edited after it was imported, and Python keeps no copy of the old text. So the text
that is found is compiled once more, and counts only where that gives the function's own bytecode.
"""

from __future__ import annotations

import ast
import linecache
import os
import warnings
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any


class SourceError(Exception):
    """The text of a function is not to be had; the message says why, and what to do."""


def read_source(function: FunctionType) -> ast.stmt | None:
    """The statement that defines `function`, with the line numbers of its file.

    None for a function that no statement of its own defines, a lambda.

    Raises:
        SourceError: there is no text, or the text is not the one that runs.
    """
    code = function.__code__
    texts = 0
    for text in _texts(code.co_filename, function.__globals__):
        texts += 1
        named = _definitions(text, code.co_filename).get(code.co_qualname, [])
        same = [pair for pair in named if _essence(pair[0]) == _essence(code)]
        same += [pair for pair in named if _has_assert(pair[1])]  # pytest rewrites these
        if same:
            return min(same, key=lambda pair: abs(pair[0].co_firstlineno - code.co_firstlineno))[1]
        if code.co_name == "<lambda>":
            return None
    if not texts:
        raise SourceError(
            f"the source of {function.__qualname__}() cannot be read; write it in a file"
        )
    file = os.path.basename(code.co_filename)
    raise SourceError(
        f"{code.co_filename}:{code.co_firstlineno}: {file} was changed after {code.co_name}() was "
        f"imported from it: import it again (restart Python; or importlib.reload() it, then define "
        f"the class again)"
    )


def _texts(file: str, namespace: dict[str, Any]) -> Iterator[str]:
    """What was read from the file before, which may be what was imported; then what it says now."""
    before = "".join(linecache.getlines(file, namespace))
    if before:
        yield before
    if os.path.isfile(file):  # a notebook's cells are in linecache alone
        now = "".join(linecache.updatecache(file, namespace))
        if now and now != before:
            yield now


@lru_cache(maxsize=32)
def _definitions(text: str, file: str) -> dict[str, list[tuple[CodeType, ast.stmt]]]:
    """The functions in a text by their qualified names: as Python compiles them, and as written."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # in a notebook's cell
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said at the import
        try:
            tree = ast.parse(text, file)
            whole = compile(tree, file, "exec", flags=flags, dont_inherit=True)
        except (SyntaxError, ValueError):  # saved half-written
            return {}
    _mark_missing_brackets(tree, text)
    statements = {
        (node.name, min(part.lineno for part in (node, *node.decorator_list))): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found: dict[str, list[tuple[CodeType, ast.stmt]]] = {}
    for code in _inner(whole):
        statement = statements.get((code.co_name, code.co_firstlineno))
        if statement is not None:
            found.setdefault(code.co_qualname, []).append((code, statement))
    return found


def _mark_missing_brackets(tree: ast.AST, text: str) -> None:
    """Set `lacks_brackets` on each ``a == 2 & b > 0``, which Python reads as ``a == (2 & b) > 0``,
    and `compared_in` on each ``x & y`` that stands beside a comparison's sign without brackets.

    A tree does not hold the brackets that the author wrote, so this is done beside the text.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        line, column = node.lineno, node.col_offset
        for operand in (node.left, *node.comparators):
            bits = isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.BitAnd | ast.BitOr)
            before = ast.expr(
                lineno=line,
                col_offset=column,
                end_lineno=operand.lineno,
                end_col_offset=operand.col_offset,
            )
            if bits and "(" not in (ast.get_source_segment(text, before) or ""):
                vars(operand)["compared_in"] = node
                if len(node.ops) > 1:  # `flags & 1 == 0` alone is right where flags is an int
                    vars(node)["lacks_brackets"] = True
            line = operand.end_lineno or operand.lineno
            column = operand.end_col_offset or operand.col_offset


def _inner(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _inner(part)


def _essence(code: CodeType) -> tuple[Any, ...]:
    """What a function does, on whatever lines it stands."""
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = tuple(map(_constant, code.co_consts))
    return (code.co_code, code.co_exceptiontable, counts, names, constants)


def _constant(value: Any) -> Any:
    """A constant that equals another only if it is of the same type: 1, 1.0 and True are three."""
    if isinstance(value, CodeType):
        return _essence(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return (type(value), repr(value) if isinstance(value, float | complex) else value)


def _has_assert(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(statement))
