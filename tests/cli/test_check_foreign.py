"""`operant check` of environments that operant does not compile."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from operant.cli import app

FILE = """
import gymnasium
import numpy as np


class Blind(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.full(2, np.nan, np.float32), 0.0, True, False, {}
"""


def test_a_file_and_an_id(tmp_path: Path) -> None:
    file = tmp_path / "blind.py"
    file.write_text(FILE)
    shown = CliRunner().invoke(app, ["check", f"{file}:Blind", "FrozenLake-v1", "--json"])
    assert shown.exit_code == 1
    blind, lake = json.loads(shown.stdout)["checks"]
    failed = [finding for finding in blind["findings"] if not finding["passed"]]
    assert [finding["name"] for finding in failed] == ["observations"]
    assert "nan at [0]" in failed[0]["detail"]
    assert (blind["passed"], lake["passed"], lake["env"]) == (False, True, "FrozenLake-v1")
    assert "FrozenLakeEnv" in lake["findings"][0]["detail"]
