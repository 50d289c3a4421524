"""Expressions of an author's imperative function, typed and written for a compiler.

Every value is a float (float32), an int (int64) or a truth value. Where an int meets a float it
becomes one; nothing else changes kind by itself, so plain Python and compiled code agree to the
bit. What would make them differ is refused, with the line and what to write instead.
"""

from __future__ import annotations

import ast
import enum
import operator
from abc import abstractmethod
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from operant.compiler.parsing.array_advice import (
    dict_advice,
    expression_advice,
    membership_advice,
    tuples_advice,
)
from operant.compiler.parsing.kinds import (
    BOOL,
    FLOAT,
    INT,
    NUMBERS,
    OUTSIDE,
    PARAMS,
    RANDOM,
    STATE,
    TEXT,
    Array,
    Value,
    described,
)
from operant.compiler.parsing.lookups import Lookups, constant, literal
from operant.lang.advice import bracketed, brackets_advice
from operant.lang.arrays import axis_label
from operant.lang.integers import to_float32

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

_JOINED = {"&": "and", "|": "or"}
"""How truth values are joined in the language."""


class Expressions(Lookups):
    """Writes the expressions of one function with arguments of known kinds."""

    # Kinds ----------------------------------------------------------------------------------
    def number(self, node: ast.expr, kind: str | None = None, what: str = "") -> Value:
        """An expression that must be a number; of `kind` if that is given, ints become floats.

        `what` it is for, where the expression alone does not say it.
        """
        value = self.visit(node)
        what = what or f"`{ast.unparse(node)}`"
        if value.kind not in NUMBERS:
            self.no_number(node, value, what)
        return value if kind is None else self.as_kind(node, value, kind, what)

    def no_number(self, node: ast.expr, value: Value, what: str) -> NoReturn:
        """Refuse what is no number, where one is needed."""
        kind, text = value.kind, ast.unparse(node)
        got = described(kind)
        match kind:
            case Array() if np.prod(kind.shape) == 1:
                advice = f"write {text}[{', '.join('0' * len(kind.shape))}]"
            case Array():
                names = ", ".join(["k", "j", "i", "h"][: len(kind.shape)])
                advice = f"write one element, {text}[{names}], or a loop"
            case tuple():
                names = ", ".join("abcdefgh"[: len(kind)])
                advice = f"write {names} = {text} first"
            case "state":
                advice = f"write {text}.{next(iter(self.library.state))}[...]"
            case "random":
                advice = f"write {text}.uniform() or {text}.integers(n)"
            case "params":
                advice = f"write {text}.{next(iter(self.library.params._fields), 'name')}"
            case "nothing":
                advice = "let it return a number, or call it on a line of its own"
            case "text":
                advice = "there is no text in compiled code; write numbers (LEFT, RIGHT = 0, 1)"
            case _ if isinstance(value.value, enum.Enum):
                name = type(value.value).__name__
                got, advice = f"a member of {name}", f"make it class {name}(enum.IntEnum)"
            case _:
                got = f"a {type(value.value).__name__}"
                advice = "constants are numbers, or tables of numbers, above the class"
        self.fail(node, f"{what} must be a number, got {got}; {advice}")

    def as_kind(self, node: ast.AST, value: Value, kind: str, what: str) -> Value:
        """`value` as a `kind`: an int may become a float, nothing else changes."""
        if value.kind == kind:
            return value
        if (value.kind, kind) == (INT, FLOAT):
            if value.known:
                return constant(float(to_float32(value.value)))
            return self.combined("f32({0})", [value], FLOAT)
        read = isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store)
        text = ast.unparse(node) if read else "x"  # what is written to is not what came
        whole = f"({text})" if isinstance(node, ast.BinOp | ast.IfExp) else text
        advice = {FLOAT: f"to_float({text})", INT: f"to_int({text})", BOOL: f"{whole} != 0"}[kind]
        if value.known and (value.kind != FLOAT or float(value.value).is_integer()):
            advice = str({FLOAT: float, INT: int, BOOL: bool}[kind](value.value))
        wanted = described(kind)
        self.fail(node, f"{what} must be {wanted}, got {described(value.kind)}; write {advice}")

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
        self.fail(node, expression_advice(node))

    def subscript(self, node: ast.Subscript) -> Value:
        """An element of an array, or a part of it that is an array itself."""
        base = self.visit(node.value)
        if base.parts:
            index = self.visit(node.slice)
            if not (index.known and index.kind == INT and 0 <= index.value < len(base.parts)):
                text = f"a part is chosen by a constant from 0 to {len(base.parts) - 1}"
                self.fail(node, f"{text}; what an index chooses is in a table above the class")
            part: Value = base.parts[index.value]
            return part
        if not isinstance(base.kind, Array):
            self.no_elements(node, base)
        pointer, array = base.text, base.kind
        flat, rest, _ = self.flat_index(node, array)
        if rest:
            label = f"a part of {array.label}"
            view = replace(array, shape=rest, label=label)
            text = self.library.dialect.view(array, pointer, flat.text)
            return Value(text, view, acts=base.acts or flat.acts)
        return self.element(base, flat)

    def no_elements(self, node: ast.Subscript, base: Value) -> NoReturn:
        """Refuse an index into what is no array."""
        text, got = ast.unparse(node.value), described(base.kind)
        advice = "constants that are indexed are tables of numbers above the class: (1, 2, 3)"
        if isinstance(base.value, dict):
            got, advice = "a dict", dict_advice(text, base.value, node.slice)
        elif base.kind == OUTSIDE:
            got = f"a {type(base.value).__name__}"
        elif base.kind in (STATE, PARAMS):
            advice = f"write {text}.{getattr(node.slice, 'value', 'name')}"
        elif base.kind == RANDOM:
            advice = f"numbers are drawn one after the other: {text}.uniform()"
        elif base.kind in NUMBERS:
            advice = f"write {text} alone"
        elif isinstance(base.kind, tuple):
            names = ", ".join("abcdefgh"[: len(base.kind)])
            advice = f"write {names} = {text} first"
        self.fail(node, f"only arrays have elements, and {text} is {got}; {advice}")

    def element(self, array: Value, flat: Value) -> Value:
        """An element, read."""
        kind: Array = array.kind
        text = self.library.dialect.element(kind, array.text, flat.text)
        acts = array.acts or flat.acts
        if kind.kind == BOOL:
            return Value(f"({text} != 0)", BOOL, acts=acts)
        if kind.kind == INT:
            return Value(f"i64({text})", INT, acts=acts, fits=kind.dtype)
        return Value(text, kind.kind, acts=acts)

    def flat_index(
        self, node: ast.Subscript, array: Array
    ) -> tuple[Value, tuple[int, ...], tuple[slice, ...]]:
        """Where the element or part begins, the shape of a part, and what each index may be."""
        chosen = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(chosen) > len(array.shape):
            sizes = described(array)
            names = ", ".join(["k", "j", "i", "h"][: len(array.shape)])
            text = f"{array.label} is {sizes}, got {len(chosen)} indices"
            self.fail(node, f"{text}; write {ast.unparse(node.value)}[{names}]")
        terms, values, reach = [], [], []
        for dimension, part in enumerate(chosen):
            if isinstance(part, ast.Slice):
                self.no_slice(node, chosen, array)
            step = int(np.prod(array.shape[dimension + 1 :], dtype=np.int64))
            values.append(self.index(part, array, dimension))
            reach.append(self.reach(part, values[-1]))
            terms.append(f"{{{dimension}}}" + ("" if step == 1 else f" * {step}"))
        flat = self.combined(" + ".join(terms), values, INT)
        return flat, array.shape[len(chosen) :], tuple(reach)

    def reach(self, node: ast.expr, value: Value) -> slice:
        """Which elements an index may choose: those between the limits of a loop, or all."""
        if value.known:
            return slice(value.value, value.value + 1)
        low, high = self.bounds.get(getattr(node, "id", ""), (0, None))
        return slice(max(low, 0), high)

    def no_slice(self, node: ast.Subscript, chosen: list[ast.expr], array: Array) -> NoReturn:
        """Refuse a slice: a row is a view, everything else a loop."""
        text = ast.unparse(node.value)
        before = [ast.unparse(part) for part in chosen if not isinstance(part, ast.Slice)]
        whole = all(
            isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None
            for part in chosen[len(before) :]
        )
        part = chosen[0]
        limits = str(array.shape[0])
        if isinstance(part, ast.Slice) and part.step is None and (part.lower or part.upper):
            low = ast.unparse(part.lower) if part.lower else "0"
            limits = f"{low}, {ast.unparse(part.upper) if part.upper else array.shape[0]}"
        advice = f"for k in range({limits}): ... {text}[k] ..."
        if whole:  # board[y, :], or all of it
            row = text + (f"[{', '.join(before)}]" if before else "")
            advice = f"{row}[:] = value to fill it, or {row} alone to hand it to a function"
        elif len(chosen) > 1:
            names = iter(["k", "j", "i", "h"])
            places, heads = [], ""
            for one, size in zip(chosen, array.shape, strict=False):
                sliced = isinstance(one, ast.Slice)
                places.append(next(names) if sliced else ast.unparse(one))
                heads += f"for {places[-1]} in range({size}): " if sliced else ""
            advice = f"{heads}... {text}[{', '.join(places)}] ..."
        self.fail(node, f"the slice {ast.unparse(node)} is not compiled; write {advice}")

    def index(self, node: ast.expr, array: Array, dimension: int) -> Value:
        """An index, looked at when it is not sure to lie inside."""
        size = array.shape[dimension]
        label = axis_label(array.label, dimension, len(array.shape))
        value = self.number(node, INT, "an index")
        if value.known and not 0 <= value.value < size:
            advice = (
                f"the last is {size - 1}" if value.value < 0 else "write a number in that range"
            )
            text = f"index {value.value} of {label} is outside 0..{size - 1}; {advice}"
            self.fail(node, text)
        low, high = self.bounds.get(getattr(node, "id", ""), (-1, -1))
        if value.known or (low >= 0 and high <= size):
            return value
        number = self.library.watch(self.place(node), label, size)
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
            self.fail(node, f"{ast.unparse(node)}: `@` is not compiled; write a loop that adds up")
        sign, python = _OPERATORS[type(operation)]
        kinds = {a.kind, b.kind}
        if kinds == {BOOL} and isinstance(operation, ast.BitAnd | ast.BitOr | ast.BitXor):
            # Not `and`: both are computed.
            return self.combined(f"(({{0}} {sign} {{1}}) != 0)", [a, b], BOOL)
        if BOOL in kinds:
            compared = getattr(node, "compared_in", None)
            if compared is not None:  # action == 2 & (x > 3)
                self.fail(node, brackets_advice(bracketed(compared, _JOINED)))
            self.fail(node, f"{sign} of a truth value; write to_int(x) or to_float(x) of it")
        if FLOAT in kinds and isinstance(operation, _WHOLE):
            instead = "a - b * floor(a / b)" if sign == "%" else "floor(a / b)"
            self.fail(node, f"{sign} is for ints; for floats write {instead}")
        if kinds == {INT} and isinstance(operation, ast.Div):
            self.fail(node, "int / int: write to_float(a) / b, or a // b for a whole number")
        if kinds == {INT}:
            if b.known and b.value == 0 and sign in ("//", "%"):
                self.fail(node, f"{ast.unparse(node)} divides by zero")
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
            self.fail(node, f"{ast.unparse(node.operand)} is a truth value; write not x")
        if isinstance(node.op, ast.Invert) and value.kind != INT:
            self.fail(node, "~ is for ints; for a truth value write not x")
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
        if getattr(node, "lacks_brackets", False):
            self.fail(node, brackets_advice(bracketed(node, _JOINED)))
        terms = [node.left, *node.comparators]
        if any(isinstance(part, ast.Call) for term in terms[1:-1] for part in ast.walk(term)):
            self.fail(node, "a call in the middle of a comparison; give its result a name")
        if any(type(operation) not in _COMPARISONS for operation in node.ops):
            self.fail(node, membership_advice(node))
        if tuples := tuples_advice(node):
            self.fail(node, tuples)
        values = [self.visit(term) for term in terms]
        texts, results = [], []
        for k, operation in enumerate(node.ops):
            sign, python = _COMPARISONS[type(operation)]
            a, b = values[k], values[k + 1]
            if TEXT in (a.kind, b.kind) and not (a.kind == b.kind and sign in ("==", "!=")):
                text = "text is compared with text only, by == and != (a parameter's, say)"
                self.fail(node, f"{text}; number what you compare: LEFT, RIGHT = 0, 1")
            if a.known and b.known and OUTSIDE not in (a.kind, b.kind):
                results.append(bool(python(*_rounded(a.value, b.value))))
                texts.append(str(results[-1]))
                continue
            for term, value in ((terms[k], a), (terms[k + 1], b)):
                if value.kind not in NUMBERS:
                    self.no_number(term, value, "what is compared")
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
            kinds = f"{described(a.kind)} and {described(b.kind)}"
            advice = "write 1.0, not 1" if {a.kind, b.kind} == {INT, FLOAT} else "write to_int(x)"
            self.fail(node, f"a choice between {kinds}; {advice}")
        text = self.library.dialect.choice(test.text, a.text, b.text)
        return Value(text, a.kind, acts=test.acts or a.acts or b.acts)

    @abstractmethod
    def call(self, node: ast.Call) -> Value:
        """A word, a draw of random numbers, or a function of the author's."""


def _rounded(a: Any, b: Any) -> tuple[Any, Any]:
    """Two known values as they are compared: as float32 where one is a float."""
    if isinstance(a, float) or isinstance(b, float):
        return to_float32(a), to_float32(b)
    return a, b
