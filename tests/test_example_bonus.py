"""`examples/own_bonus.py`, with fewer steps."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from operant import PPO

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_bonus_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("own_bonus")
    ppo = PPO("MountainCar-v0", num_envs=8, num_steps=16, seed=1, intrinsic=example.Copies())
    (intrinsic,) = ppo.add_ons
    ppo.learn(128, progress=False)
    first = intrinsic.update(ppo, ppo.buffer)["copies_loss"]
    ppo.learn(20 * 128, progress=False)
    assert intrinsic.update(ppo, ppo.buffer)["copies_loss"] < 0.7 * first
    lines = (EXAMPLES / "own_bonus.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 30
