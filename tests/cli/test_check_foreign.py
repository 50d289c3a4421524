"""`operant check` of environments that operant does not compile."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from operant.cli import app
from operant.cli.screen import UserError

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


def test_an_id_is_checked_as_it_is_trained() -> None:
    shown = CliRunner().invoke(app, ["check", "MiniGrid-Empty-5x5-v0", "--json", "--no-speed"])
    assert shown.exit_code == 0, shown.stdout
    [report] = json.loads(shown.stdout)["checks"]
    assert report["findings"][0]["detail"].endswith("EmptyEnv, in ImgObsWrapper")


def test_parameters_and_wrappers_are_set() -> None:
    sets = ["env.params.is_slippery=false", "env.max_episode_steps=3"]
    wrappers = 'env.wrappers=["gymnasium.wrappers:FlattenObservation"]'
    command = ["check", "FrozenLake-v1", "--json", "--no-speed", "--set", wrappers]
    shown = CliRunner().invoke(app, [*command, *(word for one in sets for word in ("--set", one))])
    assert shown.exit_code == 0, shown.stdout
    details = {
        one["name"]: one["detail"] for one in json.loads(shown.stdout)["checks"][0]["findings"]
    }
    assert details["made"].endswith("FrozenLakeEnv, in FlattenObservation")
    assert "Box(" in details["spaces"]
    lengths = float(details["episodes"].partition("mean length ")[2].partition(",")[0])
    assert 2 <= lengths <= 3
    assert details["seeds"].startswith("every seed gives the same steps")


def test_what_cannot_be_set() -> None:
    other = CliRunner().invoke(app, ["check", "FrozenLake-v1", "--set", "ppo.clip=0.1"])
    assert isinstance(other.exception, UserError)
    known = "check can set env.params, env.wrappers, env.max_episode_steps"
    assert str(other.exception) == f"{known}, got ppo.clip"
    compiled = CliRunner().invoke(app, ["check", "CartPole-v1", "--set", "env.params.gravity=1"])
    assert isinstance(compiled.exception, UserError)
    assert "CartPole-v1 is checked as its class defines it" in str(compiled.exception)
