"""Records: what a kernel is told, by name.

A record is a row of int64: numbers as they are, memory and functions by their addresses. Its fields
are declared once; the host fills it in by name, and a kernel reads ``record.name``:

    LAYER = RecordSpec("layer", number("inputs"), array("bias", float32))
    ...
    layer = record_at(LAYER, address)
    layer.bias[0]  # a pointer to float32

A name that is not declared raises on both sides: on the host when the record is filled in, in a
kernel when it is compiled.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator, override"

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.core.imputils import lower_constant, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model, typeof_impl

WORD_BYTES = 8


class Kind(Enum):
    """What a field is to a kernel."""

    NUMBER = "number"
    """An int64."""
    ARRAY = "array"
    """A pointer to numbers of one type."""
    MEMORY = "memory"
    """An address, int64: of memory that is read as several types, or passed on."""
    FUNCTION = "function"
    """The address of a compiled function, uint64."""


@dataclass(frozen=True)
class Field:
    """A field of a record. `dtype`: Numba's type of an array's numbers."""

    name: str
    kind: Kind
    dtype: Any = None
    optional: bool = False
    """Whether a kernel that does not ask for it may run without: it is 0 then."""

    @property
    def type(self) -> Any:
        """Numba's type of what a kernel reads."""
        if self.kind is Kind.ARRAY:
            return types.CPointer(self.dtype)
        return types.uint64 if self.kind is Kind.FUNCTION else types.int64


def number(name: str, *, optional: bool = False) -> Field:
    """A number."""
    return Field(name, Kind.NUMBER, None, optional)


def array(name: str, dtype: Any, *, optional: bool = False) -> Field:
    """Numbers of one type, a Numba type."""
    return Field(name, Kind.ARRAY, dtype, optional)


def memory(name: str, *, optional: bool = False) -> Field:
    """Memory of any kind."""
    return Field(name, Kind.MEMORY, None, optional)


def function(name: str, *, optional: bool = False) -> Field:
    """A compiled function."""
    return Field(name, Kind.FUNCTION, None, optional)


class RecordSpec:
    """The fields of a record, in order.

    Raises:
        ValueError: two fields have one name.
    """

    def __init__(self, name: str, *fields: Field) -> None:
        self.name, self.fields = name, fields
        names = [field.name for field in fields]
        twice = sorted({field for field in names if names.count(field) > 1})
        if twice:
            raise ValueError(f"{name}: {', '.join(twice)} declared twice; fields need own names")
        self.index = dict(zip(names, range(len(names)), strict=True))

    @property
    def bytes(self) -> int:
        """How many a record has."""
        return WORD_BYTES * len(self.fields)

    def check_names(self, names: Any) -> None:
        """Raise TypeError for a name that is not declared."""
        unknown = sorted(set(names) - set(self.index))
        if unknown:
            raise TypeError(
                f"{self.name}: no field {', '.join(unknown)}; declared are {', '.join(self.index)}"
            )

    def pack(self, **values: int) -> list[int]:
        """The words of a record, all fields given by name; memory by its address.

        Raises:
            TypeError: a field is missing, or is not declared.
        """
        self.check_names(values)
        missing = [name for name in self.index if name not in values]
        if missing:
            raise TypeError(f"{self.name}: {', '.join(missing)} not given")
        return [int(values[name]) for name in self.index]


class _SpecType(types.Type):
    """A `RecordSpec`: a value to Numba, nothing to LLVM."""

    def __init__(self, spec: RecordSpec) -> None:
        self.spec = spec
        super().__init__(f"RecordSpec({spec.name})")

    @property
    def key(self) -> Any:
        return self.spec.name, self.spec.fields


class _RecordType(types.Type):
    """A pointer to a record's words."""

    dtype = types.int64

    def __init__(self, spec: RecordSpec) -> None:
        self.spec = spec
        super().__init__(f"Record({spec.name})")

    @property
    def key(self) -> Any:
        return self.spec.name, self.spec.fields


register_model(_SpecType)(models.OpaqueModel)
register_model(_RecordType)(models.PointerModel)


@typeof_impl.register(RecordSpec)
def _type_of(value: RecordSpec, context: Any) -> _SpecType:
    return _SpecType(value)


@lower_constant(_SpecType)
def _constant(context: Any, builder: Any, kind: Any, value: RecordSpec) -> Any:
    return context.get_dummy_value()


@intrinsic
def record_at(typing_context: Any, spec: Any, address: Any) -> Any:
    """The record at an address."""
    result = _RecordType(spec.spec)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], ir.IntType(64).as_pointer())

    return result(spec, types.int64), generate


@infer_getattr
class _FieldOf(AttributeTemplate):
    key = _RecordType

    def generic_resolve(self, record: _RecordType, name: str) -> Any:
        spec = record.spec
        if name not in spec.index:
            declared = ", ".join(spec.index)
            raise TypingError(f"{spec.name}: no field {name!r}; declared are {declared}")
        return spec.fields[spec.index[name]].type


@lower_getattr_generic(_RecordType)
def _read(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    spec = kind.spec
    field = spec.fields[spec.index[name]]
    word = builder.load(builder.gep(value, [ir.IntType(64)(spec.index[name])]))
    if field.kind is Kind.ARRAY:
        return builder.inttoptr(word, context.get_value_type(field.type))
    return word
