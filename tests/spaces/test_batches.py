"""Samples as rows and rows as samples: what goes in comes out, and views are views.

``OPERANT_SPACES_EXAMPLES=1000 pytest tests/spaces`` tries more random spaces (3 minutes).
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

import operant

EXAMPLES = int(os.environ.get("OPERANT_SPACES_EXAMPLES", "60"))
DTYPES = ("bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
SIZES = st.integers(1, 5)
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
INTEGERS = st.sampled_from([np.int8, np.int32, np.int64])
KINDS = st.sampled_from(DTYPES)
BOXES = st.builds(lambda shape, t: spaces.Box(0, 1, shape, np.dtype(t)), SHAPES, KINDS)
DISCRETE = st.builds(
    lambda n, start, t: spaces.Discrete(n, start=start, dtype=t),
    SIZES,
    st.integers(-3, 3),
    INTEGERS,
)
SEVERAL = st.builds(spaces.MultiDiscrete, st.lists(SIZES, min_size=1, max_size=4), INTEGERS)
LEAVES = BOXES | DISCRETE | SEVERAL | SIZES.map(spaces.MultiBinary)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=6,
)
SIX = spaces.Dict(
    {
        "arm": spaces.Box(-1, 1, (3,)),
        "camera": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "gears": spaces.MultiDiscrete([2, 3], np.int32),
        "on": spaces.MultiBinary(3),
        "speed": spaces.Box(-1, 1, (), np.float64),
        "tool": spaces.Discrete(3, start=-1),
    }
)
SPACE = spaces.Dict(
    {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3, start=2)])}
)


def drawn(space: spaces.Space[Any], count: int) -> tuple[list[Any], Any]:
    """Samples of any bits, NaNs and all, and the same as Gymnasium stacks them."""
    space.seed(count)
    found = [space.sample() for _ in range(count)]
    batch = concatenate(space, found, create_empty_array(space, count))
    random = np.random.default_rng(count)
    for leaf in operant.spaces.layout(space).leaves:
        array = leaf.of(batch)
        if array.dtype != bool:
            array[...] = np.frombuffer(random.bytes(array.nbytes), array.dtype).reshape(array.shape)
    return [at(space, batch, index) for index in range(count)], batch


def at(space: spaces.Space[Any], batch: Any, index: int) -> Any:
    """One sample of a batch."""
    if isinstance(space, spaces.Dict):
        return {key: at(inner, batch[key], index) for key, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(at(inner, part, index) for inner, part in zip(space, batch, strict=True))
    return batch[index]


def assert_same(space: spaces.Space[Any], given: Any, expected: Any, rows: Any) -> None:
    """The same structure, dtypes and bits, in the memory of the rows."""
    if isinstance(space, spaces.Dict):
        assert list(given) == list(space)
        for key, inner in space.items():
            assert_same(inner, given[key], expected[key], rows)
    elif isinstance(space, spaces.Tuple):
        assert isinstance(given, tuple)
        for index, inner in enumerate(space):
            assert_same(inner, given[index], expected[index], rows)
    else:
        assert (given.dtype, given.shape) == (space.dtype, expected.shape)
        assert given.tobytes() == expected.tobytes()
        assert given.flags.aligned
        assert np.shares_memory(given, rows)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TREES, st.sampled_from([1, 3, 64]))
def test_round_trip(space: spaces.Space[Any], count: int) -> None:
    singles, batch = drawn(space, count)
    layout = operant.spaces.layout(space)
    rows = operant.spaces.flatten(space, batch)
    assert (rows.shape, rows.dtype) == ((count, *layout.shape), layout.dtype)
    assert_same(space, operant.spaces.unflatten(space, rows), batch, rows)
    # Single samples, rows that had something else in them, tensors: the same bits.
    out = np.full_like(rows, 1)
    assert operant.spaces.flatten(layout, singles, out) is out
    assert out.tobytes() == rows.tobytes()
    views = operant.spaces.unflatten(space, torch.from_numpy(rows))
    again = operant.spaces.flatten(space, views)
    assert again.numpy().tobytes() == rows.tobytes()
    for leaf in layout.leaves:
        assert leaf.offset % 8 == 0
        assert leaf.of(views).data_ptr() == rows.ctypes.data + leaf.offset


def test_what_lies_between_leaves_is_zero() -> None:
    space = spaces.Dict({"a": spaces.MultiBinary(3), "b": spaces.Box(0, 1, (3,))})
    for count in (2, 100):  # by NumPy, compiled
        _, batch = drawn(space, count)
        rows = operant.spaces.flatten(space, batch, np.full((count, 24), 7, np.uint8))
        assert not rows[:, 3:8].any()
        assert not rows[:, 20:].any()


def test_a_space_that_changed_has_another_layout() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2)})
    assert operant.spaces.layout(space) is operant.spaces.layout(space)
    space["b"] = spaces.Box(0, 1, (4,))
    assert operant.spaces.layout(space).nbytes == 24


def test_a_layout_goes_to_another_process_after_use() -> None:
    _, batch = drawn(SIX, 64)
    layout = operant.spaces.layout(SIX)
    rows = operant.spaces.flatten(layout, batch)
    sent = pickle.loads(pickle.dumps(layout))
    assert sent == layout
    assert operant.spaces.flatten(sent, batch).tobytes() == rows.tobytes()


@pytest.mark.parametrize("count", [3, 100])
def test_rows_within_other_memory(count: int) -> None:
    """Rows that are not side by side: every second one, with bytes of others behind them."""
    _, batch = drawn(SIX, count)
    expected = operant.spaces.flatten(SIX, batch)
    memory = np.full((count, 2, expected.shape[1] + 8), 7, np.uint8)
    out = memory[:, 0, :-8]
    assert operant.spaces.flatten(SIX, batch, out) is out
    np.testing.assert_array_equal(out, expected)
    assert (memory[:, 1] == 7).all()
    assert (memory[:, :, -8:] == 7).all()
    assert_same(SIX, operant.spaces.unflatten(SIX, out), batch, memory)


@pytest.mark.parametrize("count", [3, 100])
def test_arrays_that_are_not_as_the_kernel_takes_them(count: int) -> None:
    singles, batch = drawn(SIX, count)
    expected = operant.spaces.flatten(SIX, batch).tobytes()
    strided = {key: np.repeat(value, 2, axis=0)[::2] for key, value in batch.items()}
    frozen = {key: value.copy() for key, value in batch.items()}
    for value in frozen.values():
        value.flags.writeable = False
    turned = {key: batch[key] for key in reversed(batch)}
    lists = {**batch, "gears": batch["gears"].tolist()}
    for samples in (strided, frozen, turned, lists, singles, tuple(singles)):
        assert operant.spaces.flatten(SIX, samples).tobytes() == expected


def test_actions_of_a_tuple() -> None:
    space = spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2,))])
    rows = operant.spaces.flatten(space, (np.array([-1, 1]), np.array([[0.5, 1], [0, -1]])))
    choice, force = operant.spaces.unflatten(space, rows)
    assert choice.tolist() == [-1, 1]
    assert force.tolist() == [[0.5, 1], [0, -1]]
    force[1] = 0.25  # a view
    assert operant.spaces.unflatten(space, rows)[1].tolist() == [[0.5, 1], [0.25, 0.25]]


def test_no_samples() -> None:
    assert operant.spaces.flatten(SIX, []).shape == (0, operant.spaces.layout(SIX).nbytes)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((100, 64), np.uint8), r"out must be uint8 \[64, 64\], got uint8 \[100, 64\]"),
        (np.zeros((64, 56), np.uint8), r"got uint8 \[64, 56\]"),
        (np.zeros((64, 64)), "got float64"),
        (np.zeros((64, 72), np.uint8)[:, 1:65], "multiples of 8 bytes"),
        (np.frombuffer(bytes(64 * 64), np.uint8).reshape(64, 64), "out is read-only"),
        ([], "must be an array or a tensor"),
    ],
)
def test_memory_that_does_not_fit(out: Any, message: str) -> None:
    _, batch = drawn(SIX, 64)
    with pytest.raises(ValueError, match=message):
        operant.spaces.flatten(SIX, batch, out)


def test_values_are_kept_or_refused() -> None:
    space = spaces.Discrete(5)
    assert operant.spaces.flatten(space, [1.0, 2.0]).tolist() == [1, 2]
    with pytest.raises(ValueError, match="values that it has not"):
        operant.spaces.flatten(space, [1.5])
    small = spaces.Discrete(5, dtype=np.int32)
    with pytest.raises(ValueError, match="values that it has not"):
        operant.spaces.flatten(small, np.array([1 << 40]))
    box = spaces.Box(-1, 1, (2,))
    given = np.zeros((3, 2), np.float32)
    assert operant.spaces.flatten(box, given) is given
    assert operant.spaces.flatten(box, given.astype(np.float64)).dtype == np.float32


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((2, 16)), r"samples must be a dict of \['a', 'b'\], got ndarray"),
        ({"a": np.zeros((2, 2))}, r"must have the keys \['a', 'b'\], got \['a'\]"),
        ({"a": np.zeros((2, 2)), "b": ()}, "'b' of the samples must be a tuple of 1"),
        ({"a": np.zeros((2, 3)), "b": (np.zeros(2),)}, r"'a' .* \[B, 2\], got \[2, 3\]"),
        ({"a": np.zeros((2, 2)), "b": (np.zeros(3),)}, "different numbers of samples"),
        ({"a": np.zeros(2), "b": (np.int64(2),)}, "one sample alone goes in a list"),
        ({"a": torch.zeros(2, 2).double(), "b": (np.zeros(2),)}, r"convert it with \.to"),
    ],
)
def test_samples_that_do_not_fit(samples: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operant.spaces.flatten(SPACE, samples)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 2], "must be an array or a tensor, got list"),
        (np.zeros((2, 16)), r"must be uint8 \[..., 16\], got float64 \[2, 16\]"),
        (np.zeros((2, 8), np.uint8), r"got uint8 \[2, 8\]"),
        (np.zeros((2, 32), np.uint8)[:, ::2], "contiguous rows"),
        (np.zeros((2, 24), np.uint8)[:, 1:17], "multiples of 8 bytes"),
        (torch.zeros((2, 24), dtype=torch.uint8)[:, 1:17], "multiples of 8 bytes"),
    ],
)
def test_rows_that_do_not_fit(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operant.spaces.unflatten(SPACE, rows)


@pytest.mark.parametrize(
    ("space", "advice"),
    [
        (spaces.Text(3), "MultiDiscrete of character codes"),
        (spaces.Sequence(spaces.Discrete(2)), "Box for its greatest length"),
        (spaces.Graph(spaces.Box(0, 1, (2,)), None), "the most nodes and edges"),
        (spaces.OneOf([spaces.Discrete(2)]), "a Dict of all its spaces"),
        (spaces.Box(0, 1, (2,), np.dtype(">f4")), "byte order"),
        ("Box", "expected a space of gymnasium.spaces"),
        (
            spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(2))}),
            "rename one of these keys",
        ),
    ],
)
def test_spaces_without_a_layout(space: Any, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        operant.spaces.layout(space)
