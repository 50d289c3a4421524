"""The suite: its names, its rounds, and that each kind of case gives a figure."""

from __future__ import annotations

import pytest

from operant.bench.suite.case import Case, Once
from operant.bench.suite.cases import suite_cases
from operant.bench.suite.machine_noise import Noise, NoiseMeter, probe_speed
from operant.bench.suite.measure import Result, measure
from operant.vector.registry import env_ids


def finished(cases: list[Case], rounds: int, seconds: float = 0.001) -> tuple[list[str], Result]:
    said, measuring = [], measure(cases, rounds, seconds)
    while True:
        try:
            said.append(next(measuring))
        except StopIteration as end:
            return said, end.value


def test_everyone_has_a_turn_in_each_round() -> None:
    log: list[str] = []

    class Logged(Once):
        def __init__(self, name: str) -> None:
            self.name = name

        def measure(self, seconds: float) -> float:
            log.append(self.name)
            return float(len(log))

        def close(self) -> None:
            log.append(f"{self.name} closed")

    cases = [
        Case("a", "s", lambda: Logged("a")),
        Case("b", "s", lambda: Logged("b"), most_rounds=1),
        Case("c", "s", lambda: Logged("c")),
    ]
    said, result = finished(cases, 2)
    assert log == ["a", "b", "c", "a", "c", "c closed", "b closed", "a closed"]
    assert [one.rounds for one in result.measured] == [[1.0, 4.0], [2.0], [3.0, 5.0]]
    assert said[:3] == ["opening a", "opening b", "opening c"]
    assert said[3:] == [f"round {r} of 2: {n}" for r, n in ((1, "a"), (1, "b"), (1, "c"))] + [
        "round 2 of 2: a",
        "round 2 of 2: c",
    ]


def test_what_fails_is_left_out_with_its_reason() -> None:
    def refuses() -> Once:
        raise ValueError("no such thing\nand more")

    def breaks() -> float:
        raise RuntimeError

    cases = [
        Case("a", "s", refuses),
        Case("b", "s", lambda: Once(breaks)),
        Case("c", "s", lambda: Once(lambda: 1.0)),
    ]
    _, result = finished(cases, 3)
    assert [one.trouble for one in result.measured] == ["no such thing", "RuntimeError", ""]
    assert result.measured[2].rounds == [1.0, 1.0, 1.0]


def test_names() -> None:
    quick, full = ([case.name for case in suite_cases(suite, "cpu")] for suite in ("quick", "full"))
    assert len(set(full)) == len(full)
    assert set(quick) < set(full)
    for env_id in env_ids():
        assert {f"vecenv_step/{env_id}/cpu", f"vecenv_step/{env_id}/reference"} <= set(full)
    kinds = {name.partition("/")[0] for name in quick}
    assert kinds >= {"vecenv_step", "space_flatten", "gae_compute", "policy_forward", "buffer_add"}
    only = [case.name for case in suite_cases("full", "cpu", ["gae_compute", "*CartPole*/serial"])]
    assert only == [
        "vecenv_step/gymnasium:CartPole-v1/serial",
        "gae_compute/numba",
        "gae_compute/torch",
    ]
    with pytest.raises(ValueError, match="no case of the quick suite is called 'gae'; there are"):
        suite_cases("quick", "cpu", ["gae"])
    with pytest.raises(ValueError, match="quick or full, got 'slow'"):
        suite_cases("slow", "cpu")


def test_each_kind_of_case_gives_a_figure() -> None:
    """One of each; the others of a kind differ in sizes. Trainings and processes: with the CLI."""
    only = [
        "vecenv_step/CartPole-v1/cpu",
        "vecenv_step/CartPole-v1/reference",
        "vecenv_step/gymnasium:CartPole-v1/serial",
        "env_memory",
        "space_flatten",
        "space_unflatten",
        "gae_compute",
        "buffer_add",
        "metrics_publish",
        "policy_forward/64",
        "predict/1",
        "update/eager",
        "start_import",
        "checkpoint_save",
        "checkpoint_load",
    ]
    cases = suite_cases("quick", "cpu", only)
    _, result = finished(cases, 1)
    assert len(cases) == len(only)
    for one in result.measured:
        assert not one.trouble, one
        assert one.rounds[0] > 0, one
    records = {one.case.name: one.record() for one in result.measured}
    assert records["policy_forward/64/cpu"]["p99"] >= records["policy_forward/64/cpu"]["low"]
    # CartPole: 4 numbers of state and observation each, reward, flags, counters, streams.
    assert 50 < records["env_memory/CartPole-v1/cpu"]["median"] < 2048


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Noise(1e6, 0.01, 0.1), ""),
        (Noise(1e6, 0.01, 0.5), "others used 0.50 cores of this machine"),
        (Noise(1e6, 0.2, 0.1), "the speed of this machine's cores varied by 20%"),
    ],
)
def test_a_busy_machine_is_refused(noise: Noise, words: str) -> None:
    assert noise.trouble.startswith(words)
    assert bool(noise.trouble) == bool(words)


def test_the_meter_counts_what_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from operant.bench.suite import machine_noise

    busy, own, now, speeds = iter([10.0, 16.0]), iter([1.0, 5.0]), iter([0.0, 4.0]), [1.0, 2.0, 4.0]
    monkeypatch.setattr(machine_noise, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(machine_noise, "_own_s", lambda: next(own))
    monkeypatch.setattr(machine_noise.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(machine_noise, "probe_speed", lambda: speeds.pop(0))
    meter = NoiseMeter()
    meter.probe()
    meter.probe()
    found = meter.read()
    assert (found.speed, found.busy) == (2.0, 0.5)
    assert found.unsteady == pytest.approx((3.0 - 1.5) / 2.0)


def test_own_time_is_seen_as_ours() -> None:
    meter = NoiseMeter()
    assert probe_speed() > 0
    found = meter.read()
    assert found.speed > 0
    assert found.busy >= 0
