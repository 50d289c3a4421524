"""States of arrays: how they are declared, and what the functions are handed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from operant.lang import Arrays, boolean, float32, int32, uint8
from operant.lang.arrays import MAX_BYTES, ArrayField, Cells, as_cells
from operant.lang.integers import Int64


class Board(Arrays):
    cells = uint8[2, 3]
    head = int32[2]
    energy = float32[np.int64(1)]
    seen = boolean[4]


def board() -> Any:
    shapes = [(field.shape, field.dtype) for field in Board.fields.values()]
    return Board(*[np.zeros(*made) for made in shapes])


# Declarations -------------------------------------------------------------------------------------
def test_fields() -> None:
    assert Board.fields == {
        "cells": ArrayField(np.dtype(np.uint8), (2, 3)),
        "head": ArrayField(np.dtype(np.int32), (2,)),
        "energy": ArrayField(np.dtype(np.float32), (1,)),
        "seen": ArrayField(np.dtype(np.bool_), (4,)),
    }
    assert list(Board.fields) == ["cells", "head", "energy", "seen"]  # in order
    assert [field.kind for field in Board.fields.values()] == ["int", "int", "float", "bool"]
    assert [field.size for field in Board.fields.values()] == [6, 2, 1, 4]
    assert [repr(kind) for kind in (float32, int32, uint8, boolean)] == [
        "float32",
        "int32",
        "uint8",
        "boolean",
    ]


def test_a_subclass_adds_and_replaces() -> None:
    class Larger(Board):
        head = int32[5]
        extra = float32[2]

    assert list(Larger.fields) == ["cells", "head", "energy", "seen", "extra"]
    assert Larger.fields["head"].shape == (5,)
    assert Board.fields["head"].shape == (2,)


@pytest.mark.parametrize(
    "shape", [0, -1, 2.0, "3", True, None, (), (2, 0), (2, 3.0), (2, True)], ids=repr
)
def test_bad_sizes(shape: Any) -> None:
    with pytest.raises(TypeError, match=r"float32 takes sizes of at least 1, such as float32\[8\]"):
        float32[shape]


def declared(**entries: Any) -> type[Arrays]:
    return type("Made", (Arrays,), entries)


@pytest.mark.parametrize(
    "value",
    [3, 0.5, "x", float32, np.zeros(3), [1], lambda self: 1],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_array(value: Any) -> None:
    with pytest.raises(TypeError, match=r"Made.speed must be an array such as float32\[4\], int32"):
        declared(board=float32[3], speed=value)


@pytest.mark.parametrize("name", ["_hidden", "fields"])
def test_bad_names(name: str) -> None:
    with pytest.raises(TypeError, match=f"Made.{name}: no array is called"):
        declared(board=float32[3], **{name: float32[3]})


def test_an_annotation_is_no_declaration() -> None:
    with pytest.raises(TypeError, match=r"write speed = float32\[3\], not speed: float32\[3\]"):

        class Wrong(Arrays):
            board = float32[3]
            speed: float32[3]  # type: ignore[valid-type]


def test_none_and_too_many() -> None:
    with pytest.raises(TypeError, match=r"at least one array and at most 1048576 bytes, got 0 "):
        declared()
    declared(large=uint8[MAX_BYTES])
    with pytest.raises(TypeError, match="got 2 arrays of 1048580 bytes"):
        declared(large=uint8[MAX_BYTES], small=float32[1])


# What functions are handed ------------------------------------------------------------------------
def test_elements_are_int64_bool_or_float32() -> None:
    state = board()
    state.cells[1, 2] = 200
    state.energy[0] = 0.1
    state.seen[3] = True
    assert type(state.cells[1, 2]) is Int64
    assert type(state.head[0]) is Int64
    assert type(state.energy[0]) is np.float32
    assert type(state.seen[3]) is bool
    assert (state.cells[1, 2], state.energy[0], state.seen[3]) == (200, np.float32(0.1), True)
    assert state.cells[1, 2] + 100 == 300  # no uint8
    assert type(state.head[0] * state.energy[0]) is np.float32  # no float64


def test_memory_is_shared_not_copied() -> None:
    arrays = [np.zeros(field.shape, field.dtype) for field in Board.fields.values()]
    state = Board(*arrays)
    row = state.cells[1]
    assert isinstance(row, Cells)
    row[2] = 7
    state.cells[0][1] = 5
    state.head[:] = 3
    assert arrays[0].tolist() == [[0, 5, 0], [0, 0, 7]]
    assert arrays[1].tolist() == [3, 3]
    arrays[0][1, 0] = 9
    assert row[0] == 9


def test_arrays_stay_where_they_are() -> None:
    state = board()
    with pytest.raises(
        AttributeError, match=r"write state.head\[\.\.\.\] = \.\.\., not state.head = "
    ):
        state.head = np.zeros(2, np.int32)
    with pytest.raises(AttributeError, match="stay where they are"):
        state.other = 1
    with pytest.raises(ValueError, match="argument"):
        Board(np.zeros((2, 3), np.uint8))


OUTSIDE = r"^index -?\d of axis [01] of state.cells is outside 0\.\.\d; ask before"


@pytest.mark.parametrize("index", [-1, (0, -1), (-2, 0), np.int64(-1), (-1,)], ids=str)
def test_indices_count_from_the_start(index: Any) -> None:
    state = board()
    with pytest.raises(IndexError, match=OUTSIDE):
        state.cells[index]
    with pytest.raises(IndexError, match=OUTSIDE):
        state.cells[index] = 1
    assert not state.cells.any()


@pytest.mark.parametrize("index", [2, (0, 3), (2, 0)])
def test_indices_beyond_the_end(index: Any) -> None:
    with pytest.raises(IndexError, match=OUTSIDE):
        board().cells[index]
    with pytest.raises(IndexError, match=OUTSIDE):
        board().cells[index] = 1


@pytest.mark.parametrize(("name", "value"), [("cells", 256), ("cells", -1), ("head", 2**31)])
def test_what_does_not_fit_is_not_cut_off(name: str, value: int) -> None:
    with pytest.raises(OverflowError):
        getattr(board(), name)[0] = value


# Tables -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "dtype", "kind"),
    [
        (np.array([0.1, 0.2]), np.float32, np.float32),
        (np.array([0.1], np.float16), np.float32, np.float32),
        (np.array([1, 2], np.int8), np.int64, Int64),
        (np.array([1, 2], np.uint16), np.int64, Int64),
        (np.array([True]), np.bool_, bool),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_tables(values: np.ndarray, dtype: Any, kind: type) -> None:
    table = as_cells(values)
    assert table.dtype == dtype
    assert type(table[0]) is kind
    values[0] = 0
    assert table[0] != 0  # a copy
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


@pytest.mark.parametrize("values", [np.array(["a"]), np.array([1j]), np.array([None])], ids=str)
def test_tables_hold_numbers(values: np.ndarray) -> None:
    with pytest.raises(TypeError, match=f"an array of {values.dtype}"):
        as_cells(values)


def test_cells_can_be_looked_at() -> None:
    cells = np.arange(3, dtype=np.int32).view(Cells)
    assert str(cells) == "[0 1 2]"
    assert repr(cells) == "array([0, 1, 2], dtype=int32)"
    assert f"{cells}" == "[0 1 2]"


def test_the_axis_is_named() -> None:
    with pytest.raises(IndexError) as found:
        board().cells[0, 3]
    assert str(found.value) == (
        "index 3 of axis 1 of state.cells is outside 0..2; ask before with `if`, or write "
        "clip(x, 0, 2)"
    )


def test_parts_and_tables_have_names_too() -> None:
    row = board().cells[1]
    with pytest.raises(IndexError, match=r"^index 3 of state.cells is outside 0\.\.2; ask"):
        row[3]
    with pytest.raises(IndexError, match=r"^index 9 of a table is outside 0\.\.1; ask"):
        as_cells(np.array([1, 2]))[9]


@pytest.mark.parametrize("value", [-1, 256, 300])
def test_what_does_not_fit_says_where(value: int) -> None:
    state = board()
    message = f"^{value} does not fit into state.cells, which is uint8: 0 to 255; declare it int32"
    with pytest.raises(OverflowError, match=message):
        state.cells[0, 0] = value
    assert not state.cells.any()


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ([0] * 9, r"int32\[9\]"),
        ((0.5, 1.0), r"float32\[2\]"),
        ([True], r"boolean\[1\]"),
        ([0, 0.5], r"float32\[2\]"),
    ],
)
def test_a_list_of_numbers_is_told_what_to_write(value: object, advice: str) -> None:
    with pytest.raises(TypeError, match=rf"got .*; write board = {advice}, and its first values"):
        type("State", (Arrays,), {"board": value})


@pytest.mark.parametrize("value", [[], [[0], [0, 1]], "text", None])
def test_anything_else_is_not(value: object) -> None:
    with pytest.raises(TypeError, match=r"board must be an array such as .*, got [^;]*$"):
        type("State", (Arrays,), {"board": value})
