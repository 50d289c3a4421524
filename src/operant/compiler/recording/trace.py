"""Recording a function: call it with symbols, keep what it computed.

A `Symbol` stands for one number of one environment. Arithmetic on symbols adds nodes to a
`Program`; equal nodes are recorded once. What cannot be recorded (``if`` on a symbol, ``math.sin``,
``and``) raises `LanguageError` with the author's file and line and what to write instead.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.compiler.recording.refusals import Refusals, refuse_text
from operant.lang.advice import brackets_advice, fail, missing_brackets, truth_advice
from operant.lang.batch import factors_of_power

FLOAT, INT, BOOL = "float", "int", "bool"
NODE_LIMIT = 20_000  # an unrolled loop beyond this would compile for minutes


@dataclass(frozen=True, slots=True)
class Node:
    """One recorded operation: `args` index earlier nodes, `value` is a constant or a name."""

    op: str
    args: tuple[int, ...]
    dtype: str
    value: float | int | bool | str | None = None


@dataclass
class Program:
    """A recorded function: `nodes` in order of computation, `outputs` as indices of nodes."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict, repr=False)

    def add(
        self,
        op: str,
        args: tuple[int, ...],
        dtype: str,
        value: float | int | bool | str | None = None,
    ) -> Symbol:
        """The symbol of this operation, recorded now or found among the recorded ones."""
        # repr tells 0.0 from -0.0 and 1 from 1.0 from True, which compare equal.
        key = (op, args, dtype, repr(value))
        index = self._known.get(key)
        if index is None:
            if len(self.nodes) >= NODE_LIMIT:
                fail(
                    f"the function unrolls to more than {NODE_LIMIT} operations; "
                    "shorten the Python loop (its passes are all written out)"
                )
            index = self._known[key] = len(self.nodes)
            self.nodes.append(Node(op, args, dtype, value))
        return Symbol(self, index, dtype)

    def input(self, name: str, dtype: str) -> Symbol:
        """A new named input."""
        self.inputs.append(name)
        return self.add("input", (), dtype, name)

    def constant(self, value: float | int | bool) -> Symbol:
        """A constant; its Python type gives its dtype. Floats are rounded to float32."""
        if isinstance(value, bool):
            return self.add("constant", (), BOOL, value)
        if isinstance(value, int):
            if not -(2**31) <= value < 2**31:
                fail(f"the integer {value} does not fit in 32 bits")
            return self.add("constant", (), INT, value)
        return self.add("constant", (), FLOAT, float(np.float32(value)))

    def signature(self) -> tuple[object, ...]:
        """What was recorded, comparable: equal signatures compute the same."""
        # repr, as in `add`: a NaN is not equal to itself
        nodes = tuple((n.op, n.args, n.dtype, repr(n.value)) for n in self.nodes)
        return (nodes, tuple(self.outputs))


def as_symbol(program: Program, value: object) -> Symbol:
    """`value` as a symbol of `program`: a Python or NumPy number becomes a constant."""
    if isinstance(value, Symbol):
        if value.program is not program:
            fail("a value of another call was kept and used; compute it again in this function")
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float):
        return program.constant(value)
    if isinstance(value, np.ndarray):
        fail("a NumPy array meets a number; write the components out one by one")
    hint = ""
    if value is None:
        hint = "; values are never None (does a helper lack its `return`?)"
    if isinstance(value, tuple | list):
        hint = "; compute each number on its own"
    if hasattr(value, "_fields"):
        name = value._fields[0]
        hint = f"; choose field by field: where(condition, a.{name}, b.{name})"
    if type(value).__name__ == "_tuplegetter":  # MyEnv.Params.gravity
        fail("a field is read from the argument: state.x or params.x, not from the class")
    if isinstance(value, str):
        hint = "; number the cases 0, 1, 2"
    if isinstance(value, enum.Enum):
        kind = type(value).__name__
        hint = f"; write {kind}.{value.name}.value, or make it class {kind}(enum.IntEnum)"
    fail(f"expected a number, got {described(value)}{hint}")


