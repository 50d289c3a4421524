"""How typed functions are written down: as Python for Numba, or as C++ for NVRTC and C compilers.

`operant.compiler.parsing.functions` decides what is said, a dialect how. Names and calls are the
same in both; a module of either begins with what they call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from operant.compiler.parsing.kinds import BOOL, FLOAT, INT, NOTHING, PARAMS, RANDOM, Array, Value

TYPES = {"float32": "float", "int32": "int", "uint8": "unsigned char", "bool": "unsigned char"}
TYPES |= {"int64": "long long"}
_WORDS = {"<<": "shift_left", ">>": "shift_right", "//": "floor_divide", "%": "floor_mod"}
_BITS = "&|^"
_NUMBERS = {FLOAT: "float", INT: "long long", BOOL: "bool"}


class Signature(NamedTuple):
    """A function to be written: its name, arguments with their kinds, variables and result."""

    name: str
    arguments: Sequence[tuple[str, Any]]
    variables: dict[str, Any]
    returns: Any


class Dialect(Protocol):
    """Writes what functions are made of. Lines come without indentation."""

    extra: tuple[str, ...]
    """Arguments that every function hands on."""

    def element(self, array: Array, pointer: str, flat: str) -> str:
        """An element, to be read or written."""

    def view(self, array: Array, pointer: str, flat: str) -> str:
        """What is reached from an element on."""

    def ordered(self, template: str, values: Sequence[Value]) -> str:
        """`template` with the values for ``{0}``, ``{1}``, ..., computed from left to right."""

    def integer(self, value: int) -> str:
        """A known int, of 64 bits."""

    def choice(self, test: str, a: str, b: str) -> str:
        """``a if test else b``."""

    def whole(self, sign: str, a: str, b: str) -> str:
        """Arithmetic of ints: 64 bits that wrap around, ``//`` and ``%`` as Python rounds."""

    def negative(self, value: str) -> str:
        """``-value`` of an int, which wraps around."""

    def simple(self, line: str) -> str:
        """A statement of one line."""

    def opening(self, word: str, test: str = "") -> str:
        """The line that opens a block: ``if``, ``else`` or ``while``."""

    def counting(self, name: str, limits: Sequence[str], number: int) -> list[str]:
        """The lines that open a loop over a range, whose step is known; `number` is its own."""

    def closing(self) -> list[str]:
        """The lines that close a block."""

    def returned(self, values: Sequence[str]) -> str:
        """``return`` of several values."""

    def unpacked(self, names: Sequence[str], call: str, number: int) -> list[str]:
        """The lines that give names to the results of a call."""

    def named(self, name: str, value: str) -> str:
        """The line that gives a name to a value."""

    def function(self, signature: Signature, lines: Sequence[str]) -> str:
        """A whole function; its lines are indented."""


