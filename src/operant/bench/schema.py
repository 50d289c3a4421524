"""JSON from anywhere, checked against a schema of ours before anyone looks at it.

The schemas are JSON Schema, draft 2020-12, and shipped beside this file, so that other tools can
check files too. jsonschema does it here; the sentences are ours, and so is what a number is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import extend

from operant.toolchain.files import read_bounded

LARGEST_BYTES = 1 << 20
"""Of a file; an artifact has some thousand."""

_WORDS = ("a string", "a number", "an integer", "an array", "an object", "a boolean", "null")
_NAMED = {word.rpartition(" ")[2]: word for word in _WORDS}


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
    trouble = fault(found, schema)
    if trouble is not None:
        raise ValueError(f"{path} is not {schema['title']}: {trouble}")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number in JSON")


def fault(value: Any, schema: dict[str, Any]) -> str | None:
    """The outermost thing in `value` that is not as `schema` says; None if all is well.

    Args:
        value: parsed JSON.
        schema: what it should be; ``$ref`` looks in it.
    """
    error = best_match(_Validator(schema).iter_errors(value))
    return None if error is None else f"{_place(error.absolute_path)} {_sentence(error)}"


def _sentence(error: ValidationError) -> str:
    """What is wrong, in a sentence that a place begins; jsonschema's own would quote all data."""
    wanted, value = error.validator_value, error.instance
    match error.validator:
        case "type":
            if isinstance(value, float) and not math.isfinite(value):  # 1e999
                return "must be a finite number"
            kinds = [wanted] if isinstance(wanted, str) else wanted
            return f"must be {' or '.join(_NAMED[kind] for kind in kinds)}, got {_shown(value)}"
        case "required":
            return f"has no {next(name for name in wanted if name not in value)!r}"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            return f"has an unknown entry {_shown(next(k for k in value if k not in known))}"
        case "enum":
            choices = ", ".join(json.dumps(one) for one in wanted)
            return f"must be one of {choices}, got {_shown(value)}"
        case "const":
            return f"must be {json.dumps(wanted)}, got {_shown(value)}"
        case word if word in _SENTENCES:
            return _SENTENCES[word].format(wanted, _shown(value))
        case _:
            return f"is wrong: {_cut(error.message)}"


_SENTENCES = {
    "minimum": "must be at least {}, got {}",
    "maximum": "must be at most {}, got {}",
    "exclusiveMinimum": "must be above {}, got {}",
    "pattern": "must look like {}, got {}",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} entries",
    "maxItems": "must have at most {} entries",
}


def _place(path: Iterable[str | int]) -> str:
    """Where in a file, such as ``results[3].env``; ``it`` for all of it."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return _cut("".join(steps).removeprefix(".")) or "it"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _shown(value: Any) -> str:
    return _cut(json.dumps(value))


def _whole_pattern(
    validator: Any, pattern: str, value: Any, schema: Any
) -> Iterator[ValidationError]:
    # Ours have ^ and $ around them; Python's own $ would let a line's end through.
    if isinstance(value, str) and re.fullmatch(pattern, value) is None:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _is_integer(checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # 1.0 is none, in Python


def _is_number(checker: Any, value: Any) -> bool:
    return _is_integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


_Validator = extend(
    Draft202012Validator,
    {"pattern": _whole_pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)
