"""A state made of arrays: what an author declares, and what the functions are handed.

    class State(Arrays):
        board = uint8[8, 8]
        head = int32[2]
        energy = float32[1]

In ``reset``, ``step``, ``observe`` and ``action_mask`` such a state is written in place:
``state.board[y, x] = 1``. In plain Python its arrays are `Cells`: NumPy arrays whose elements come
out as `Int64`, bool and ``np.float32``, so that arithmetic is what compiled code does.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np

from operant.lang.advice import fail
from operant.lang.integers import Int64, to_float32

MAX_BYTES = 1 << 20
"""Of the state of one environment."""
_NUMBERS = (list, tuple, np.ndarray, int, float)
_KINDS = {"float32": "float", "int32": "int", "uint8": "int", "bool": "bool"}


class ArrayField(NamedTuple):
    """An array of the state: of what, and how large."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __getitem__(self, shape: Any) -> Any:
        """Refuses ``uint8[4][4]``."""
        name = {"bool": "boolean"}.get(self.dtype.name, self.dtype.name)
        sizes = ", ".join(map(str, (*self.shape, shape)))
        fail(f"an array has all its sizes in one pair of brackets; write {name}[{sizes}]")

    @property
    def kind(self) -> str:
        """What an element is to the author: "float", "int" or "bool"."""
        return _KINDS[self.dtype.name]

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)


class _ElementType:
    """``float32[16, 6]`` declares an array of 16 times 6."""

    def __init__(self, name: str, dtype: Any) -> None:
        self.__name__ = name
        self.__doc__ = f"``{name}[16, 6]`` declares an array in a state of arrays."
        self._dtype = np.dtype(dtype)

    def __getitem__(self, shape: int | tuple[int, ...]) -> Any:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        good = [isinstance(n, SupportsIndex) and not isinstance(n, bool) for n in sizes]
        if not sizes or not all(good) or min(n.__index__() for n in sizes) < 1:
            fail(f"{self!r} takes sizes of at least 1, such as {self!r}[8], got {shape}")
        return ArrayField(self._dtype, tuple(n.__index__() for n in sizes))

    def __call__(self, *given: Any) -> Any:
        """Refuses ``uint8(4)``."""
        fail(f"sizes stand in square brackets; write {self!r}[{', '.join(map(str, given)) or 1}]")

    def __repr__(self) -> str:
        return self.__name__


float32 = _ElementType("float32", np.float32)
int32 = _ElementType("int32", np.int32)
uint8 = _ElementType("uint8", np.uint8)
boolean = _ElementType("boolean", np.bool_)


class Arrays:
    """Base class of a state made of arrays; subclass it with one attribute per array.

    Raises:
        LanguageError: an attribute is not an array, there is none, or they are too large.
    """

    fields: ClassVar[dict[str, ArrayField]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields: dict[str, ArrayField] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get("fields", {})
        for name, value in vars(cls).items():
            if name.startswith("__"):
                continue
            if name == "fields" or (name[0] == "_" and isinstance(value, ArrayField)):
                fail(
                    f"{cls.__qualname__}.{name}: no array is called `fields` or begins with _; "
                    "write another name",
                    part=name,
                )
            if not isinstance(value, ArrayField) or name[0] == "_":
                fail(
                    f"{cls.__qualname__}.{name} must be an array such as float32[4], int32[2, 3], "
                    f"uint8[8] or boolean[1], got {value!r}{_as_array(name, value)}",
                    part=name,
                )
            fields[name] = value
        declared = [name for name in vars(cls).get("__annotations__", {}) if name not in fields]
        if declared:
            name = declared[0]
            said = vars(cls)["__annotations__"][name]
            if isinstance(said, ArrayField):
                said = f"{said.dtype.name}[{', '.join(map(str, said.shape))}]"
            said = said.__name__ if isinstance(said, type) else str(said)
            kind = {"int": "int32[1]", "bool": "boolean[1]", "float": "float32[1]"}.get(said, said)
            kind = kind if "[" in kind else f"{kind}[1]" if kind in _KINDS else "float32[4]"
            fail(f"an array is not annotated: write {name} = {kind}, not {name}: {said}", part=name)
        total = sum(field.size * field.dtype.itemsize for field in fields.values())
        if not fields or total > MAX_BYTES:
            fail(
                f"{cls.__qualname__} needs at least one array and at most {MAX_BYTES} bytes, "
                f"got {len(fields)} arrays of {total} bytes"
            )
        cls.fields = fields

    def __init__(self, *arrays: np.ndarray) -> None:
        """`arrays`, one per field and of its shape and dtype, are written to, not copied."""
        for name, array in zip(self.fields, arrays, strict=True):
            object.__setattr__(self, name, labelled(array, f"state.{name}"))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a state's arrays stay where they are: write state.{name}[...] = ..., not "
            f"state.{name} = ..."
        )


