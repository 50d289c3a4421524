"""Schedules: where they begin, where they end, what lies between."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.training.config import SCHEDULES
from operant.training.schedule import scheduled

QUARTERS = {
    "constant": [0.2, 0.2, 0.2, 0.2, 0.2],
    "linear": [0.2, 0.15, 0.1, 0.05, 0.0],
    "cosine": [0.2, 0.1 + 0.1 * math.sqrt(0.5), 0.1, 0.1 - 0.1 * math.sqrt(0.5), 0.0],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_quarters(name: str) -> None:
    found = [scheduled(0.2, name, k / 4) for k in range(5)]
    assert found == pytest.approx(QUARTERS[name])
    assert found[0] == 0.2
    assert name == "constant" or found[-1] == 0.0


@settings(deadline=None)
@given(a=st.floats(0, 1), b=st.floats(0, 1), name=st.sampled_from(SCHEDULES))
def test_never_rises_and_never_leaves_its_range(a: float, b: float, name: str) -> None:
    early, late = scheduled(3.0, name, min(a, b)), scheduled(3.0, name, max(a, b))
    assert 0 <= late <= early <= 3.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_beyond_the_ends_it_stays(name: str) -> None:
    assert scheduled(0.2, name, -0.5) == scheduled(0.2, name, 0.0)
    assert scheduled(0.2, name, 1.5) == scheduled(0.2, name, 1.0)


def test_unknown_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match="constant, linear or cosine, got 'square'"):
        scheduled(0.2, "square", 0.5)
