"""JSON from anywhere, checked against a schema of ours before anyone looks at it.

The schemas are JSON Schema, draft 2020-12, and shipped beside this file, so that other tools can
check files too. Here is as much of that standard as they use.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from operant.toolchain.files import read_bounded

LARGEST_BYTES = 1 << 20
"""Of a file; an artifact has some thousand."""

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = ("a string", "a number", "an integer", "an array", "an object", "a boolean", "null")
_NAMED = {word.rpartition(" ")[2]: word for word in _WORDS}
_NOTES = {"$schema", "$id", "$defs", "title", "description"}


@cache
def load_schema(name: str) -> dict[str, Any]:
    """A shipped schema, such as ``"throughput"``."""
    file = resources.files("operant.bench").joinpath(f"{name}.schema.json")
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def read_checked(path: Path, name: str) -> dict[str, Any]:
    """The data of a file that follows the schema `name`.

    Raises:
        ValueError: unreadable, too large, not JSON, or not as the schema says; one sentence, with
            the file's name.
    """
    try:
        data = read_bounded(path, LARGEST_BYTES)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise ValueError(f"cannot read {str(path)!r}: {error}") from None
    try:
        found: dict[str, Any] = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ones
        raise ValueError(f"{path} is not JSON: {error}") from None
    schema = load_schema(name)
    trouble = fault(found, schema, schema)
    if trouble is not None:
        raise ValueError(f"{path} is not {schema['title']}: {trouble}")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number in JSON")


def fault(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "") -> str | None:
    """The first thing in `value` that is not as `schema` says; None if all is well.

    Args:
        value: parsed JSON.
        schema: what it should be.
        root: where ``$ref`` looks: ``#/$defs/NAME``.
        place: of `value` in its file.
    """
    if "$ref" in schema:
        return fault(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    here = place or "it"
    for word, wanted in schema.items():
        if word in _NOTES:
            continue
        trouble = _CHECKS[word](value, wanted, schema)  # an unknown word is a mistake of ours
        if trouble:
            return f"{here} {trouble}"
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, item in value.items():
            inner = known.get(key, others)
            if inner is False:
                return f"{here} has an unknown entry {_shown(key)}"
            if isinstance(inner, dict):
                name = f"{place}.{key}" if place else str(key)
                trouble = fault(item, inner, root, _cut(name))
                if trouble is not None:
                    return trouble
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            trouble = fault(item, schema["items"], root, f"{place}[{number}]")
            if trouble is not None:
                return trouble
    return None


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _shown(value: Any) -> str:
    return _cut(json.dumps(value))


def _type(value: Any, wanted: str | list[str], schema: dict[str, Any]) -> str | None:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    for kind in kinds:
        if isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool)):
            if isinstance(value, float) and not math.isfinite(value):  # 1e999
                return "must be a finite number"
            return None
    words = " or ".join(_NAMED[kind] for kind in kinds)
    return f"must be {words}, got {_shown(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _required(value: Any, wanted: list[str], schema: dict[str, Any]) -> str | None:
    missing = [name for name in wanted if isinstance(value, dict) and name not in value]
    return f"has no {missing[0]!r}" if missing else None


def _enum(value: Any, wanted: list[Any], schema: dict[str, Any]) -> str | None:
    if any(value == one and type(value) is type(one) for one in wanted):
        return None
    return f"must be one of {', '.join(json.dumps(one) for one in wanted)}, got {_shown(value)}"


def _const(value: Any, wanted: Any, schema: dict[str, Any]) -> str | None:
    if value == wanted and type(value) is type(wanted):
        return None
    return f"must be {json.dumps(wanted)}, got {_shown(value)}"


def _minimum(value: Any, wanted: float, schema: dict[str, Any]) -> str | None:
    small = _is_number(value) and value < wanted
    return f"must be at least {wanted}, got {_shown(value)}" if small else None


def _maximum(value: Any, wanted: float, schema: dict[str, Any]) -> str | None:
    large = _is_number(value) and value > wanted
    return f"must be at most {wanted}, got {_shown(value)}" if large else None


def _above(value: Any, wanted: float, schema: dict[str, Any]) -> str | None:
    small = _is_number(value) and value <= wanted
    return f"must be above {wanted}, got {_shown(value)}" if small else None


def _pattern(value: Any, wanted: str, schema: dict[str, Any]) -> str | None:
    # Ours have ^ and $ around them; Python's own $ would let a line's end through.
    bad = isinstance(value, str) and re.fullmatch(wanted, value) is None
    return f"must look like {wanted}, got {_shown(value)}" if bad else None


def _max_length(value: Any, wanted: int, schema: dict[str, Any]) -> str | None:
    long = isinstance(value, str) and len(value) > wanted
    return f"must have at most {wanted} characters" if long else None


def _min_items(value: Any, wanted: int, schema: dict[str, Any]) -> str | None:
    few = isinstance(value, list) and len(value) < wanted
    return f"must have at least {wanted} entries" if few else None


def _max_items(value: Any, wanted: int, schema: dict[str, Any]) -> str | None:
    many = isinstance(value, list) and len(value) > wanted
    return f"must have at most {wanted} entries" if many else None


def _later(value: Any, wanted: Any, schema: dict[str, Any]) -> str | None:
    return None


_CHECKS = {
    "type": _type,
    "required": _required,
    "enum": _enum,
    "const": _const,
    "minimum": _minimum,
    "maximum": _maximum,
    "exclusiveMinimum": _above,
    "pattern": _pattern,
    "maxLength": _max_length,
    "minItems": _min_items,
    "maxItems": _max_items,
    "properties": _later,
    "additionalProperties": _later,
    "items": _later,
}
