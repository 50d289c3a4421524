"""Expressions of an author's imperative function, typed and written for a compiler.

Every value is a float (float32), an int (int64) or a truth value. Where an int meets a float it
becomes one; nothing else changes kind by itself, so plain Python and compiled code agree to the
bit. What would make them differ is refused, with the line and what to write instead.
"""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from operant.lang.advice import LanguageError
from operant.lang.arrays import Cells
from operant.lang.integers import to_float32
from operant.lang.kinds import (
    BOOL,
    FLOAT,
    INT,
    NUMBERS,
    OUTSIDE,
    PARAMS,
    STATE,
    TEXT,
    Array,
    Value,
    described,
)
from operant.lang.names import array_name, part_name, state_name, variable_name
from operant.lang.outer import MISSING, outer_value

if TYPE_CHECKING:
    from operant.lang.functions import Library

_OPERATORS: dict[type[ast.operator], tuple[str, Any]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Any]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
_WHOLE = (ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)


class Expressions(ABC):
    """Writes the expressions of one function with arguments of known kinds."""

    def __init__(
        self, library: Library, function: FunctionType, arguments: dict[str, Any], first_line: int
    ) -> None:
        self.library = library
        self.function = function
        self.arguments = arguments
        self.variables: dict[str, str] = {}
        """The kinds of the function's own variables, as far as they are known."""
        self.views: dict[str, Array] = {}
        """Variables that stand for a part of an array."""
        self.bounds: dict[str, tuple[int, int]] = {}
        """Between which ints a variable of a loop runs."""
        self.assigned: set[str] = set()
        self._shift = first_line - 1

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Refuse a line."""
        raise LanguageError(f"{self.place(node)}: {message}")

    def place(self, node: ast.AST) -> str:
        """File and line of a piece of source."""
        line = getattr(node, "lineno", 1) + self._shift
        return f"{self.function.__code__.co_filename}:{line}"

    # Kinds ----------------------------------------------------------------------------------
    def number(self, node: ast.expr, kind: str | None = None, what: str = "this") -> Value:
        """An expression that must be a number; of `kind` if that is given, ints become floats."""
        value = self.visit(node)
        if value.kind not in NUMBERS:
            self.fail(node, f"{what} must be a number, got {described(value.kind)}")
        return value if kind is None else self.as_kind(node, value, kind, what)

    def as_kind(self, node: ast.AST, value: Value, kind: str, what: str) -> Value:
        """`value` as a `kind`: an int may become a float, nothing else changes."""
        if value.kind == kind:
            return value
        if (value.kind, kind) == (INT, FLOAT):
            if value.known:
                return constant(float(to_float32(value.value)))
            return self.combined("f32({0})", [value], FLOAT)
        advice = {FLOAT: "write to_float(x)", INT: "write to_int(x)", BOOL: "write x != 0"}
        wanted = described(kind)
        self.fail(node, f"{what} must be {wanted}, got {described(value.kind)}; {advice[kind]}")

    def constant(self, node: ast.AST, value: Any) -> Value:
        """A number that is known; ints have 64 bits."""
        if isinstance(value, bool | float | np.bool_):
            return constant(value)
        if not -(2**63) <= value < 2**63:
            self.fail(node, f"{int(value)} does not fit into 64 bits")
        return Value(self.library.dialect.integer(int(value)), INT, int(value))

    def condition(self, node: ast.expr) -> Value:
        """An expression that must be a truth value."""
        return self.number(node, BOOL, "a condition")

    def same(self, node: ast.expr, values: list[Value], what: str) -> list[Value]:
        """Numbers that must be alike: ints become floats where one of them is a float."""
        kinds = {value.kind for value in values}
        if len(kinds) > 1 and BOOL in kinds:
            self.fail(node, f"{what} mixes truth values and numbers; write to_int(x)")
        target = FLOAT if FLOAT in kinds else values[0].kind
        return [self.as_kind(node, value, target, what) for value in values]

    def combined(self, template: str, values: list[Value], kind: Any) -> Value:
        """A value made of others, which are computed from left to right."""
        acts = any(value.acts for value in values)
        return Value(self.library.dialect.ordered(template, values), kind, acts=acts)

    # Nodes ----------------------------------------------------------------------------------
    def visit(self, node: ast.expr) -> Value:
        """The text and kind of an expression."""
        folded = literal(node)
        if folded is not None:
            return self.constant(node, folded)
        match node:
            case ast.Constant(value=str() as text):
                return Value(repr(text), TEXT, text)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.BinOp():
                return self.binary(node, node.left, node.op, node.right)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BoolOp():
                return self.boolean(node)
            case ast.Compare():
                return self.compare(node)
            case ast.IfExp():
                return self.choice(node)
            case ast.Call():
                return self.call(node)
            case ast.Tuple(elts=elements) if elements:
                parts = tuple(self.number(element) for element in elements)
                kinds = tuple(part.kind for part in parts)
                return Value("", kinds, parts=parts)
        kind = type(node).__name__
        self.fail(node, f"compiled functions have no {kind}; use numbers, arrays and loops")

    def name(self, node: ast.expr, name: str) -> Value:
        """A variable, an argument, or something outside."""
        if name in self.variables or name in self.views:
            if name not in self.assigned:
                self.fail(node, f"{name} may have no value yet here; give it one before")
            if name in self.views:
                return Value(variable_name(name), self.views[name])
            return Value(variable_name(name), self.variables[name])
        if name in self.arguments:
            kind = self.arguments[name]
            if isinstance(kind, tuple):  # an action of several parts
                parts = tuple(Value(part_name(name, k), part) for k, part in enumerate(kind))
                return Value(name, kind, parts=parts)
            if kind == PARAMS:
                return Value("params", kind)
            if kind == STATE:
                return Value(state_name(list(self.arguments).index(name)), kind)
            return Value(variable_name(name), kind)
        if name in self.function.__code__.co_varnames:
            self.fail(node, f"{name} has no value yet here")
        try:
            value = outer_value(self.function, name)
        except TypeError as error:
            self.fail(node, f"{name} is {error}; tables hold numbers")
        if value is MISSING:
            self.fail(node, f"nothing is called {name} here (put helpers above the class)")
        return self.outside(node, name, value)

    def outside(self, node: ast.expr, name: str, value: Any) -> Value:
        """A constant, table, function or module."""
        if isinstance(value, bool | int | float | np.bool_):
            return self.constant(node, value)
        if isinstance(value, str):
            return Value(repr(value), TEXT, value)
        if isinstance(value, Cells):
            return Value(self.library.table(name, value), _table_kind(name, value))
        return Value(name, OUTSIDE, value)

    def attribute(self, node: ast.Attribute) -> Value:
        """``state.board``, ``params.gravity``, ``Ship.FUEL`` or ``lang.sin``."""
        base = self.visit(node.value)
        name = node.attr
        if base.kind == STATE:
            known = self.library.state
            if name not in known:
                self.fail(node, f"the state has no array {name!r}; it has {', '.join(known)}")
            return Value(array_name(base.text, name), known[name])
        if base.kind == PARAMS:
            return self.parameter(node, name)
        if base.kind == OUTSIDE and hasattr(base.value, name):
            value = getattr(base.value, name)
            if isinstance(value, float | np.ndarray | tuple | list):
                self.fail(node, f"write {name} as a constant of the module: {name.upper()} = ...")
            if isinstance(base.value, ModuleType) and base.value.__name__ in ("math", "numpy"):
                self.fail(node, f"use the words of operant.lang, not {ast.unparse(node)}")
            return self.outside(node, name, value)
        self.fail(node, f"{ast.unparse(node)} is not known when the function is compiled")

    def parameter(self, node: ast.Attribute, name: str) -> Value:
        """A float parameter is read when the function runs; others are constants."""
        params = self.library.params
        if not hasattr(params, name):
            known = ", ".join(params._fields) or "none"
            self.fail(node, f"there is no parameter {name!r}; there are: {known}")
        if name in self.library.float_params:
            return Value(f"params[{self.library.float_params.index(name)}]", FLOAT)
        return self.outside(node, name, getattr(params, name))

    def subscript(self, node: ast.Subscript) -> Value:
        """An element of an array, or a part of it that is an array itself."""
        base = self.visit(node.value)
        if base.parts:
            index = self.visit(node.slice)
            if not (index.known and index.kind == INT and 0 <= index.value < len(base.parts)):
                self.fail(node, f"a part is chosen by a constant from 0 to {len(base.parts) - 1}")
            part: Value = base.parts[index.value]
            return part
        if not isinstance(base.kind, Array):
            self.fail(node, f"only arrays have elements, not {described(base.kind)}")
        pointer, array = base.text, base.kind
        flat, rest = self.flat_index(node, array)
        if rest:
            label = f"a part of {array.label}"
            view = replace(array, shape=rest, label=label)
            text = self.library.dialect.view(array, pointer, flat.text)
            return Value(text, view, acts=base.acts or flat.acts)
        return self.element(base, flat)

    def element(self, array: Value, flat: Value) -> Value:
        """An element, read."""
        kind: Array = array.kind
        text = self.library.dialect.element(kind, array.text, flat.text)
        acts = array.acts or flat.acts
        if kind.kind == BOOL:
            return Value(f"({text} != 0)", BOOL, acts=acts)
        return Value(f"i64({text})" if kind.kind == INT else text, kind.kind, acts=acts)

    def flat_index(self, node: ast.Subscript, array: Array) -> tuple[Value, tuple[int, ...]]:
        """Where the element or part begins, and the shape of a part."""
        chosen = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(chosen) > len(array.shape):
            dimensions = len(array.shape)
            self.fail(node, f"{array.label} has {dimensions} dimensions, got {len(chosen)} indices")
        terms, values = [], []
        for dimension, part in enumerate(chosen):
            if isinstance(part, ast.Slice):
                self.fail(node, "slices are not compiled; write a loop, or array[:] = value")
            step = int(np.prod(array.shape[dimension + 1 :], dtype=np.int64))
            values.append(self.index(part, array, dimension))
            terms.append(f"{{{dimension}}}" + ("" if step == 1 else f" * {step}"))
        return self.combined(" + ".join(terms), values, INT), array.shape[len(chosen) :]

    def index(self, node: ast.expr, array: Array, dimension: int) -> Value:
        """An index, looked at when it is not sure to lie inside."""
        size = array.shape[dimension]
        value = self.number(node, INT, "an index")
        if value.known and not 0 <= value.value < size:
            self.fail(node, f"index {value.value} of {array.label} is outside 0..{size - 1}")
        low, high = self.bounds.get(getattr(node, "id", ""), (-1, -1))
        if value.known or (low >= 0 and high <= size):
            return value
        number = self.library.watch(self.place(node), array.label, size)
        return self.combined(f"inside({{0}}, {size}, {number}, trouble)", [value], INT)

    def binary(
        self, node: ast.expr, left: ast.expr, operation: ast.operator, right: ast.expr
    ) -> Value:
        """Arithmetic."""
        a, b = self.number(left), self.number(right)
        return self.arithmetic(node, a, operation, b)

    def arithmetic(self, node: ast.AST, a: Value, operation: ast.operator, b: Value) -> Value:
        """Arithmetic of two values."""
        if isinstance(operation, ast.Pow):
            self.fail(node, "powers are not compiled; write x * x, or exp(y * log(x))")
        if type(operation) not in _OPERATORS:
            self.fail(node, f"compiled functions have no {type(operation).__name__}")
        sign, python = _OPERATORS[type(operation)]
        kinds = {a.kind, b.kind}
        if kinds == {BOOL} and isinstance(operation, ast.BitAnd | ast.BitOr | ast.BitXor):
            # Not `and`: both are computed.
            return self.combined(f"(({{0}} {sign} {{1}}) != 0)", [a, b], BOOL)
        if BOOL in kinds:
            self.fail(node, f"{sign} of a truth value; write to_int(x) or to_float(x)")
        if FLOAT in kinds and isinstance(operation, _WHOLE):
            self.fail(node, f"{sign} is for ints; for floats write floor(a / b)")
        if kinds == {INT} and isinstance(operation, ast.Div):
            self.fail(node, "int / int: write to_float(a) / b, or a // b for a whole number")
        if kinds == {INT}:
            if b.known and b.value == 0 and sign in ("//", "%"):
                self.fail(node, f"{sign} by zero")
            if b.known and not 0 <= b.value < 64 and sign in ("<<", ">>"):
                self.fail(node, f"{sign} is by 0 to 63 bits, got {b.value}")
            if a.known and b.known:
                return self.constant(node, python(a.value, b.value))
            whole = self.library.dialect.whole(sign, "{0}", "{1}")
            return self.combined(whole, [a, b], INT)
        a, b = (self.as_kind(node, value, FLOAT, sign) for value in (a, b))
        return self.combined(f"({{0}} {sign} {{1}})", [a, b], FLOAT)

    def unary(self, node: ast.UnaryOp) -> Value:
        """``-x``, ``+x``, ``not x``."""
        if isinstance(node.op, ast.Not):
            value = self.condition(node.operand)
            return (
                constant(not value.value)
                if value.known
                else self.combined("(not {0})", [value], BOOL)
            )
        value = self.number(node.operand)
        if value.kind == BOOL:
            self.fail(node, "this is a truth value; write not x")
        if isinstance(node.op, ast.Invert) and value.kind != INT:
            self.fail(node, "~ is for ints")
        sign = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
        if value.known and value.kind == INT:
            results = {"-": -value.value, "+": value.value, "~": ~value.value}
            return self.constant(node, results[sign])
        if value.kind == INT and sign == "-":
            return self.combined(self.library.dialect.negative("{0}"), [value], INT)
        return self.combined(f"({sign}{{0}})", [value], value.kind)

    def boolean(self, node: ast.BoolOp) -> Value:
        """``a and b``."""
        parts = [self.condition(value) for value in node.values]
        word = "and" if isinstance(node.op, ast.And) else "or"
        text = f" {word} ".join(part.text for part in parts)  # in order in every dialect
        return Value(f"({text})", BOOL, acts=any(part.acts for part in parts))

    def compare(self, node: ast.Compare) -> Value:
        """``a < b``, also ``a < b < c``."""
        terms = [node.left, *node.comparators]
        if any(isinstance(part, ast.Call) for term in terms[1:-1] for part in ast.walk(term)):
            self.fail(node, "a call in the middle of a comparison; give its result a name")
        values = [self.visit(term) for term in terms]
        texts, results = [], []
        for k, operation in enumerate(node.ops):
            if type(operation) not in _COMPARISONS:
                self.fail(node, f"compiled functions have no {type(operation).__name__}")
            sign, python = _COMPARISONS[type(operation)]
            a, b = values[k], values[k + 1]
            if TEXT in (a.kind, b.kind) and not (a.kind == b.kind and sign in ("==", "!=")):
                self.fail(node, "text is compared with text, by == and !=")
            if a.known and b.known and OUTSIDE not in (a.kind, b.kind):
                results.append(bool(python(*_rounded(a.value, b.value))))
                texts.append(str(results[-1]))
                continue
            for term, value in ((terms[k], a), (terms[k + 1], b)):
                if value.kind not in NUMBERS:
                    self.fail(term, f"numbers are compared, not {described(value.kind)}")
            a, b = self.same(node, [a, b], "a comparison")
            texts.append(self.combined(f"({{0}} {sign} {{1}})", [a, b], BOOL).text)
        if len(results) == len(texts):
            return constant(all(results))
        acts = any(value.acts for value in values)
        return Value(texts[0] if len(texts) == 1 else f"({' and '.join(texts)})", BOOL, acts=acts)

    def choice(self, node: ast.IfExp) -> Value:
        """``a if condition else b``."""
        test = self.condition(node.test)
        if test.known:
            return self.visit(node.body if test.value else node.orelse)
        a, b = self.number(node.body), self.number(node.orelse)
        if a.kind != b.kind:
            self.fail(
                node, f"a choice between {described(a.kind)} and {described(b.kind)}; write 1.0"
            )
        text = self.library.dialect.choice(test.text, a.text, b.text)
        return Value(text, a.kind, acts=test.acts or a.acts or b.acts)

    @abstractmethod
    def call(self, node: ast.Call) -> Value:
        """A word, a draw of random numbers, or a function of the author's."""


def literal(node: ast.expr) -> Any:
    """The value of an expression of literal numbers, as Python computes it; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, bool | int | float) else None
    if not isinstance(node, ast.BinOp | ast.UnaryOp):
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.Constant):
            if isinstance(part.value, bool) or not isinstance(part.value, int | float):
                return None
        elif not isinstance(part, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop):
            return None
    try:
        value = eval(compile(ast.Expression(node), "<literal>", "eval"), {})
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if isinstance(value, bool | int | float) else None


def constant(value: Any) -> Value:
    """A float or truth value that is known."""
    if isinstance(value, bool | np.bool_):
        return Value(str(bool(value)), BOOL, bool(value))
    return Value(f"f32({float(value)!r})", FLOAT, float(value))


def _rounded(a: Any, b: Any) -> tuple[Any, Any]:
    """Two known values as they are compared: as float32 where one is a float."""
    if isinstance(a, float) or isinstance(b, float):
        return to_float32(a), to_float32(b)
    return a, b


def _table_kind(name: str, table: Cells) -> Array:
    dtype = {"f": "float32", "b": "bool"}.get(table.dtype.kind, "int64")
    return Array(dtype, table.shape, name, table=True)
