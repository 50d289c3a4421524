"""What an expression of a compiled function is: its text, its kind, and its value if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOAT, INT, BOOL = "float", "int", "bool"
STATE, RANDOM, PARAMS, OUTSIDE, TEXT, NOTHING = (
    "state",
    "random",
    "params",
    "outside",
    "text",
    "nothing",
)
NUMBERS = (FLOAT, INT, BOOL)

NO_VALUE = object()


@dataclass(frozen=True)
class Array:
    """An array: of what, and how large. `strided`: neighbours are apart, by ``stride`` elements."""

    dtype: str
    shape: tuple[int, ...]
    label: str
    strided: bool = False
    table: bool = False
    """Of constants."""
    fixed: bool = False
    """Not to be written to here."""

    @property
    def kind(self) -> str:
        """What an element is."""
        return {"float32": FLOAT, "bool": BOOL}.get(self.dtype, INT)


@dataclass(frozen=True)
class Value:
    """An expression. `value` is what it is known to be, a number, text or thing outside."""

    text: str
    kind: Any
    value: Any = NO_VALUE
    parts: tuple[Value, ...] = ()
    """Of a tuple, whose kind is the tuple of its parts' kinds."""
    acts: bool = False
    """Whether it draws random numbers or may write to memory: its order among others matters."""
    fits: str = ""
    """The dtype of an array that an int is sure to fit into; empty if that is not known."""

    @property
    def known(self) -> bool:
        """Whether its value is known when the function is compiled."""
        return self.value is not NO_VALUE


def described(kind: Any) -> str:
    """A kind in words."""
    if isinstance(kind, Array):
        return f"an array of {' x '.join(map(str, kind.shape))}"
    if isinstance(kind, tuple):
        return f"a tuple of {len(kind)}"
    if kind in (FLOAT, BOOL):
        return f"a {kind}"
    words = {INT: "an int", NOTHING: "nothing", TEXT: "text", RANDOM: "the random numbers"}
    words |= {PARAMS: "the parameters", OUTSIDE: "something that is no number"}
    return words.get(kind, f"the {kind}")
