"""What a recorded function would do once, at the class statement, and no compiled step does again.

``print``, ``except`` and a list that is appended to leave no trace in what is recorded, so they
are found in the text of the author's functions, and of the functions that these call.
"""

from __future__ import annotations

import ast
import builtins
import logging
import pprint
import random
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn, cast

import numpy as np

from operant.compiler.outer import MISSING, plain_function
from operant.compiler.read_source import SourceError, read_source
from operant.lang.advice import LanguageError

_CHANGEABLE = (list, dict, set, deque, bytearray, np.ndarray)
_CHANGES = {"append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "clear", "sort"}
_CHANGES |= {"reverse", "update", "setdefault", "popitem", "add", "discard", "fill"}
_CLOCKS = ("time", "datetime")
Looked = FunctionType | MethodType
_SPEAKING = (builtins.print, builtins.input, builtins.open, pprint.pprint)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)


def refuse_side_effects(functions: Iterable[Looked]) -> None:
    """Look through an author's functions and those they call.

    Raises:
        LanguageError: one prints, catches exceptions, or changes what outlives the call.
    """
    for function, tree in _written(functions):
        reader = _Reader(function, tree)
        for node in _in_order(tree):
            reader.refuse(node)


def drawing_place(functions: Iterable[Looked]) -> str:
    """Where a number is drawn, and not from `random`: ``file:line: call()``; empty if nowhere."""
    for function, tree in _written(functions):
        reader = _Reader(function, tree)
        for node in _in_order(tree):
            if isinstance(node, ast.Call) and _draws(reader.value(node.func)):
                return f"{function.__code__.co_filename}:{node.lineno}: {ast.unparse(node.func)}()"
    return ""