def described(value: object) -> str:
    """What came where something else was expected, in words: no recorded operations."""
    if isinstance(value, Symbol):
        return _a(value.dtype)
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        inner = ", ".join(described(part).removeprefix("a ").removeprefix("an ") for part in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return _a(type(value).__name__)


def _a(noun: str) -> str:
    """A noun with its article."""
    return f"an {noun}" if noun[:1].lower() in "aeio" else f"a {noun}"


def cast(symbol: Symbol, dtype: str) -> Symbol:
    """`symbol` converted to `dtype`; constants are converted now."""
    if symbol.dtype == dtype:
        return symbol
    node = symbol.node
    if node.op == "constant":
        convert: Callable[[Any], Any] = {FLOAT: float, INT: int, BOOL: bool}[dtype]
        return symbol.program.constant(convert(node.value))
    return symbol.program.add(f"to_{dtype}", (symbol.index,), dtype)


def common(symbols: Sequence[Symbol], what: str) -> list[Symbol]:
    """The symbols at one dtype: floats win over ints; truth values mix with nothing."""
    dtypes = {s.dtype for s in symbols}
    if BOOL in dtypes and len(dtypes) > 1:
        fail(f"{what} mixes a truth value with a number; convert it: to_float(condition)")
    if FLOAT in dtypes:
        return [cast(s, FLOAT) for s in symbols]
    return list(symbols)


def record(op: str, *values: object, dtype: str | None = None) -> Symbol:
    """Record `op` on values brought to one dtype; the result has `dtype`, or theirs."""
    program = next(v.program for v in values if isinstance(v, Symbol))
    symbols = common([as_symbol(program, v) for v in values], f"`{op}`")
    return program.add(op, tuple(s.index for s in symbols), dtype or symbols[0].dtype)


def record_float(op: str, *values: object) -> Symbol:
    """Record `op` on values converted to float; the result is a float."""
    program = next(v.program for v in values if isinstance(v, Symbol))
    symbols = [as_symbol(program, v) for v in values]
    for symbol in symbols:
        if symbol.dtype == BOOL:
            fail(f"`{op}` of a truth value; convert it: to_float(condition)")
    return program.add(op, tuple(cast(s, FLOAT).index for s in symbols), FLOAT)


_SYMBOLS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "less": "<",
    "less_equal": "<=",
}
_TRUTH_ADVICE = "write to_float(condition) or where(condition, a, b)"


def _where(condition: object, a: object, b: object) -> Symbol:
    program = next(v.program for v in (condition, a, b) if isinstance(v, Symbol))
    chooser = as_symbol(program, condition)
    if chooser.dtype != BOOL:
        fail(f"where() chooses by a truth value, got {described(chooser)}; write x != 0")
    first, second = common([as_symbol(program, v) for v in (a, b)], "where()")
    if chooser.node.op == "constant":
        return first if chooser.node.value else second
    if first.index == second.index:
        return first
    return program.add("where", (chooser.index, first.index, second.index), first.dtype)


_WORDS: dict[str, Callable[..., Symbol]] = {
    "where": _where,
    "minimum": lambda a, b: record("minimum", a, b),
    "maximum": lambda a, b: record("maximum", a, b),
    "logical_not": lambda condition: ~condition,
    "to_float": lambda x: cast(x, FLOAT),
    "to_int": lambda x: cast(x, INT),
    "bits_of": lambda x: record("bits_of", x, dtype=INT),
    "float_of": lambda bits: record("float_of", bits, dtype=FLOAT),
}
"""Words that are no functions of floats."""


