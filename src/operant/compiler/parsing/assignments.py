"""Assignments in an imperative function: to variables, to elements of arrays, to several."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from operant.compiler.names import variable_name
from operant.compiler.parsing.array_advice import loops, near
from operant.compiler.parsing.calls import Calls
from operant.compiler.parsing.kinds import (
    BOOL,
    FLOAT,
    INT,
    NOTHING,
    NUMBERS,
    OUTSIDE,
    PARAMS,
    STATE,
    TEXT,
    Array,
    Value,
    described,
)

_CASTS = {"float32": "f32({})", "int32": "i32({})", "uint8": "u8({})", "bool": "u8({})"}
_CASTS["int64"] = "i64({})"
_NARROW = {"uint8": ("uint8",), "int32": ("int32", "uint8")}
"""Of arrays whose elements have fewer bits than an int, the dtypes of what always fits."""
_DECLARED = {FLOAT: "float32", INT: "int32", BOOL: "boolean"}


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
            self.fail(node, f"{name} stands for an array elsewhere; use a new name")
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
        if isinstance(target, ast.Tuple | ast.List):
            self.unpack(node, target, value)
        elif isinstance(value.kind, Array) and isinstance(target, ast.Name):
            known = self.views.setdefault(target.id, value.kind)
            if target.id in self.variables or hashable(known) != hashable(value.kind):
                self.fail(node, f"{target.id} stands for something else elsewhere; use a new name")
            self.assigned.add(target.id)
            self.emit(f"{variable_name(target.id)} = {value.text}")
        else:
            text = self.target(target, value)
            self.emit(text)

    def unpack(self, node: ast.stmt, target: ast.Tuple | ast.List, value: Value) -> None:
        """Several at a time: all values are known before the first is written."""
        kinds = value.kind if isinstance(value.kind, tuple) else ()
        starred = any(isinstance(part, ast.Starred) for part in target.elts)
        if starred or len(kinds) != len(target.elts):
            self.no_unpacking(node, target, value)
        number = len(self.lines)
        names = [f"part{k}_{number}" for k in range(len(kinds))]
        if value.parts:
            for name, part in zip(names, value.parts, strict=True):
                self.add(self.library.dialect.named(name, part.text))
        else:
            self.add(*self.library.dialect.unpacked(names, value.text, number))
        for name, kind, place in zip(names, kinds, target.elts, strict=True):
            self.emit(self.target(place, Value(name, kind)))

    def no_unpacking(self, node: ast.stmt, target: ast.Tuple | ast.List, value: Value) -> NoReturn:
        """Refuse ``a, b = array`` and numbers of names that do not fit."""
        names = ", ".join(map(ast.unparse, target.elts))
        text = f"{len(target.elts)} names for {described(value.kind)}"
        if isinstance(value.kind, Array) and isinstance(node, ast.Assign):
            array, count = ast.unparse(node.value), len(target.elts)
            parts = ", ".join(f"{array}[{k}]" for k in range(count))
            self.fail(node, f"{text}; write {names} = {parts}")
        self.fail(node, f"{text}; write as many names as there are values, without *")

    def target(self, target: ast.expr, value: Value) -> str:
        """The line that writes `value`."""
        if isinstance(value.kind, Array):
            self.no_copy(target, value.kind)
        if value.kind not in NUMBERS:
            self.no_variable(target, value)
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
                    self.no_elements(target, array)
                flat, rest, reach = self.flat_index(target, array.kind)
                if rest and not array.kind.table:
                    part = described(replace(array.kind, shape=rest))
                    text = ast.unparse(target)
                    self.fail(target, f"{text} is {part}; write {text}[:] = value to fill it")
                return self.stored(target, array, flat.text, value, reach)
        self.no_target(target, f"= {'value' if not value.known else value.value}", value.kind)

    def no_target(self, target: ast.expr, change: str, kind: Any) -> NoReturn:
        """Refuse to write to what is neither a variable nor an element: ``state.moves += 1``."""
        text = ast.unparse(target)
        if not isinstance(target, ast.Attribute):
            self.fail(target, f"{text} cannot be written to; write to a variable or an element")
        owner = self.visit(target.value)
        if owner.kind == STATE and target.attr not in self.library.state:
            known = ", ".join(self.library.state)
            new = f"{target.attr} = {_DECLARED.get(kind, 'int32')}[1]"
            self.fail(
                target,
                f"the state has no array {target.attr!r}; it has {known}"
                f"{near(target.attr, self.library.state)}; or add {new} to State and write "
                f"{text}[0] {change}",
            )
        if owner.kind == STATE:
            shape = self.library.state[target.attr].shape
            first = f"{text}[{', '.join('0' * len(shape))}] {change}"
            whole = f", or {text}[:] {change} for all of it" if change[0] == "=" else ""
            more = f" (or another index{whole})" if math.prod(shape) > 1 else ""
            sizes = described(self.library.state[target.attr])
            self.fail(target, f"{text} is {sizes} and stays where it is; write {first}{more}")
        if owner.kind == PARAMS:
            self.fail(target, f"parameters do not change; keep {target.attr} in State")
        self.fail(target, f"{text} cannot be written to; what changes is in State")

    def no_copy(self, target: ast.expr, array: Array) -> NoReturn:
        """Refuse ``state.a = state.b`` and ``obs[:] = state.x``."""
        base = target.value if isinstance(target, ast.Subscript) else target
        place, heads = loops(array.shape)
        source = array.label if "part of" not in array.label else "array"
        self.fail(
            target,
            f"an array is copied with a loop, element by element: {heads} "
            f"{ast.unparse(base)}[{place}] = {source}[{place}]",
        )

    def no_variable(self, target: ast.expr, value: Value) -> NoReturn:
        """Refuse to give a name to what is no number."""
        name, got = ast.unparse(target), described(value.kind)
        if isinstance(value.kind, tuple) and not isinstance(target, ast.Name):
            parts = ", ".join(f"{name}[{k}]" for k in range(len(value.kind)))
            advice = f"write the elements: {parts} = ..."
        elif isinstance(value.kind, tuple):
            names = ", ".join(f"{name}{k}" for k in range(len(value.kind)))
            advice = f"give each part a name: {names} = ..."
        elif value.kind == NOTHING:
            got, advice = "nothing, which the call returns,", "call it on a line of its own"
        elif value.kind == TEXT:
            advice = "there is no text in compiled code; write numbers (LEFT, RIGHT = 0, 1)"
        elif value.kind == OUTSIDE:
            got, advice = f"a {type(value.value).__name__}", "use it by its own name"
        else:
            advice = "use it by its own name"
        self.fail(target, f"{got} cannot be kept in a variable; {advice}")

    def stored(
        self, node: ast.AST, array: Value, flat: str, value: Value, reach: tuple[slice, ...] = ()
    ) -> str:
        """Write an element; `reach` are the indices that it may have, of all axes without it."""
        if array.kind.table:
            label = array.kind.label
            self.fail(node, f"{label} is a constant; what changes is in State: name = int32[8]")
        if array.kind.fixed:
            text = "observe() and action_mask() only look at the state; write to it in step()"
            self.fail(node, text)
        value = self.as_kind(node, value, array.kind.kind, f"an element of {array.kind.label}")
        self.refuse_too_large(node, array.kind, value)
        value = self.fitting(node, array.kind, value)
        self.library.note_store(array.kind, reach)
        place = self.library.dialect.element(array.kind, array.text, flat)
        return f"{place} = {_CASTS[array.kind.dtype].format(value.text)}"

    def refuse_too_large(self, node: ast.AST, array: Array, value: Value) -> None:
        """Refuse a known int that its array cannot hold."""
        if array.kind != INT or not value.known or array.dtype == "int64":
            return
        low, high = int_limits(array.dtype)
        if not low <= value.value <= high:
            wider = ", or declare it int32" if array.dtype == "uint8" else ""
            text = f"{value.value} does not fit into {array.label}, which is {array.dtype}"
            self.fail(node, f"{text}: {low} to {high}; write a number in that range{wider}")

    def fitting(self, node: ast.AST, array: Array, value: Value) -> Value:
        """An int that its array can hold, looked at when that is not sure."""
        if array.dtype not in _NARROW or value.known or value.fits in _NARROW[array.dtype]:
            return value
        number = self.library.watch(self.place(node), array.label, dtype=array.dtype)
        low, high = (self.library.dialect.integer(limit) for limit in int_limits(array.dtype))
        looked_at = self.combined(f"fitting({{0}}, {low}, {high}, {number}, trouble)", [value], INT)
        return replace(looked_at, fits=array.dtype)

    def fill(self, node: ast.AST, array: Value, value: Value) -> str:
        """``array[:] = value``; both are computed once."""
        if not isinstance(array.kind, Array):
            self.fail(node, f"{described(array.kind)} cannot be filled; only arrays can")
        if not value.known:
            value = self.as_kind(node, value, array.kind.kind, f"an element of {array.kind.label}")
            value = self.kept(self.fitting(node, array.kind, value))
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
        return Value(name, value.kind, fits=value.fits)

    def augment(self, node: ast.AugAssign) -> None:
        """``x += 1``, also of an element."""
        target = node.target
        if isinstance(target, ast.Subscript):
            self.augment_element(node, target)
            return
        if not isinstance(target, ast.Name):
            change = ast.unparse(node).removeprefix(ast.unparse(target)).strip()
            self.no_target(target, change, self.visit(node.value).kind)
        old = self.name(target, target.id)
        if old.kind not in NUMBERS:
            self.no_number(target, old, f"what {ast.unparse(node)} changes")
        value = self.arithmetic(node, old, node.op, self.number(node.value))
        self.emit(self.target(target, value))

    def augment_element(self, node: ast.AugAssign, target: ast.Subscript) -> None:
        """``array[i] += value``: the index is computed once, and before the value, which may call
        what changes it."""
        if any(isinstance(part, ast.Call) for part in ast.walk(target.value)):
            self.fail(node, "a call in what is written to; give its result a name first")
        array = self.visit(target.value)
        if not isinstance(array.kind, Array):
            self.no_elements(target, array)
        flat, rest, reach = self.flat_index(target, array.kind)
        if rest:
            self.no_number(target, Value("", replace(array.kind, shape=rest)), "what is changed")
        array, flat = self.kept(array), self.kept(flat)
        value = self.arithmetic(node, self.element(array, flat), node.op, self.number(node.value))
        self.emit(self.stored(target, array, flat.text, value, reach))


def int_limits(dtype: str) -> tuple[int, int]:
    """The least and the largest int of a dtype."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def hashable(kind: Any) -> Any:
    """A kind as a key: what a function is called with, whatever it is called."""
    if not isinstance(kind, Array):
        return kind
    return (kind.dtype, kind.shape, kind.strided, kind.table, kind.fixed)
