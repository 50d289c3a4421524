"""`Section`: a table of a configuration, with the values that its options may have."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, cast, get_args, get_origin, get_type_hints


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field with its help text and the values it may have."""
    limits = {"help": help, "least": least, "most": most, "above": above, "choices": choices}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=limits)
    return field(default=default, metadata=limits)


class Section:
    """A table of a configuration: a frozen dataclass of `option` fields, checked when one is made.

    Fields are ``bool``, ``int``, ``float``, ``str``, tuples such as ``tuple[int, ...]`` (lists in
    TOML), or ``Mapping[str, Any]`` (tables of plain values).

    Args:
        table: its name, which is also that of its field in the configuration.
    """

    table: ClassVar[str] = ""
    short_names: ClassVar[bool] = True
    """Whether an option may be named without its section, where no other has it."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """What its options are called in other libraries: ``{"lr": "learning_rate"}``. A note may
    follow a colon."""

    def __init_subclass__(cls, table: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.table = table or cls.table

    def __post_init__(self) -> None:
        kinds = kinds_of(type(self))
        for one in dataclasses.fields(cast(Any, self)):
            name = f"{self.table}.{one.name}"
            value = converted(name, getattr(self, one.name), kinds[one.name])
            _check_limits(name, value, one.metadata)
            object.__setattr__(self, one.name, value)


def kinds_of(section: type[Section]) -> Mapping[str, Any]:
    """The types of a section's fields."""
    return _kinds_of(cast(Any, section))  # to mypy a class has the hash of its instances


@functools.cache
def _kinds_of(section: Any) -> Mapping[str, Any]:
    return MappingProxyType(get_type_hints(section))


_LISTED = {int: "integers", float: "numbers", str: "strings", bool: "true or false"}


def converted(name: str, value: Any, kind: Any) -> Any:
    """`value` as the field's type; whole floats are ints where an int is wanted."""
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{name} must be true or false, got {value!r}")
    if kind is str:
        return _text(name, value)
    if kind is int:
        return _whole(name, value)
    if kind is float:
        number = _number(value)
        if number is not None and math.isfinite(number):
            return float(number)
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if get_origin(kind) is tuple:
        item_kind = get_args(kind)[0]
        if isinstance(value, list | tuple):
            return tuple(converted(name, item, item_kind) for item in value)
        inner = str(value).strip("()[] ")
        better = f"; write [{inner}]" if re.fullmatch(r"[-\d., ]+", inner) else ""
        raise ValueError(f"{name} must be a list of {_LISTED[item_kind]}, got {value!r}{better}")
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        raise ValueError(f"{name} must be a table of parameters, got {value!r}")
    return {
        _text(f"{name}: a name", key): _parameter(f"{name}.{key}", item)
        for key, item in value.items()
    }


def _number(value: Any) -> int | float | None:
    """A real number as Python's own int or float, so that it is written as such; None if it is not
    one, or an integer that no float holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return int(value) if isinstance(value, Integral) else number


def _whole(name: str, value: Any) -> int:
    number = _number(value)
    if isinstance(number, int) or (number is not None and number.is_integer()):
        whole = int(number)
        if -(2**63) <= whole < 2**63:
            return whole
        raise ValueError(f"{name} must have at most 64 bits, got {value!r}")
    raise ValueError(f"{name} must be an integer, got {value!r}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    try:
        return value.encode().decode()  # a plain str, also from a subclass
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be Unicode text, got {value!r}") from None


def _parameter(name: str, value: Any) -> bool | int | float | str:
    """A parameter of an environment. Infinity may be one, NaN cannot: it equals nothing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(name, value)
    number = _number(value)
    if isinstance(number, int):
        return _whole(name, number)
    if number is None or math.isnan(number):
        raise ValueError(f"{name} must be a number, a string or a flag, got {value!r}")
    return number


def _check_limits(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if limits["choices"] and value not in limits["choices"]:
        near = difflib.get_close_matches(value, limits["choices"], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{name} must be one of {', '.join(limits['choices'])}, got {value!r}{hint}"
        )
    for one in value if isinstance(value, tuple) else (value,):
        if limits["least"] is not None and one < limits["least"]:
            raise ValueError(f"{name} must be at least {limits['least']}, got {one}")
        if limits["most"] is not None and one > limits["most"]:
            raise ValueError(f"{name} must be at most {limits['most']}, got {one}")
        if limits["above"] is not None and one <= limits["above"]:
            raise ValueError(f"{name} must be above {limits['above']:g}, got {one}")
