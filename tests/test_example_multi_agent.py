"""`examples/multi_agent.py`, with fewer steps."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_example_trains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("multi_agent")
    # Worker processes import PettingZoo once more each, which takes longer than all that they play.
    monkeypatch.setattr(example, "PPO", functools.partial(example.PPO, backend="serial"))
    reached = example.main(total_steps=20 * 6 * 25, num_envs=2, num_steps=25)
    assert np.isfinite(reached)
    assert reached < 0  # rewards are distances, and collisions
    out = capsys.readouterr().out
    assert "     3000 steps   return of each agent" in out
    assert f"return of an agent {reached:.2f}" in out
