"""The author's functions and those that they call, with what their names stand for.

Nothing is run: a name stands for what the function finds outside itself, an argument for what it
is given where that is known.
"""

from __future__ import annotations

import ast
import builtins
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from operant.compiler.outer import MISSING, plain_function
from operant.compiler.own_code import is_own
from operant.compiler.read_source import SourceError, read_source

CHANGEABLE = (list, dict, set, deque, bytearray, np.ndarray)
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)


@dataclass(frozen=True)
class Followed:
    """A function, and the arguments that are known where it is called."""

    function: FunctionType
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same function given the same objects."""
        return (self.function.__code__, *((name, id(value)) for name, value in self.given.items()))


def is_library(function: FunctionType) -> bool:
    """Whether a function is of Python's library or of an installed package."""
    top = (function.__module__ or "").partition(".")[0]
    return top in sys.stdlib_module_names or "site-packages" in function.__code__.co_filename


def followed(functions: Iterable[FunctionType]) -> Iterator[Names]:
    """The functions and the author's own that they call, each with its syntax tree, if known."""
    waiting = [Followed(function) for function in functions]
    entries = {one.function.__code__ for one in waiting}
    seen: set[tuple[Any, ...]] = set()
    while waiting:
        one = waiting.pop(0)
        ours = (one.function.__module__ or "").partition(".")[0] == "operant"
        library = one.function.__code__ not in entries and is_library(one.function)
        if one.key in seen or ours or library:
            continue
        seen.add(one.key)
        try:
            tree = read_source(one.function)
        except SourceError:
            continue
        if tree is not None:
            names = Names(one, tree)
            yield names
            waiting += names.calls()


class Names:
    """What the names in a function stand for."""

    def __init__(self, one: Followed, tree: ast.stmt) -> None:
        self.function, self.tree = one.function, tree
        stored = _stored(tree)
        self.bound = {k: value for k, value in one.given.items() if k not in stored}
        self._locals = _locals(self.function.__code__)
        self._aliases = {
            name: value
            for name, value in assigned_once(tree).items()
            if isinstance(value, ast.Name | ast.Attribute | ast.Subscript)
            and name not in self.bound
        }
        names = [n for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
        self._imported = {name.asname or name.name: name.name for name in names}

    def value(self, node: ast.expr) -> Any:
        """What an expression outside the function stands for; `MISSING` for what is not known."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            holder = self.value(node.value)
            if isinstance(holder, list | dict | tuple):
                try:
                    return cast(Any, holder)[node.slice.value]
                except (LookupError, TypeError):
                    return MISSING
        return MISSING

    def _name(self, name: str) -> Any:
        if name in self._imported:
            return sys.modules.get(self._imported[name], MISSING)
        if name in self.bound:
            return self.bound[name]
        if name in self._aliases:
            return self.value(self._aliases[name])
        return MISSING if name in self._locals else _outer(self.function, name)

    def _attribute(self, holder: Any, name: str) -> Any:
        known = (ModuleType, type, logging.Logger, *GENERATORS, *CHANGEABLE)
        if isinstance(holder, known) or is_stream(holder):
            return getattr(holder, name, MISSING)
        if not self._is_own(holder):
            return MISSING
        method = getattr(type(holder), name, None)
        if isinstance(method, FunctionType):
            return MethodType(method, holder)
        return vars(holder).get(name, MISSING) if hasattr(holder, "__dict__") else MISSING

    def _is_own(self, value: Any) -> bool:
        """Whether it is an object of a class of the author's."""
        if value is MISSING or isinstance(value, type):
            return False
        return type(value).__module__ == self.function.__module__ or is_own(type(value))

    def calls(self) -> list[Followed]:
        """The functions it calls, properties of the author's objects among them."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                called = self._called(node)
                found += [] if called is None else [called]
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = self.value(node.value)
                part = getattr(type(holder), node.attr, None) if self._is_own(holder) else None
                if isinstance(part, property) and isinstance(part.fget, FunctionType):
                    found.append(_method(part.fget, holder))
        return found

    def _called(self, node: ast.Call) -> Followed | None:
        callee = self.value(node.func)
        if self._is_own(callee) and not isinstance(callee, FunctionType | MethodType):
            method = vars(type(callee)).get("__call__")
            callee = MethodType(method, callee) if isinstance(method, FunctionType) else None
        before = [callee.__self__] if isinstance(callee, MethodType) else []
        function = plain_function(getattr(callee, "__func__", callee))
        if function is None:
            return None
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        starred = any(isinstance(part, ast.Starred) for part in node.args)
        plain = [] if starred else [self.value(part) for part in node.args]
        given = dict(zip(names, [*before, *plain], strict=False))
        given |= {part.arg: self.value(part.value) for part in node.keywords if part.arg}
        defaults = function.__defaults__ or ()
        if not starred and all(part.arg for part in node.keywords):
            last = names[len(names) - len(defaults) :]
            given = dict(zip(last, defaults, strict=True)) | given
            given = (function.__kwdefaults__ or {}) | given
        return Followed(function, {k: v for k, v in given.items() if v is not MISSING})


def _method(function: FunctionType, holder: Any) -> Followed:
    return Followed(function, {function.__code__.co_varnames[0]: holder})


def is_stream(value: object) -> bool:
    """Whether it is the standard output or the standard error."""
    return value is not None and (value is sys.stdout or value is sys.stderr)


def root(node: ast.expr) -> ast.expr:
    """The name, or the call, before all attributes and brackets."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _locals(code: CodeType) -> set[str]:
    """Names that are variables of a function, or of a function within it."""
    names = {*code.co_varnames, *code.co_cellvars}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= _locals(part)
    return names


def _stored(tree: ast.stmt) -> set[str]:
    """Names that are given a value by ``=``, a loop and the like; ``+=`` may change it in place."""
    changed = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and id(node) not in changed
    }


def assigned_once(tree: ast.stmt) -> dict[str, ast.expr]:
    """Variables that are assigned once, by ``name = ...``, and what they are given."""
    stores: dict[str, ast.expr] = {}
    counts: Counter[str] = Counter()
    changed = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            stores[node.targets[0].id] = node.value
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += id(node) not in changed
        if isinstance(node, ast.arg):  # which has a value already
            counts[node.arg] += 1
    return {name: value for name, value in stores.items() if counts[name] == 1}


def _outer(function: FunctionType, name: str) -> Any:
    free = function.__code__.co_freevars
    if name in free:
        try:
            return (function.__closure__ or ())[free.index(name)].cell_contents
        except ValueError:  # an empty cell
            return MISSING
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, MISSING)
