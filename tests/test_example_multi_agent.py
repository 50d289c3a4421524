"""`examples/multi_agent.py`, with fewer steps."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_example_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("multi_agent")
    ppo = example.main(total_steps=2 * 12 * 50, num_envs=4, num_steps=50)
    assert (ppo.env.num_envs, ppo.steps) == (12, 1200)
    assert np.isfinite(list(ppo.agent_returns.figures().values())).all()