class Cells(np.ndarray):
    """An array whose elements are `Int64`, bool or ``np.float32``.

    NumPy's own ``int32 * float32`` is a float64; an `Int64` times a float32 is a float32, as it is
    in compiled code. Indices count from the start only.
    """

    label: str = "a table"
    """What it is called in messages."""

    def __array_finalize__(self, array: Any) -> None:
        self.label = getattr(array, "label", self.label)

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(_inside(self, index))
        if isinstance(value, np.ndarray | np.float32):
            return value
        return bool(value) if isinstance(value, np.bool_) else Int64(value)

    def __repr__(self) -> str:  # NumPy's own counts from the end
        return repr(np.asarray(self))

    def __str__(self) -> str:
        return str(np.asarray(self))

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self), spec)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, int) and self.dtype == np.float32:
            value = to_float32(value)
        try:
            super().__setitem__(_inside(self, index), value)
        except OverflowError:
            text = too_large(str(value), self.label, self.dtype.name)
            raise OverflowError(text) from None


_WIDER = {"uint8": "declare it int32, or write clip(x, 0, 255)"}


def _inside(array: Cells, index: Any) -> Any:
    places = index if isinstance(index, tuple) else (index,)
    for axis, (place, size) in enumerate(zip(places, array.shape, strict=False)):
        if isinstance(place, int | np.integer) and not 0 <= place < size:
            label = axis_label(array.label, axis, array.ndim)
            raise IndexError(outside(int(place), label, size))
    return index


def axis_label(label: str, axis: int, dimensions: int) -> str:
    """What an index is of: ``axis 1 of state.board``, or the array where it has one axis only."""
    return label if dimensions == 1 else f"axis {axis} of {label}"


def outside(index: int, label: str, size: int) -> str:
    """What is said of an index outside an array while a game runs, and what to write."""
    return (
        f"index {index} of {label} is outside 0..{size - 1}; ask before with `if`, or write "
        f"clip(x, 0, {size - 1})"
    )


def too_large(value: str, label: str, dtype: str) -> str:
    """What is said of an int that an array cannot hold while a game runs, and what to write."""
    limits, advice = np.iinfo(dtype), _WIDER.get(dtype, "write clip(x, low, high)")
    held = f"which is {dtype}: {limits.min} to {limits.max}"
    return f"{value} does not fit into {label}, {held}; {advice}"


def labelled(array: np.ndarray, label: str) -> Cells:
    """The same memory as functions see it, and what it is called in messages."""
    cells = array.view(Cells)
    cells.label = label
    return cells


def as_cells(array: np.ndarray) -> Cells:
    """A table of numbers as functions see it: float32, int64 or bool; a copy.

    Raises:
        TypeError: it holds something else.
    """
    kinds: dict[str, Any] = {"f": np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}
    if array.dtype.kind not in kinds:
        raise TypeError(f"an array of {array.dtype}")
    if array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any():
        raise TypeError("an array with numbers beyond 64 bits")
    table = array.astype(kinds[array.dtype.kind]).view(Cells)
    table.flags.writeable = False
    return table


def _as_array(name: str, value: object) -> str:
    """How to declare what was written as numbers or as a type; empty for anything else."""
    if isinstance(value, _ElementType):
        return f"; write {name} = {value!r}[1]"
    kinds = {float: "float32", int: "int32", bool: "boolean"}
    if isinstance(value, type) and value in kinds:
        return f"; write {name} = {kinds[value]}[1]"
    if not isinstance(value, _NUMBERS):
        return ""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        return ""
    names = {"f": "float32", "i": "int32", "u": "uint8", "b": "boolean"}
    if array.size == 0 or array.dtype.kind not in names:
        return ""
    sizes = ", ".join(map(str, array.shape or (1,)))
    return f"; write {name} = {names[array.dtype.kind]}[{sizes}], and its first values in reset()"
