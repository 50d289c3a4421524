"""NaN and integers outside of their space are found, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from operant.backends.foreign.obs_check import ObsCheck
from operant.spaces.rows import ObsLayout


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_array(dtype: Any) -> None:
    layout = ObsLayout.of(spaces.Box(-np.inf, np.inf, (2, 3), dtype))
    rows = layout.memory(4)
    check = ObsCheck(layout, rows)
    rows[0], rows[1], rows[2, 0, 0] = np.finfo(dtype).max, np.inf, -np.inf
    assert check.found(0, 4) is None
    rows[2, 1, 2] = rows[3, 0, 0] = np.nan
    assert check.found(0, 4) == 2
    assert check.found(0, 2) is None
    assert check.found(3, 4) == 3
    assert check.where(2) == "an observation that is NaN at [1, 2]"


def test_leaves_of_a_dict_and_integers() -> None:
    inner = {"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (), np.float32)}
    layout = ObsLayout.of(spaces.Dict(inner))
    rows = layout.memory(3)
    check = ObsCheck(layout, rows)
    rows[:] = 255  # NaN, if they were floats; of "b" they are
    assert check.found(0, 3) == 0
    assert check.found(1, 3) == 1
    assert check.where(0) == "'b' of an observation that is NaN"
    layout.views(rows)["b"][...] = 1.0
    assert check.where(2) == "'a' of an observation that is -1, which is not in its space " + str(
        inner["a"]
    )
    layout.views(rows)["a"][:] = [0, 2, 3]
    assert check.found(0, 2) is None
    assert check.found(0, 3) == 2
    images = ObsLayout.of(spaces.Box(0, 255, (2,), np.uint8))
    assert ObsCheck(images, np.full((1, 2), 255, np.uint8)).found(0, 1) is None


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3, start=-1), (-1, 1), (-2, 2)),
        (spaces.MultiDiscrete([2, 3], start=[4, -3]), ([4, -3], [5, -1]), ([4, 0], [3, -3])),
        (spaces.MultiBinary(2), ([0, 1], [1, 0]), ([0, 2], [-1, 0])),
        (spaces.Box(1, 9, (1, 1), np.uint8), ([[1]], [[9]]), ([[0]], [[10]])),
    ],
)
def test_integers_outside_of_their_space(space: Any, good: Any, bad: Any) -> None:
    layout = ObsLayout.of(space)
    rows = layout.memory(2)
    check = ObsCheck(layout, rows)
    rows[:] = good
    assert check.found(0, 2) is None
    for value in bad:
        rows[:] = good
        rows[1] = value
        assert check.found(0, 2) == 1
        assert str(space) in check.where(1)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.Box(-5, 5, (2, 2), np.float32),
        spaces.Box(0, 9, (3,), np.int16),
    ],
)
def test_numbers_that_nothing_looks_up_may_lie_outside(space: Any) -> None:
    layout = ObsLayout.of(space)
    rows = layout.memory(1)
    rows[:] = 200
    assert ObsCheck(layout, rows).found(0, 1) is None
