"""Schemas and their reader: what is refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from operant.bench import schema as schemas
from operant.bench.schema import fault, load_schema, read_checked

SAID = {"type", "required", "enum", "const", "additionalProperties"}
SAID |= {"properties", "items", "$ref"}  # of what is inside
NOTES = {"$schema", "$id", "$defs", "title", "description"}


def wrong(value: Any, **schema: Any) -> str | None:
    return fault(value, schema)


@pytest.mark.parametrize(
    ("value", "schema", "sentence"),
    [
        (1, {"type": "string"}, "it must be a string, got 1"),
        (True, {"type": "integer"}, "it must be an integer, got true"),
        (True, {"type": "number"}, "it must be a number, got true"),
        (1.5, {"type": "integer"}, "it must be an integer, got 1.5"),
        (1.0, {"type": "integer"}, "it must be an integer, got 1.0"),
        (float("inf"), {"type": "number"}, "it must be a finite number"),
        ("x", {"type": ["integer", "null"]}, "it must be an integer or null"),
        ({}, {"required": ["a", "b"]}, "it has no 'a'"),
        (2, {"enum": [1, "2"]}, 'it must be one of 1, "2", got 2'),
        (True, {"enum": [1]}, "it must be one of 1"),
        (True, {"const": 1}, "it must be 1, got true"),
        (1, {"minimum": 2}, "it must be at least 2, got 1"),
        (3, {"maximum": 2}, "it must be at most 2, got 3"),
        (0, {"exclusiveMinimum": 0}, "it must be above 0, got 0"),
        ("ab\n", {"pattern": "^[a-z]+$"}, "it must look like"),
        ("abc", {"maxLength": 2}, "it must have at most 2 characters"),
        ([], {"minItems": 1}, "it must have at least 1 entries"),
        ([1, 2], {"maxItems": 1}, "it must have at most 1 entries"),
        ([1, "x"], {"items": {"type": "integer"}}, "[1] must be an integer"),
        ({"a": {"b": 1}}, {"properties": {"a": {"required": ["c"]}}}, "a has no 'c'"),
        ({"b": 1}, {"additionalProperties": False}, 'it has an unknown entry "b"'),
        ({"b": 1}, {"additionalProperties": {"type": "string"}}, "b must be a string"),
    ],
)
def test_faults_are_named(value: Any, schema: dict[str, Any], sentence: str) -> None:
    found = fault(value, schema)
    assert found is not None
    assert found.startswith(sentence)


def test_what_is_right_has_no_fault() -> None:
    assert wrong({"a": 1, "b": [None]}, type="object", properties={"a": {"minimum": 1}}) is None
    assert wrong(1, type=["integer", "null"], enum=[1]) is None
    assert wrong(None, type=["integer", "null"]) is None
    assert wrong("ab", pattern="^[a-z]+$", maxLength=2) is None
    assert wrong(1.5, type="number", minimum=1.5, maximum=1.5) is None


def test_references_lead_to_definitions() -> None:
    schema = {"$defs": {"few": {"maximum": 3}}, "items": {"$ref": "#/$defs/few"}}
    assert fault([1, 3], schema) is None
    assert fault([1, 4], schema) == "[1] must be at most 3, got 4"


def test_a_word_without_a_sentence_of_ours_is_checked_too() -> None:
    assert wrong([1, 1], uniqueItems=True) == "it is wrong: [1, 1] has non-unique elements"


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for table in ("properties", "$defs"):
        for inner in schema.get(table, {}).values():
            yield from subschemas(inner)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from subschemas(schema[word])


@pytest.mark.parametrize("name", ["throughput", "floor"])
def test_shipped_schemas_are_schemas_and_have_sentences(name: str) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    found = list(subschemas(schema))
    assert len(found) > 15
    for one in found:
        assert set(one) <= {*schemas._SENTENCES, *SAID, *NOTES}
        if "pattern" in one:
            assert one["pattern"].startswith("^")
            assert one["pattern"].endswith("$")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b'{"x": NaN}', "NaN is not a number in JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"x": ' + b"1" * 10_000 + b"}", "is not JSON"),
        (b" " * (1 << 20) + b"{}", "is larger than"),
        (b"[]", "is not a floor file: it must be an object, got []"),
        (b"{}", "is not a floor file: it has no 'schema'"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.json") as error:
        read_checked(path, "floor")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ValueError, match="cannot read"):
            read_checked(path, "floor")
    with pytest.raises(ValueError, match="cannot read"):
        read_checked(Path("a\0b"), "floor")


def test_messages_stay_short(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema": "x" * 5000, "floors": []}))
    with pytest.raises(ValueError) as error:
        read_checked(path, "floor")
    assert len(str(error.value)) < 300 + len(str(path))