class PythonText:
    """Python for Numba: an array is a pointer to its first element."""

    extra: tuple[str, ...] = ("trouble",)

    def element(self, array: Array, pointer: str, flat: str) -> str:
        """See `Dialect`."""
        return f"{pointer}[{flat}]"

    def view(self, array: Array, pointer: str, flat: str) -> str:
        """See `Dialect`."""
        if array.table:
            return f"{pointer}[{flat}:]"
        return f"shifted({pointer}, {flat})"

    def ordered(self, template: str, values: Sequence[Value]) -> str:
        """See `Dialect`."""
        return template.format(*[value.text for value in values])

    def integer(self, value: int) -> str:
        """See `Dialect`."""
        return str(value) if value >= 0 else f"({value})"

    def choice(self, test: str, a: str, b: str) -> str:
        """See `Dialect`."""
        return f"({a} if {test} else {b})"

    def whole(self, sign: str, a: str, b: str) -> str:
        """See `Dialect`."""
        if sign in _WORDS:
            return f"{_WORDS[sign]}({a}, {b})"
        if sign in _BITS:
            return f"({a} {sign} {b})"
        return f"i64(u64({a}) {sign} u64({b}))"  # Numba tells LLVM that signed ints do not overflow

    def negative(self, value: str) -> str:
        """See `Dialect`."""
        return f"i64(u64(0) - u64({value}))"

    def simple(self, line: str) -> str:
        """See `Dialect`."""
        return line

    def opening(self, word: str, test: str = "") -> str:
        """See `Dialect`."""
        return f"{word} {test}:" if test else f"{word}:"

    def counting(self, name: str, limits: Sequence[str], number: int) -> list[str]:
        """See `Dialect`."""
        return [f"for {name} in range({', '.join(limits)}):"]

    def closing(self) -> list[str]:
        """See `Dialect`."""
        return []

    def returned(self, values: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"return ({', '.join(values)},)"

    def unpacked(self, names: Sequence[str], call: str, number: int) -> list[str]:
        """See `Dialect`."""
        return [f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}"]

    def named(self, name: str, value: str) -> str:
        """See `Dialect`."""
        return f"{name} = {value}"

    def function(self, signature: Signature, lines: Sequence[str]) -> str:
        """See `Dialect`."""
        names = [name for name, _ in signature.arguments]
        heading = f"def {signature.name}({', '.join([*names, *self.extra])}):"
        return "\n".join([heading, *(lines or ["    pass"])]) + "\n"


class CText:
    """C++: the elements of an environment's arrays lie ``stride`` apart, beside its neighbours'."""

    extra: tuple[str, ...] = ("stride", "trouble")

    def __init__(self) -> None:
        self._structs: set[str] = set()

    def element(self, array: Array, pointer: str, flat: str) -> str:
        """See `Dialect`."""
        return f"{pointer}[({flat}) * stride]" if array.strided else f"{pointer}[{flat}]"

    def view(self, array: Array, pointer: str, flat: str) -> str:
        """See `Dialect`."""
        return f"({pointer} + ({flat}) * stride)" if array.strided else f"({pointer} + {flat})"

    def ordered(self, template: str, values: Sequence[Value]) -> str:
        """See `Dialect`. C++ computes operands and arguments in any order."""
        texts = [value.text for value in values]
        alive = [
            v
            for v in values
            if v.acts or (isinstance(v.kind, str) and v.kind in _NUMBERS and not v.known)
        ]
        if len(alive) < 2 or not any(value.acts for value in values):
            return template.format(*texts)
        steps = " ".join(f"auto v{k} = {text};" for k, text in enumerate(texts))
        result = template.format(*[f"v{k}" for k in range(len(texts))])
        return f"([&]() {{ {steps} return {result}; }}())"

    def integer(self, value: int) -> str:
        """See `Dialect`. A plain 1 has 32 bits, and 1 << 40 none of them."""
        if value == -(2**63):
            return "(-9223372036854775807LL - 1LL)"
        return f"{value}LL" if value >= 0 else f"({value}LL)"

    def choice(self, test: str, a: str, b: str) -> str:
        """See `Dialect`."""
        return f"({test} ? {a} : {b})"

    def whole(self, sign: str, a: str, b: str) -> str:
        """See `Dialect`."""
        if sign in _WORDS:
            return f"{_WORDS[sign]}({a}, {b})"
        return f"i64(u64({a}) {sign} u64({b}))"

    def negative(self, value: str) -> str:
        """See `Dialect`."""
        return f"i64(0 - u64({value}))"

    def simple(self, line: str) -> str:
        """See `Dialect`."""
        return ";" if line == "pass" else f"{line};"

    def opening(self, word: str, test: str = "") -> str:
        """See `Dialect`."""
        return f"{word} ({test}) {{" if test else f"{word} {{"

    def counting(self, name: str, limits: Sequence[str], number: int) -> list[str]:
        """See `Dialect`."""
        first, last, *steps = ["0", *limits] if len(limits) == 1 else limits
        step = steps[0] if steps else "1"
        sign = ">" if step.startswith("(-") else "<"
        k, end = f"k{number}", f"end{number}"
        start = f"long long {k} = {first}, {end} = {last}"
        own = "const long long " if name == "cell" else ""  # the others are the function's
        head = f"for ({start}; {k} {sign} {end}; {k} += {step}) {{"
        return [head, f"    {own}{name} = {k};"]

    def closing(self) -> list[str]:
        """See `Dialect`."""
        return ["}"]

    def returned(self, values: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"return {{{', '.join(values)}}};"

    def unpacked(self, names: Sequence[str], call: str, number: int) -> list[str]:
        """See `Dialect`."""
        parts = [f"auto {name} = parts{number}.part{k};" for k, name in enumerate(names)]
        return [f"auto parts{number} = {call};", *parts]

    def named(self, name: str, value: str) -> str:
        """See `Dialect`."""
        return f"auto {name} = {value};"

    def function(self, signature: Signature, lines: Sequence[str]) -> str:
        """See `Dialect`."""
        kinds = [*signature.arguments, ("stride", INT), ("trouble", "trouble")]
        arguments = ", ".join(f"{self.declared(kind)} {name}" for name, kind in kinds)
        before = ""
        if not isinstance(signature.returns, tuple):
            result = self.declared(signature.returns)
        else:
            result = f"Result_{'_'.join(signature.returns)}"
            parts = [f"{_NUMBERS[kind]} part{k};" for k, kind in enumerate(signature.returns)]
            if result not in self._structs:  # one for all functions that return the same kinds
                before = f"struct {result} {{ {' '.join(parts)} }};\n"
            self._structs.add(result)
        variables = [
            f"    {self.declared(kind)} {name};" for name, kind in signature.variables.items()
        ]
        head = f"{before}DEVICE {result} {signature.name}({arguments}) {{"
        return "\n".join([head, *variables, *lines, "}"]) + "\n"

    def declared(self, kind: Any) -> str:
        """The type of a kind."""
        if isinstance(kind, Array):
            const = "const " if kind.table or kind.fixed else ""
            return f"{const}{TYPES[kind.dtype]} *"
        special = {RANDOM: "unsigned *", PARAMS: "const float *", NOTHING: "void"}
        special |= {"trouble": "long long *"}
        return special.get(kind) or _NUMBERS[kind]


def tuple_text(values: Sequence[Value]) -> str:
    """Several values where their order alone matters."""
    return f"({', '.join(value.text for value in values)},)"
