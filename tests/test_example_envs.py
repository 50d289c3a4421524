"""`examples/gymnasium_env.py` and `examples/atari.py`, with fewer steps."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_an_environment_of_ones_own_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("gymnasium_env")
    ppo = example.main(total_steps=30_000)
    # Doing nothing gives -48, random actions -56, a rule of thumb -6.4 (40 episodes).
    assert ppo.evaluated().greedy.mean_return > -12


def test_atari_from_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("atari")
    options = {"num_envs": 2, "num_steps": 8, "minibatches": 2, "epochs": 1, "backend": "serial"}
    ppo = example.main(total_steps=16, device="cpu", **options)
    assert ppo.env.single_observation_space.shape == (4, 84, 84)
    assert ppo.steps == 16
