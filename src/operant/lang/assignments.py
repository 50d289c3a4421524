"""Assignments in an imperative function: to variables, to elements of arrays, to several."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from operant.lang.calls import Calls
from operant.lang.kinds import NUMBERS, Array, Value, described
from operant.lang.names import variable_name

_CASTS = {"float32": "f32({})", "int32": "i32({})", "uint8": "u8({})", "bool": "u8({})"}
_CASTS["int64"] = "i64({})"


class Assignments(Calls):
    """Writes assignments, line by line."""

    lines: list[str]
    """The function's, so far."""
    depth: int
    """How far they are indented."""
    temporaries: int
    """Values that were given a name."""

    def emit(self, line: str) -> None:
        """Add a statement of one line."""
        self.add(self.library.dialect.simple(line))

    def add(self, *lines: str) -> None:
        """Add lines as they are."""
        self.lines += ["    " * self.depth + line for line in lines]

    def declare(self, node: ast.AST, name: str, kind: str) -> None:
        """Note the kind of a variable; it keeps it."""
        if name in self.arguments:
            self.fail(node, f"the argument {name} is given another value; use a new name")
        if name in self.views:
            self.fail(node, f"{name} stands for an array elsewhere")
        known = self.variables.setdefault(name, kind)
        if known != kind:
            self.fail(
                node,
                f"{name} is {described(known)} elsewhere and {described(kind)} here; "
                f"a variable keeps its kind (begin with 0.0, or write to_float, to_int)",
            )

    def assign(self, node: ast.stmt, target: ast.expr, source: ast.expr) -> None:
        """``name = value``, ``array[i] = value``, ``a, b = b, a`` or ``a, b = function()``."""
        value = self.visit(source)
        if isinstance(target, ast.Tuple):
            self.unpack(node, target, value)
        elif isinstance(value.kind, Array) and isinstance(target, ast.Name):
            known = self.views.setdefault(target.id, value.kind)
            if target.id in self.variables or hashable(known) != hashable(value.kind):
                self.fail(node, f"{target.id} stands for something else elsewhere")
            self.assigned.add(target.id)
            self.emit(f"{variable_name(target.id)} = {value.text}")
        else:
            text = self.target(target, value)
            self.emit(text)

    def unpack(self, node: ast.stmt, target: ast.Tuple, value: Value) -> None:
        """Several at a time: all values are known before the first is written."""
        kinds = value.kind if isinstance(value.kind, tuple) else ()
        if len(kinds) != len(target.elts):
            self.fail(node, f"{len(target.elts)} names for {described(value.kind)}")
        number = len(self.lines)
        names = [f"part{k}_{number}" for k in range(len(kinds))]
        if value.parts:
            for name, part in zip(names, value.parts, strict=True):
                self.add(self.library.dialect.named(name, part.text))
        else:
            self.add(*self.library.dialect.unpacked(names, value.text, number))
        for name, kind, place in zip(names, kinds, target.elts, strict=True):
            self.emit(self.target(place, Value(name, kind)))

    def target(self, target: ast.expr, value: Value) -> str:
        """The line that writes `value`."""
        if isinstance(value.kind, Array):
            self.fail(target, "an array is copied with a loop, element by element")
        if value.kind not in NUMBERS:
            self.fail(target, f"{described(value.kind)} cannot be kept in a variable")
        match target:
            case ast.Name(id=name):
                self.declare(target, name, value.kind)
                self.assigned.add(name)
                return f"{variable_name(name)} = {value.text}"
            case ast.Subscript(value=base, slice=ast.Slice(lower=None, upper=None, step=None)):
                return self.fill(target, self.visit(base), value)
            case ast.Subscript(value=base):
                array = self.visit(base)
                if not isinstance(array.kind, Array):
                    self.fail(target, f"{ast.unparse(base)} cannot be written to")
                flat, rest = self.flat_index(target, array.kind)
                if rest:
                    self.fail(target, f"this is an array of {rest}; write array[:] = value")
                return self.stored(target, array, flat.text, value)
        self.fail(target, f"{ast.unparse(target)} cannot be written to")

    def stored(self, node: ast.AST, array: Value, flat: str, value: Value) -> str:
        """Write an element."""
        if array.kind.table:
            self.fail(node, f"{array.kind.label} is a constant")
        if array.kind.fixed:
            self.fail(node, "observe() and action_mask() look at the state; only step() changes it")
        value = self.as_kind(node, value, array.kind.kind, f"an element of {array.kind.label}")
        place = self.library.dialect.element(array.kind, array.text, flat)
        return f"{place} = {_CASTS[array.kind.dtype].format(value.text)}"

    def fill(self, node: ast.AST, array: Value, value: Value) -> str:
        """``array[:] = value``; both are computed once."""
        if not isinstance(array.kind, Array):
            self.fail(node, f"{described(array.kind)} cannot be written to")
        if not value.known:
            value = self.kept(value)
        line = self.stored(node, self.kept(array), "cell", value)
        size = int(np.prod(array.kind.shape))
        self.add(*self.library.dialect.counting("cell", [str(size)], len(self.lines)))
        self.depth += 1
        self.emit(line)
        self.depth -= 1
        self.add(*self.library.dialect.closing())
        return "pass"

    def kept(self, value: Value) -> Value:
        """What is computed now, under a name: it is used more than once."""
        if value.text.isidentifier() or value.text.isdecimal():
            return value
        self.temporaries += 1
        name = f"kept{self.temporaries}"
        self.add(self.library.dialect.named(name, value.text))
        return Value(name, value.kind)

    def augment(self, node: ast.AugAssign) -> None:
        """``x += 1``, also of an element."""
        target = node.target
        if isinstance(target, ast.Subscript):
            self.augment_element(node, target)
            return
        if not isinstance(target, ast.Name):
            self.fail(node, f"{ast.unparse(target)} cannot be written to")
        old = self.name(target, target.id)
        if old.kind not in NUMBERS:
            self.fail(node, f"{described(old.kind)} has no {ast.unparse(node)}")
        value = self.arithmetic(node, old, node.op, self.number(node.value))
        self.emit(self.target(target, value))

    def augment_element(self, node: ast.AugAssign, target: ast.Subscript) -> None:
        """``array[i] += value``: the index is computed once, and before the value, which may call
        what changes it."""
        if any(isinstance(part, ast.Call) for part in ast.walk(target.value)):
            self.fail(node, "a call in what is written to; give its result a name first")
        array = self.visit(target.value)
        if not isinstance(array.kind, Array):
            self.fail(node, f"{ast.unparse(target.value)} cannot be written to")
        flat, rest = self.flat_index(target, array.kind)
        if rest:
            self.fail(node, f"an array of {rest} has no {ast.unparse(node)}")
        array, flat = self.kept(array), self.kept(flat)
        value = self.arithmetic(node, self.element(array, flat), node.op, self.number(node.value))
        self.emit(self.stored(target, array, flat.text, value))


def hashable(kind: Any) -> Any:
    """A kind as a key: what a function is called with, whatever it is called."""
    if not isinstance(kind, Array):
        return kind
    return (kind.dtype, kind.shape, kind.strided, kind.table, kind.fixed)
