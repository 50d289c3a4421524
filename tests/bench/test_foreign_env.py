"""Gymnasium's environments in `operant bench env`: who takes part, what is made of the rounds."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from operant.bench.foreign_env import (
    ForeignContender,
    foreign_contenders,
    foreign_records,
    measure_foreign,
)
from operant.cli.bench import app
from operant.cli.screen import UserError
from operant.cli.target import load_env
from operant.vector.foreign_env import ForeignEnv

CARTPOLE = "gymnasium:CartPole-v1"


def load(target: str) -> ForeignEnv:
    found = load_env(target)
    assert isinstance(found, ForeignEnv)
    return found


def test_everyone_steps_and_is_closed() -> None:
    peers = ["serial", "gymnasium-sync", "gymnasium-vector"]
    everyone = foreign_contenders(load(CARTPOLE), [3], [1], peers, ["serial", "processes"])
    said = list(measure_foreign(everyone, repeats=2, seconds=0.001))
    assert len(said) == len(everyone) * 3
    found = foreign_records(everyone)
    systems = [(row["system"], row["backend"]) for row in found]
    assert systems[:3] == [("serial", "loop"), ("operant", "serial"), ("operant", "processes")]
    assert systems[3:] == [("gymnasium-sync", ""), ("gymnasium-vector", "")]
    assert set(found[2]["ratio_to"]) == set(peers)
    assert all(row["repeats"] == 2 and row["sps"] > 0 for row in found)


def test_ratios_are_of_the_same_round() -> None:
    def contender(system: str, workers: int, rounds: list[float]) -> ForeignContender:
        space = load(CARTPOLE)().action_space
        return ForeignContender(system, "x", "", 4, workers, lambda: None, space, rounds)  # type: ignore[arg-type, return-value]

    loop, ours = contender("serial", 1, [100, 50, 200]), contender("operant", 1, [150, 75, 300])
    assert foreign_records([loop, ours])[1]["ratio_to"] == {"serial": 1.5}
    assert foreign_records([loop, ours])[1]["share_of_cores"] == 1.5
    # 1e6 / 150 - 1e6 / 100 = -3333.3 us; -6666.7 and -1666.7 in the other rounds
    assert foreign_records([loop, ours])[1]["overhead_us"] == pytest.approx(-3333.333)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([CARTPOLE, "--peers", "pufferlib"], "unknown peer 'pufferlib'"),
        ([CARTPOLE, "--backend", "cuda"], "backend must be one of auto, serial"),
        (["gymnasium:Nope-v9"], "Nope"),
        ([CARTPOLE, "CartPole-v1"], "in a run of their own"),
    ],
)
def test_what_cannot_be_measured(arguments: list[str], sentence: str) -> None:
    shown = CliRunner().invoke(app, ["env", *arguments])
    assert isinstance(shown.exception, UserError)
    assert sentence in str(shown.exception)


def test_one_that_computes_as_json() -> None:
    options = ["--compute-us", "20", "--num-envs", "2", "--backend", "serial", "--json", "-"]
    shown = CliRunner().invoke(app, ["env", *options, "--repeats", "1", "--seconds", "0.001"])
    rows = json.loads(shown.stdout)["results"]
    assert [row["env"] for row in rows] == ["computes 20 us"] * 2
