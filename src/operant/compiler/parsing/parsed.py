"""An author's function as a syntax tree, read once."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from types import FunctionType
from typing import Any, NamedTuple

from operant.compiler.read_source import SourceError, read_source
from operant.lang.advice import LanguageError


class Source(NamedTuple):
    """A function as it was read."""

    tree: ast.FunctionDef
    stores: Counter[str]  # how often names are given values
    foreign: list[tuple[ast.AST, str]]  # names that are not ASCII, and where


def parsed(function: FunctionType) -> Source:
    """Read once, when the class is defined: the file may change while the program runs."""
    key = (function.__code__.co_filename, function.__code__)
    if key not in _sources:
        tree = _read(function)
        nodes = list(ast.walk(tree))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        stores = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
        named = [(node, getattr(node, "id", getattr(node, "arg", None)) or "") for node in nodes]
        foreign = [(node, name) for node, name in named if not name.isascii()]
        _sources[key] = Source(tree, stores, foreign)
    return _sources[key]


_sources: dict[Any, Source] = {}


def _read(function: FunctionType) -> ast.FunctionDef:
    """The function's syntax tree, with the line numbers of its file."""
    written = inspect.unwrap(function)
    place = f"{written.__code__.co_filename}:{written.__code__.co_firstlineno}"
    try:
        tree = read_source(written)
    except SourceError as error:
        raise LanguageError(str(error)) from None
    if not isinstance(tree, ast.FunctionDef):
        what = "a lambda" if function.__name__ == "<lambda>" else f"{function.__qualname__}()"
        raise LanguageError(f"{place}: {what} is not compiled; write a plain function with def")
    decorators = [ast.unparse(node) for node in tree.decorator_list]
    if set(decorators) - {"staticmethod"}:
        raise LanguageError(f"{place}: @{decorators[0]} is not compiled; write a plain function")
    if written is not function:
        raise LanguageError(
            f"{place}: what is called is {function.__code__.co_name}(), which is wrapped around "
            f"{written.__name__}(); write a plain function"
        )
    return tree
