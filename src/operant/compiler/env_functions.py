"""An environment's functions: their arguments, and where they and the class's parts are written."""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from operant.compiler.outer import plain_function
from operant.compiler.read_source import SourceError, read_source

_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def call(function: Callable[..., Any], **available: Any) -> Any:
    """Call an author's function with those of the available arguments that it names."""
    return function(**{name: available[name] for name in arguments(function)})


def arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments."""
    return tuple(inspect.signature(function).parameters)


def nearest(argument: str, allowed: Sequence[str]) -> str:
    """``; did you mean 'action'?`` for an argument that is much like one of those allowed."""
    close = difflib.get_close_matches(argument, allowed, 1, 0.75)
    close = close or [word for word in allowed if word.startswith(argument)]
    return f"; did you mean {close[0]!r}?" if close else ""


def entry_points(env: type[Any]) -> list[FunctionType]:
    """The functions that an author wrote, without decorators; spaces may be functions, too."""
    names = ("reset", "step", "observe", "action_mask", "observation_space", "action_space")
    values = [getattr(env, name, None) for name in names]
    return [found for found in map(written_function, values) if found is not None]


def written_function(value: Any) -> FunctionType | None:
    """The function behind `value`, that of a classmethod included."""
    return plain_function(getattr(value, "__func__", value))


@contextmanager
def name_bound(env: type[Any]) -> Iterator[None]:
    """Let the functions say ``MyEnv.State`` although the class statement has not ended yet.

    Python binds a class's name after its body and ``__init_subclass__`` have run. Until then the
    name is missing from the module, or the cell of a class made inside a function is empty.
    """
    missing = object()
    name = env.__name__
    functions = entry_points(env)
    places = {id(f.__globals__): f.__globals__ for f in functions}.values()
    before = [namespace.get(name, missing) for namespace in places]
    for function in functions:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name in cells:
            cells[name].cell_contents = env
    for namespace in places:
        namespace[name] = env
    try:
        yield
    finally:
        for namespace, old in zip(places, before, strict=True):
            if old is missing:
                del namespace[name]
            else:
                namespace[name] = old


def place(function: Callable[..., Any]) -> str:
    """``file:line`` of a function."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def return_place(function: Callable[..., Any]) -> str:
    """``file:line`` of what a function returns, if that is said once; else of the function."""
    plain = written_function(function)
    if plain is None:
        return place(function)
    try:
        tree = read_source(plain)
    except SourceError:
        return place(function)
    returns = [] if tree is None else [n for n in _own(tree) if isinstance(n, ast.Return)]
    if len(returns) != 1:
        return place(function)
    return f"{plain.__code__.co_filename}:{returns[0].lineno}"


def _own(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module, class or function, without those of the scopes within it."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (*_SCOPES, ast.Lambda)):
            yield from _own(node)


def part_place(env: type[Any], *path: str) -> str:
    """``file:line: `` of a part of a class, such as ``("State", "speed")``; empty if not known.

    Where only the class is found in its file, that is the place.
    """
    holder = env
    for name in path[:-1]:
        inner = getattr(holder, name, None)
        holder = inner if isinstance(inner, type) else holder
    holder = next((base for base in holder.__mro__ if path and path[-1] in _names(base)), holder)
    for file in source_files(env, holder):
        statement = _class_statement(file, holder.__qualname__)
        if statement is not None:
            line = _line_of(statement, path[-1] if path else "")
            return f"{file}:{line or statement.lineno}: "
    return part_place(env, *path[:-1]) if len(path) > 1 else ""


def _names(cls: type[Any]) -> set[str]:
    """What a class's own body names, also without a value."""
    return {*vars(cls), *vars(cls).get("__annotations__", {})}


def source_files(env: type[Any], holder: type[Any] | None = None) -> list[str]:
    """The files that a class, or another that it inherits from, may be written in."""
    module = sys.modules.get((holder or env).__module__)
    functions = [function.__code__.co_filename for function in entry_points(env)]
    return list(dict.fromkeys([getattr(module, "__file__", None) or "", *functions]))


def _class_statement(file: str, qualname: str) -> ast.ClassDef | None:
    try:
        tree: ast.AST = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    for name in qualname.replace(".<locals>", "").split("."):
        inner = [n for n in _own(tree) if isinstance(n, _SCOPES) and n.name == name]
        if not inner:
            return None
        tree = inner[-1]
    return tree if isinstance(tree, ast.ClassDef) else None


def is_of_the_class(function: FunctionType, name: str) -> bool:
    """Whether the class that a function is written in gives `name` a value."""
    outer = function.__qualname__.rpartition(".")[0]
    statement = _class_statement(function.__code__.co_filename, outer)
    return statement is not None and _line_of(statement, name) is not None


def _line_of(statement: ast.ClassDef, name: str) -> int | None:
    """The line of a class's body that gives `name` its value."""
    for node in statement.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return node.lineno
            case ast.Assign(targets=targets):
                if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    return node.lineno
            case ast.FunctionDef(name=found) | ast.ClassDef(name=found) if found == name:
                return node.lineno
    return None
