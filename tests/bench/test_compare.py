"""Artifacts side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operant.bench.compare import compare, config_changes, lines, trend_records

Sample = Callable[..., dict[str, Any]]


def test_ratios_by_mode(sample: Sample) -> None:
    one = sample(100.0, ("env_only", "trainer"))
    other = sample(150.0, ("trainer", "trainer_eval"), id="ffffffff")
    found = compare(one, other)
    (mode,) = found["modes"]
    assert mode == {
        "mode": "trainer",
        "a": 100.0,
        "b": 150.0,
        "ratio": 1.5,
        "a_spread": 0.2,
        "b_spread": 0.2,
        "exceeds_spread": True,
    }
    assert (found["a"]["id"], found["b"]["id"]) == ("0123abcd", "ffffffff")
    assert found["same_machine"] is True
    assert found["config_changes"] == {}


def test_rounds_that_mix_do_not_exceed_the_spread(sample: Sample) -> None:
    (mode,) = compare(sample(100.0), sample(115.0))["modes"]
    assert (mode["ratio"], mode["exceeds_spread"]) == (1.15, False)


def test_what_else_differs_is_said(sample: Sample) -> None:
    one, other = sample(), sample()
    other["machine"]["fingerprint"] = "b" * 12
    other["config"]["env"]["num_envs"] = 9
    other["config"]["ppo"]["new"] = 1
    found = compare(one, other)
    assert found["same_machine"] is False
    assert found["config_changes"] == {"env.num_envs": [128, 9], "ppo.new": [None, 1]}
    assert config_changes(other["config"], one["config"])["ppo.new"] == [1, None]


def test_what_cannot_be_compared(sample: Sample) -> None:
    with pytest.raises(ValueError, match="first artifact is of CartPole-v1, the second of Acro"):
        compare(sample(), sample(env="Acrobot-v1"))
    with pytest.raises(ValueError, match="no mode in common"):
        compare(sample(modes=("trainer",)), sample(modes=("env_only",)))


def test_a_line_for_each_environment_mode_and_machine(sample: Sample) -> None:
    elsewhere = sample(70.0)
    elsewhere["machine"] |= {"fingerprint": "b" * 12, "cpu": "Another"}
    artifacts = [sample(100.0), elsewhere, sample(130.0, ("env_only", "trainer"))]
    found = lines(artifacts)
    cpu = "A fast processor"
    assert [(line.mode, line.cpu) for line in found] == [
        ("trainer", cpu),
        ("trainer", "Another"),
        ("env_only", cpu),
    ]
    here = found[0]
    assert [(p.position, p.median, p.low, p.high) for p in here.points] == [
        (0, 100.0, 90.0, 110.0),
        (2, 130.0, 117.0, 143.0),
    ]
    assert here.points[0].commit == "0a1b2c3"
    first, second, third = trend_records(found)
    assert (first["change"], second["change"], third["change"]) == (0.3, 0.0, 0.0)
    assert [point["sps"] for point in first["points"]] == [100.0, 130.0]
