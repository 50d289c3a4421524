"""The frame around benchmark records, and how they are made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operant.bench import env as bench_env
from operant.bench import frame as bench_frame
from operant.toolchain import machine


def test_frame_has_machine_commit_date_and_results() -> None:
    data = bench_frame.frame([{"system": "operant", "sps": 1}])
    assert list(data) == ["machine", "commit", "date", "results"]
    assert data["results"] == [{"system": "operant", "sps": 1}]
    assert data["machine"]["cores"] >= 1
    assert data["machine"]["versions"]["numpy"]
    assert data["date"].endswith("+00:00")
    json.dumps(data)


def test_commit_is_the_checkouts_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "git_commit", lambda folder: f"commit of {folder.name}")
    monkeypatch.setattr(machine, "is_tracked", lambda path: path.name == "machine.py")
    assert machine.commit() == "commit of toolchain"
    monkeypatch.setattr(machine, "is_tracked", lambda path: False)  # it was installed
    assert machine.commit() is None


def test_write_json_makes_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a" / "b.json"
    bench_frame.write_json(str(target), {"x": 1})
    assert json.loads(target.read_text()) == {"x": 1}
    bench_frame.write_json("-", {"x": 2})
    assert json.loads(capsys.readouterr().out) == {"x": 2}


def test_median_and_ratios() -> None:
    def contender(system: str, env: str, num_envs: int, *rounds: float) -> bench_env.Contender:
        one = bench_env.Contender(system, env, "cpu", num_envs, 1, False, lambda: None)
        one.rounds.extend(rounds)
        return one

    everyone = [
        contender("operant", "Pendulum-v1", 8, 90.0, 100.0, 400.0),
        contender("gymnasium", "Pendulum-v1", 8, 10.0),
        contender("gymnasium", "CartPole-v1", 8, 20.0),
        contender("gymnasium", "CartPole-v1", 16, 1.0),
    ]
    ours, *others = bench_env.records(everyone)
    assert ours["sps"] == 100
    assert ours["ratio_to"] == {"gymnasium": 10.0, "gymnasium cartpole": 5.0}
    assert all(row["ratio_to"] == {} for row in others)


def test_rounds_are_interleaved() -> None:
    order: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def reset(self) -> None:
            order.append(f"reset {self.name}")

        def step(self, actions: object) -> None:
            order.append(self.name)

        def close(self) -> None:
            order.append(f"close {self.name}")

    everyone = [
        bench_env.Contender(name, "CartPole-v1", "cpu", 4, 1, False, lambda name=name: Fake(name))
        for name in "ab"
    ]
    doing = list(bench_env.measure(everyone, repeats=3, seconds=1e-9))
    steps = [name for name in order if len(name) == 1]
    assert "".join(steps[-6:]) == "ababab"
    assert order[-2:] == ["close a", "close b"]
    assert doing[-1] == "round 3 of 3: b CartPole-v1 x4"
    assert [len(one.rounds) for one in everyone] == [3, 3]
