"""``while`` loops that do not end: those that can be seen, and how many passes the others get."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MOST_PASSES = 1 << 24
"""Of one ``while`` in compiled code; more are taken for an endless loop."""
LOOKED_AT = 1024
"""A compiled loop asks every so many passes whether it has made too many: a power of two."""
ADVICE = "let the loop change what it asks for, or write for k in range(n) with a break"


def never_ends(node: ast.While) -> str:
    """Why a loop, once it has begun, goes on for ever; empty where that cannot be seen.

    It must have no way out, and its condition must read what nothing in it changes.
    """
    if leaves(node):
        return ""
    test = f"`while {ast.unparse(node.test)}`"
    if isinstance(node.test, ast.Constant):
        said = f"{test} has no break and no return, so it never ends; {ADVICE}"
        return said if node.test.value else ""
    asked = list(ast.walk(node.test))
    if any(isinstance(part, ast.Call) for part in asked):
        return ""
    body = [part for statement in node.body for part in ast.walk(statement)]
    written = {part.id for part in body if isinstance(part, ast.Name) and _is_store(part)}
    names = [part.id for part in asked if isinstance(part, ast.Name)]
    if written & set(names):
        return ""
    touched = any(
        isinstance(part, ast.Call) or (isinstance(part, ast.Subscript) and _is_store(part))
        for part in body
    )
    if touched and any(isinstance(part, ast.Subscript) for part in asked):
        return ""  # an array of the state, which may be the one that is written to
    what = " and ".join(dict.fromkeys(_read(node.test))) or "its condition"
    return f"{test} never ends once it has begun: nothing in it changes {what}; {ADVICE}"


def leaves(node: ast.While) -> bool:
    """Whether a loop has a way out: a break of its own, or a return."""
    return any(isinstance(part, ast.Return) for part in ast.walk(node)) or has_break(node)


def has_break(node: ast.While) -> bool:
    """Whether a loop has a break of its own, not only of loops in it."""
    return any(isinstance(part, ast.Break) for part in _own(node.body))


def _own(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If):
            yield from _own(statement.body)
            yield from _own(statement.orelse)


def _is_store(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _read(test: ast.expr) -> Iterator[str]:
    """What a condition reads, outermost first: elements and names."""
    if isinstance(test, ast.Subscript | ast.Name | ast.Attribute):
        yield ast.unparse(test)
        return
    for part in ast.iter_child_nodes(test):
        if isinstance(part, ast.expr):
            yield from _read(part)
