"""What a recorded function would do once, at the class statement, and no compiled step does again.

``print``, ``except``, ``is`` and a list that is appended to leave no trace in what is recorded, so
they are found in the text of the author's functions, and of the functions that these call.
"""

from __future__ import annotations

import ast
import builtins
import logging
import pprint
import warnings
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NoReturn

from operant.compiler.outer import MISSING, plain_function
from operant.compiler.recording.followed import (
    CHANGEABLE,
    GENERATORS,
    Names,
    followed,
    is_library,
    is_stream,
    root,
)
from operant.compiler.recording.identity import Numbers, identity_advice
from operant.lang.advice import LanguageError

_CHANGES = {"append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "clear", "sort"}
_CHANGES |= {"reverse", "update", "setdefault", "popitem", "add", "discard", "fill"}
_CLOCKS = ("time", "datetime")
_SPEAKING = (builtins.print, builtins.input, builtins.open, pprint.pprint, warnings.warn)


def refuse_side_effects(functions: Iterable[FunctionType]) -> None:
    """Look through an author's functions and those they call.

    Raises:
        LanguageError: one prints, catches exceptions, compares a number by ``is``, or changes what
            outlives the call.
    """
    functions = list(functions)
    for names in followed(functions):
        reader = _Reader(names, of_env=names.function in functions)
        for node in _in_order(names.tree):
            reader.refuse(node)


def drawing_place(functions: Iterable[FunctionType]) -> str:
    """Where a number is drawn, and not from `random`: ``file:line: call()``; empty if nowhere."""
    for names in followed(functions):
        file = names.function.__code__.co_filename
        for node in _in_order(names.tree):
            if isinstance(node, ast.Call) and _draws(names.value(node.func)):
                return f"{file}:{node.lineno}: {ast.unparse(node.func)}()"
    return ""


def _in_order(tree: ast.stmt) -> list[ast.AST]:
    body = getattr(tree, "body", [])
    nodes = [node for statement in body for node in ast.walk(statement)]
    return sorted((node for node in nodes if hasattr(node, "lineno")), key=lambda n: n.lineno)


class _Reader:
    """Refuses what a statement or an expression of one function does."""

    def __init__(self, names: Names, of_env: bool) -> None:
        self.function = names.function
        self.value = names.value
        self._numbers = Numbers(names) if of_env else None

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
            case ast.AugAssign(target=ast.Name() as target):
                if isinstance(self.value(target), CHANGEABLE):
                    self._changes(node, ast.unparse(node))
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                self._refuse_targets(node, [target])
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                if self._is_of_a_library(method):
                    self._changes(node, f"{ast.unparse(method)}()")
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], left=left, comparators=[right]):
                if self._numbers and (self._numbers.has(left) or self._numbers.has(right)):
                    self._fail(node, identity_advice(node))
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
        return part and self.value(root(target)) is not MISSING

    def _is_of_a_library(self, method: ast.Attribute) -> bool:
        """Whether a call whose result nobody takes is of an object outside, and of a class that is
        not looked through: ``QUEUE.put(x)``."""
        holder = self.value(method.value)
        if holder is MISSING or isinstance(holder, ModuleType | type):
            return False
        called = self.value(method)
        if called is MISSING:
            return callable(getattr(type(holder), method.attr, None))
        function = plain_function(getattr(called, "__func__", None))
        return not _speaks(called) and function is not None and is_library(function)

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
        if isinstance(callee, BuiltinFunctionType) and isinstance(callee.__self__, CHANGEABLE):
            return name in _CHANGES
        known = bool(node.args) and self.value(node.args[0]) is not MISSING
        if callee is builtins.setattr or callee is builtins.delattr:
            return known
        if getattr(callee, "__objclass__", None) in CHANGEABLE:
            return known and name in _CHANGES
        match node.func:
            case ast.Attribute(value=ast.Subscript() as part, attr=attr) if attr in _CHANGES:
                return isinstance(self.value(root(part)), (*CHANGEABLE, tuple))
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


def _owner(callee: Any) -> str:
    """The module of a class whose method this is."""
    owner = getattr(callee, "__self__", None)
    return str(owner.__module__) if isinstance(owner, type) else ""


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    return isinstance(node, ast.Constant)


def _speaks(callee: Any) -> bool:
    if any(callee is word for word in _SPEAKING):
        return True
    owner = getattr(callee, "__self__", None)
    if isinstance(owner, logging.Logger) or is_stream(owner):
        return True
    return isinstance(callee, FunctionType) and callee.__module__ == "logging"


def _draws(callee: Any) -> bool:
    if isinstance(getattr(callee, "__self__", None), GENERATORS):
        return True
    module = getattr(callee, "__module__", None) or ""
    return callee is not MISSING and module.startswith(("random", "numpy.random"))
