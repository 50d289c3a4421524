"""NaN in rows of observations is found, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from operant.backends.foreign.nan_check import NanCheck
from operant.spaces.rows import ObsLayout


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_array(dtype: Any) -> None:
    layout = ObsLayout.of(spaces.Box(-np.inf, np.inf, (2, 3), dtype))
    rows = layout.memory(4)
    check = NanCheck(layout, rows)
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
    check = NanCheck(layout, rows)
    rows[:] = 255  # NaN, if they were floats; of "b" they are
    assert check.found(0, 3) == 0
    assert check.found(1, 3) == 1
    assert check.where(0) == "'b' of an observation that is NaN"
    layout.views(rows)["b"][...] = 1.0
    assert check.found(0, 3) is None
    images = ObsLayout.of(spaces.Box(0, 255, (2,), np.uint8))
    assert NanCheck(images, np.full((1, 2), 255, np.uint8)).found(0, 1) is None