def _written(functions: Iterable[Looked]) -> Iterator[tuple[Looked, ast.stmt]]:
    """The functions and the author's own that they call, each with its syntax tree, if known."""
    waiting, seen = list(functions), set()
    entries = {function.__code__ for function in waiting}
    while waiting:
        function = waiting.pop(0)
        code = function.__code__
        if code in seen or _is_library(function, code in entries):
            continue
        seen.add(code)
        try:
            tree = read_source(_plain(function))
        except SourceError:
            continue
        if tree is None:
            continue
        yield function, tree
        reader = _Reader(function, tree)
        called = [reader.value(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        waiting += [found for found in map(_function, called) if found is not None]


def _function(called: Any) -> FunctionType | MethodType | None:
    """What is looked through: a function of the author's, a method of an object of theirs."""
    return called if isinstance(called, MethodType) else plain_function(called)


def _plain(function: Looked) -> FunctionType:
    """The function itself, or that of a method."""
    found: FunctionType = getattr(function, "__func__", function)  # type: ignore[arg-type]
    return found


def _is_library(function: Looked, entry: bool) -> bool:
    top = function.__module__.partition(".")[0] if function.__module__ else ""
    if top == "operant" or entry:
        return top == "operant"
    return top in sys.stdlib_module_names or "site-packages" in function.__code__.co_filename


def _in_order(tree: ast.stmt) -> list[ast.AST]:
    body = getattr(tree, "body", [])
    nodes = [node for statement in body for node in ast.walk(statement)]
    return sorted((node for node in nodes if hasattr(node, "lineno")), key=lambda n: n.lineno)


def _locals(code: CodeType) -> set[str]:
    """Names that are variables of a function, or of a function within it."""
    names = {*code.co_varnames, *code.co_cellvars}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= _locals(part)
    return names


class _Reader:
    """Refuses what a statement or an expression of one function does."""

    def __init__(self, function: Looked, tree: ast.stmt) -> None:
        self.function = _plain(function)
        self.locals = _locals(function.__code__)
        self.bound = {}
        if isinstance(function, MethodType):
            self.bound[function.__code__.co_varnames[0]] = function.__self__
        self.aliases = {k: v for k, v in _assigned_once(tree).items() if k not in self.bound}
        names = [n for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names]
        self.imported = {name.asname or name.name: name.name for name in names}

    def refuse(self, node: ast.AST) -> None:
        match node:
            case ast.Try(handlers=[_, *_]) | ast.TryStar():
                self._fail(
                    node,
                    "`except` never runs in a compiled step, where nothing raises (x / 0.0 is "
                    "infinite); remove it and choose: where(y != 0.0, x / y, 0.0)",
                )
            case ast.Global(names=names):
                self._changes(node, f"global {', '.join(names)}")
            case ast.Nonlocal(names=names) if {*names} & {*self.function.__code__.co_freevars}:
                self._changes(node, f"nonlocal {', '.join(names)}")
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                self._refuse_targets(node, targets)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                self._refuse_targets(node, [target])
            case ast.Call():
                self._refuse_call(node)

    def _refuse_targets(self, node: ast.AST, targets: list[ast.expr]) -> None:
        for target in targets:
            if isinstance(target, ast.Tuple | ast.List):
                self._refuse_targets(node, target.elts)
            elif self._outlives(target):
                self._changes(node, ast.unparse(target))

    def _outlives(self, target: ast.expr) -> bool:
        part = isinstance(target, ast.Attribute | ast.Subscript)
        return part and self.value(_root(target)) is not MISSING

    def _refuse_call(self, node: ast.Call) -> None:
        callee = self.value(node.func)
        text = ast.unparse(node.func)
        if _speaks(callee):
            self._fail(
                node,
                f"{text}() would run while the class is defined and never in a compiled step; "
                "remove it, and print env.get_state() after env.step()",
            )
        if self._changes_by_call(node, callee):
            self._changes(node, f"{text}()")
        if (getattr(callee, "__module__", None) or _owner(callee)) in _CLOCKS:
            self._fail(
                node,
                f"{text}() would run while the class is defined: one constant in every compiled "
                "step; count steps in a field of State",
            )
        self._refuse_constant_draw(node, callee)

    def _changes_by_call(self, node: ast.Call, callee: object) -> bool:
        """Whether a call changes an object that outlives it: ``LOG.append(x)``, also by another
        name, ``list.append(LOG, x)`` and ``setattr(Cart, "last", x)``."""
        name = getattr(callee, "__name__", "")
        if isinstance(callee, BuiltinFunctionType) and isinstance(callee.__self__, _CHANGEABLE):
            return name in _CHANGES
        known = bool(node.args) and self.value(node.args[0]) is not MISSING
        if callee is builtins.setattr or callee is builtins.delattr:
            return known
        if getattr(callee, "__objclass__", None) in _CHANGEABLE:
            return known and name in _CHANGES
        match node.func:
            case ast.Attribute(value=ast.Subscript() as part, attr=attr) if attr in _CHANGES:
                return isinstance(self.value(_root(part)), (*_CHANGEABLE, tuple))
        return False

    def _refuse_constant_draw(self, node: ast.Call, callee: object) -> None:
        """``randint(0, 6)`` as other libraries have it would be 0 for ever."""
        from operant.lang import words

        better = {
            "uniform": "uniform(random[0], low, high)",
            "randint": "randint(random[0], n)",
            "normal": "normal(random[0], random[1])",
        }
        for name, instead in better.items():
            if callee is getattr(words, name) and node.args and _is_literal(node.args[0]):
                self._fail(
                    node,
                    f"{ast.unparse(node)} draws nothing: its first argument is one of the numbers "
                    f"in `random`; write {instead}",
                )

    def _changes(self, node: ast.AST, what: str) -> NoReturn:
        self._fail(
            node,
            f"`{what}` changes what outlives the call: it would run while the class is defined and "
            "never in a compiled step; put what must be remembered into State",
        )

    def _fail(self, node: ast.AST, message: str) -> NoReturn:
        line = node.lineno  # type: ignore[attr-defined]
        raise LanguageError(f"{self.function.__code__.co_filename}:{line}: {message}")

    def value(self, node: ast.expr) -> Any:
        """What a name outside the function stands for; `MISSING` for what is not known."""
        if isinstance(node, ast.Name):
            if node.id in self.imported:
                return sys.modules.get(self.imported[node.id], MISSING)
            if node.id in self.bound:
                return self.bound[node.id]
            if node.id in self.aliases:
                return self.value(self.aliases[node.id])
            return MISSING if node.id in self.locals else _outer(self.function, node.id)
        if isinstance(node, ast.Attribute):
            holder = self.value(node.value)
            known = (ModuleType, type, logging.Logger, *_GENERATORS, *_CHANGEABLE)
            if isinstance(holder, known) or _is_stream(holder):
                return getattr(holder, node.attr, MISSING)
            if type(holder).__module__ == self.function.__module__:  # of a class of the author's
                method = getattr(type(holder), node.attr, None)
                if isinstance(method, FunctionType):
                    return MethodType(method, holder)
                return (
                    vars(holder).get(node.attr, MISSING) if hasattr(holder, "__dict__") else MISSING
                )
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            holder = self.value(node.value)
            if isinstance(holder, list | dict | tuple):
                try:
                    holder = cast(Any, holder)
                    return holder[node.slice.value]
                except (LookupError, TypeError):
                    return MISSING
        return MISSING


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


def _assigned_once(tree: ast.stmt) -> dict[str, ast.expr]:
    """Variables that are only another name: assigned once, a name or a part of one."""
    stores: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            plain = isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript)
            stores.setdefault(node.targets[0].id, []).append(node.value if plain else None)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.setdefault(node.id, [])
    counts = Counter(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {
        name: values[0]
        for name, values in stores.items()
        if counts[name] == len(values) == 1 and values[0] is not None
    }


def _owner(callee: Any) -> str:
    """The module of a class whose method this is."""
    owner = getattr(callee, "__self__", None)
    return str(owner.__module__) if isinstance(owner, type) else ""


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    return isinstance(node, ast.Constant)


def _speaks(callee: Any) -> bool:
    if any(callee is word for word in _SPEAKING):
        return True
    owner = getattr(callee, "__self__", None)
    if isinstance(owner, logging.Logger) or _is_stream(owner):
        return True
    return isinstance(callee, FunctionType) and callee.__module__ == "logging"


def _is_stream(value: object) -> bool:
    return value is not None and (value is sys.stdout or value is sys.stderr)


def _draws(callee: Any) -> bool:
    if isinstance(getattr(callee, "__self__", None), _GENERATORS):
        return True
    module = getattr(callee, "__module__", None) or ""
    return callee is not MISSING and module.startswith(("random", "numpy.random"))