class Symbol(Refusals):
    """A number of one environment whose value is not known while the function is recorded."""

    __slots__ = ("dtype", "index", "program")
    __hash__ = Refusals.__hash__  # == records a comparison, so it cannot be a key

    def __init__(self, program: Program, index: int, dtype: str) -> None:
        self.program = program
        self.index = index
        self.dtype = dtype

    @property
    def node(self) -> Node:
        """The operation that computes this symbol."""
        return self.program.nodes[self.index]

    def word(self, name: str, *values: object) -> Symbol:
        """See `operant.lang.recorded.Recorded`."""
        special = _WORDS.get(name)
        return record_float(name, *values) if special is None else special(*values)

    def __repr__(self) -> str:
        refuse_text()
        return f"<{self.dtype} {self.node.op} #{self.index}>"

    # Arithmetic -----------------------------------------------------------------------------
    def _arithmetic(self, op: str, other: object, swap: bool = False) -> Symbol:
        left, right = (other, self) if swap else (self, other)
        if BOOL in (self.dtype, getattr(other, "dtype", None)) or isinstance(other, bool):
            fail(f"`{_SYMBOLS.get(op, op)}` on a truth value; {_TRUTH_ADVICE}")
        return record(op, left, right)

    def __add__(self, other: object) -> Symbol:
        return self._arithmetic("add", other)

    def __radd__(self, other: object) -> Symbol:
        return self._arithmetic("add", other, swap=True)

    def __sub__(self, other: object) -> Symbol:
        return self._arithmetic("subtract", other)

    def __rsub__(self, other: object) -> Symbol:
        return self._arithmetic("subtract", other, swap=True)

    def __mul__(self, other: object) -> Symbol:
        return self._arithmetic("multiply", other)

    def __rmul__(self, other: object) -> Symbol:
        return self._arithmetic("multiply", other, swap=True)

    def __truediv__(self, other: object) -> Symbol:
        return record_float("divide", self, other)

    def __rtruediv__(self, other: object) -> Symbol:
        return record_float("divide", other, self)

    def __floordiv__(self, other: object) -> Symbol:
        return self._floor_divide(self, other)

    def __rfloordiv__(self, other: object) -> Symbol:
        return self._floor_divide(other, self)

    def _floor_divide(self, left: object, right: object) -> Symbol:
        left, right = self._divided("//", left, right)
        if left.dtype == FLOAT:
            return record("floor", left / right)
        return record("floor_divide", left, right)

    def __mod__(self, other: object) -> Symbol:
        return self._mod(self, other)

    def __rmod__(self, other: object) -> Symbol:
        return self._mod(other, self)

    def _mod(self, left: object, right: object) -> Symbol:
        left, right = self._divided("%", left, right)
        if left.dtype == FLOAT:
            return left - record("floor", left / right) * right
        return record("mod", left, right)

    def _divided(self, sign: str, *values: object) -> list[Symbol]:
        symbols = [as_symbol(self.program, value) for value in values]
        if BOOL in (symbol.dtype for symbol in symbols):
            fail(f"`{sign}` on a truth value; {_TRUTH_ADVICE}")
        return common(symbols, f"`{sign}`")

    def __pow__(self, exponent: object) -> Symbol:
        factors = factors_of_power(exponent)
        if factors == 0:
            return record_float("sqrt", self)
        result = self
        for _ in range(factors - 1):
            result = result * self
        return result

    def __rpow__(self, base: object) -> Symbol:
        fail("`**` with a variable exponent; write exp(y * log(x)) for a positive x")

    def __neg__(self) -> Symbol:
        if self.dtype == BOOL:
            fail("`-` of a truth value; write logical_not(condition)")
        return record("negative", self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        if self.dtype == BOOL:
            fail("abs() of a truth value")
        return record("abs", self)

    # Comparisons and truth values -----------------------------------------------------------
    def __lt__(self, other: object) -> Symbol:
        return record("less", self, other, dtype=BOOL)

    def __le__(self, other: object) -> Symbol:
        return record("less_equal", self, other, dtype=BOOL)

    def __gt__(self, other: object) -> Symbol:
        return record("less", other, self, dtype=BOOL)

    def __ge__(self, other: object) -> Symbol:
        return record("less_equal", other, self, dtype=BOOL)

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return record("equal", self, other, dtype=BOOL)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return record("not_equal", self, other, dtype=BOOL)

    def _bitwise(self, op: str, other: object) -> Symbol:
        other = as_symbol(self.program, other)
        if FLOAT in (self.dtype, other.dtype) or self.dtype != other.dtype:
            better = missing_brackets()
            if better:
                fail(brackets_advice(better))
            sign = {"and": "&", "or": "|", "xor": "^"}[op]
            fail(
                f"`{sign}` needs two truth values or two ints, got {self.dtype} and {other.dtype}; "
                f"write comparisons in brackets: (a > 0) {sign} (b > 0)"
            )
        return record(op, self, other)

    def __and__(self, other: object) -> Symbol:
        return self._bitwise("and", other)

    __rand__ = __and__

    def __or__(self, other: object) -> Symbol:
        return self._bitwise("or", other)

    __ror__ = __or__

    def __xor__(self, other: object) -> Symbol:
        return self._bitwise("xor", other)

    __rxor__ = __xor__

    def __invert__(self) -> Symbol:
        if self.dtype != BOOL:
            fail(f"`~` needs a truth value, got {_a(self.dtype)}; write -x - 1 for an int")
        return record("not", self)

    def __lshift__(self, other: object) -> Symbol:
        return self._shift("shift_left", other)

    def __rshift__(self, other: object) -> Symbol:
        return self._shift("shift_right", other)

    def _shift(self, op: str, other: object) -> Symbol:
        if self.dtype != INT or not isinstance(other, int) or not 0 <= other < 32:
            fail("a shift needs an integer and a constant distance from 0 to 31")
        return record(op, self, other)

    def __bool__(self) -> bool:
        inputs = {str(node.value) for node in _sources(self) if node.op == "input"}
        fail(truth_advice(bool(inputs) and all(name.startswith("p_") for name in inputs)))


def _sources(symbol: Symbol) -> list[Node]:
    """The operations that a symbol depends on."""
    nodes, seen, open_ = symbol.program.nodes, set(), [symbol.index]
    while open_:
        index = open_.pop()
        if index not in seen:
            seen.add(index)
            open_ += nodes[index].args
    return [nodes[index] for index in seen]
