"""Observations in memory: what is written into rows comes out of every view of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.spaces.rows import ObsLayout

DTYPES = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64)
SIZES = st.integers(1, 5)
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
BOXES = st.builds(
    lambda shape, dtype: spaces.Box(0, 100, shape, dtype), SHAPES, st.sampled_from(DTYPES)
)
DISCRETE = st.builds(lambda n, start: spaces.Discrete(n, start=start), SIZES, st.integers(-3, 3))
SEVERAL = st.lists(SIZES, min_size=1, max_size=4).map(spaces.MultiDiscrete)
LEAVES = BOXES | DISCRETE | SEVERAL | SIZES.map(spaces.MultiBinary)
NAMES = st.sampled_from("abcd")
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=6,
)


def samples(space: spaces.Space[Any], count: int) -> Any:
    """A batch, as Gymnasium stacks it."""
    space.seed(count)
    found = [space.sample() for _ in range(count)]
    return concatenate(space, found, create_empty_array(space, count))


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(1, 4))
def test_what_goes_in_comes_out(space: spaces.Space[Any], count: int) -> None:
    layout, obs = ObsLayout.of(space), samples(space, count)
    rows, single = layout.rows(obs)
    assert rows.shape == (count, *layout.shape)
    assert (rows.dtype, single) == (layout.dtype, False)
    # Each in a rollout, gathered by an index, as tensors.
    stored = torch.zeros((3, *rows.shape), dtype=torch.from_numpy(rows).dtype)
    stored[1] = torch.from_numpy(rows)
    index = torch.arange(count).flip(0)
    gathered = layout.views(stored.flatten(0, 1).index_select(0, count + index))
    for leaf in layout.leaves:
        wanted = np.asarray(leaf.of(obs))
        for view, expected in (
            (layout.views(rows)[leaf.path], wanted),
            (layout.views(stored[1])[leaf.path].numpy(), wanted),
            (gathered[leaf.path].numpy(), wanted[::-1]),
        ):
            assert (view.shape, view.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(view, expected)
    assert layout.views(stored)[layout.leaves[0].path].data_ptr() == stored.data_ptr()


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_leaves_are_aligned_and_apart(space: spaces.Space[Any]) -> None:
    layout, end = ObsLayout.of(space), 0
    for leaf in layout.leaves:
        assert leaf.offset % 8 == 0
        assert leaf.offset >= end
        end = leaf.offset + leaf.nbytes
    assert end <= layout.nbytes
    if layout.is_tree:
        assert layout.nbytes % 8 == 0
    else:  # a flat observation is itself
        assert (layout.shape, layout.dtype) == (space.shape, space.dtype)
    for value in layout.views(layout.example(2)).values():
        assert len(value) == 2
    one = {leaf.path: leaf.of(space.sample()) for leaf in layout.leaves}
    assert set(one) == set(layout.views(layout.memory(1)))


def test_one_observation_alone() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    layout = ObsLayout.of(space)
    rows, single = layout.rows({"a": [0.5, -0.5], "b": 2})
    assert single
    views = layout.views(rows)
    assert (views["a"].tolist(), views["b"].tolist()) == ([[0.5, -0.5]], [2])
    assert layout.rows(rows)[0] is not None  # rows as they are
    assert ObsLayout.of(spaces.Discrete(4, start=2)).example(3).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"a": np.zeros((3, 2))}, "KeyError"),
        (
            {"a": np.zeros((3, 4)), "b": np.zeros(3)},
            r"'a' of the observations must have shape \(2,\)",
        ),
        ({"a": np.zeros((3, 2)), "b": np.zeros(2)}, "different numbers"),
        (np.zeros((3, 5)), r"must have shape \(16,\)"),
    ],
)
def test_observations_that_do_not_fit(obs: Any, message: str) -> None:
    layout = ObsLayout.of(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)}))
    with pytest.raises(ValueError, match=message):
        layout.rows(obs)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(4), "no fixed size in memory; known are Box"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Text(4)})}), "at 'a/b'"),
        (spaces.Dict({"a": spaces.Box(0, 1, (0,))}), "'a' of the space is empty"),
        (spaces.Dict({"1": spaces.Discrete(2), 1: spaces.Discrete(2)}), "there twice"),
        (spaces.Tuple([]), "nothing to see"),
    ],
)
def test_spaces_that_cannot_be_stored(space: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObsLayout.of(space)
