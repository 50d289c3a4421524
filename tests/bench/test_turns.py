"""Two sides that take turns: invented ones, whose speed is known, and the process itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.bench import side_child, sides
from operant.bench.sides import RequestError, Side, SideError
from operant.bench.trees import Tree
from operant.bench.turns import Measured, Row, measure, resized, usual_rows

ENV, PPO = Row("env-x", "env", "X", 10), Row("ppo-x", "ppo", "X", 10, 4, "fused")
IMPORT, START = Row("import", "import", clock="cpu"), Row("start", "start", "X", clock="cpu")


class Invented:
    """A side that says how long it took; nothing runs."""

    opened = 0

    def __init__(self, log: list[str], name: str, slowdown: float, cannot: str = "") -> None:
        self.log, self.name, self.slowdown, self.cannot = log, name, slowdown, cannot
        self.random = np.random.default_rng(len(log))
        self.started = {"wall": 1.0, "cpu": self._seconds(0.2)}
        self.waits = 1.0
        log.append(f"{name} starts")

    def _seconds(self, seconds: float) -> float:
        return float(seconds * self.slowdown * self.random.lognormal(0.0, 0.01))

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.log.append(f"{self.name} {do}")
        if do == "open" and more["row"]["kind"] == self.cannot:
            raise RequestError(f"{self.name}: no such thing")
        if do == "open":
            return {"size": 100, "total_cpu": self._seconds(2.0)}
        seconds = self._seconds(0.001 * more.get("count", 0))
        return {"wall": seconds * self.waits, "cpu": seconds}

    def close(self) -> None:
        self.log.append(f"{self.name} ends")


def run(measuring: Generator[str, None, list[Measured]]) -> tuple[list[str], list[Measured]]:
    said = []
    while True:
        try:
            said.append(next(measuring))
        except StopIteration as end:
            return said, end.value


def both(
    slowdown: float, cannot: str = ""
) -> tuple[list[str], Callable[[], Any], Callable[[], Any]]:
    log: list[str] = []
    return log, lambda: Invented(log, "A", 1.0), lambda: Invented(log, "B", slowdown, cannot)


@pytest.mark.parametrize(
    ("slowdown", "verdict"), [(1.0, "equal"), (1.1, "slower"), (1 / 1.1, "faster")]
)
def test_ratios_are_those_of_the_speeds(slowdown: float, verdict: str) -> None:
    log, old, new = both(slowdown)
    said, found = run(measure([ENV, PPO, IMPORT, START], old, new, 12, 0.3))
    for one in found:
        record = one.record("0a1b", "2c3d")
        assert record["verdict"] == verdict, record
        assert record["ratio"] == pytest.approx(1 / slowdown, rel=0.02)
        assert record["low"] <= record["ratio"] <= record["high"]
        assert (record["old"], record["new"], len(record["rounds"])) == ("0a1b", "2c3d", 12)
    env, _, imports, starts = (one.record("", "") for one in found)
    assert (env["unit"], env["num_envs"]) == ("steps/s", 10)
    assert env["old_figure"] == pytest.approx(100 / 0.001, rel=0.02)
    assert (imports["unit"], starts["unit"]) == ("s", "s")
    assert imports["new_figure"] == pytest.approx(0.2 * slowdown, rel=0.02)
    assert starts["new_figure"] == pytest.approx(2.0 * slowdown, rel=0.02)
    assert len(said) == 13 * 5 - 1  # an import compiles nothing
    assert (said[2], said[-1]) == ("compiling: env-x", "round 12 of 12: import")
    assert log.count("A starts") == log.count("A ends") == log.count("B ends") == 13 + 12 * 6


def test_waiting_is_seen_by_the_wall_alone() -> None:
    _, old, new = both(1.0)

    def waiting() -> Any:
        side = new()
        side.waits = 1.2
        return side

    _, (cores, wall) = run(
        measure([replace(ENV, clock="cpu"), replace(ENV, name="wall")], old, waiting, 12, 0.1)
    )
    record = cores.record("", "")
    assert record["ratio"] == pytest.approx(1.0, rel=0.02)
    assert record["wall_ratio"] == pytest.approx(1 / 1.2, rel=0.02)
    assert record["verdict"] == "slower by wall"
    assert wall.record("", "")["verdict"] == "slower"


def test_turns_are_abba_and_both_sides_come_first() -> None:
    log, old, new = both(1.0)
    run(measure([ENV], old, new, 8, 0.2))
    order = "".join(line[0] for line in log if line.endswith("run"))[3:]  # 3 that find the time
    assert len(order) == 8 * 4 * 5  # 20 ms a slice, 2 slices a side in a turn: 5 turns
    turns = [order[k : k + 4] for k in range(0, len(order), 4)]
    assert set(turns) == {"ABBA", "BAAB"}
    assert len({line[0] for line in log if line.endswith("starts")}) == 2


def test_what_a_side_cannot_do_is_left_out_with_the_reason() -> None:
    log, old, new = both(1.0, cannot="ppo")
    _, (start, ppo, env) = run(measure([START, PPO, ENV], old, new, 2, 0.1))
    record = ppo.record("", "")
    assert (record["name"], record["verdict"]) == ("ppo-x", "not measured")
    assert record["trouble"] == "B: no such thing"
    assert start.trouble == "B: no such thing"
    assert len(env.ratios["wall"]) == 2
    assert log.count("A ends") == 3


def test_a_side_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log, old, _ = both(1.0)

    def broken() -> Any:
        raise SideError("B ended")

    with pytest.raises(SideError, match="B ended"):
        run(measure([ENV], old, broken, 1, 0.1))
    assert log.count("A starts") == log.count("A ends")


def test_rows() -> None:
    names = ["env-cartpole", "env-pendulum", "env-acrobot", "env-prospector"]
    assert [row.name for row in usual_rows("cpu", 1, "cpu")] == [
        *names,
        *("ppo-fused", "ppo-eager", "import", "start"),
    ]
    assert {row.clock for row in usual_rows("cpu", 1, "auto")} == {"cpu"}
    assert {row.clock for row in usual_rows("cpu", 2, "auto")} == {"wall"}
    there = usual_rows("cuda:0", 1, "auto")
    assert {row.clock for row in there} == {"wall"}
    assert [row.name for row in there if row.kind == "ppo"] == [
        *("ppo-fused", "ppo-graph", "ppo-eager")
    ]
    assert {row.device for row in there} == {"cuda:0", "cpu"}  # an import is on no device
    for device, clock in (("cuda", "cpu"), ("cpu", "sun")):
        with pytest.raises(ValueError, match="the clock must be "):
            usual_rows(device, 1, clock)


def test_the_process_answers() -> None:
    here = {"device": "cpu", "threads": 1}
    rows = [
        {"kind": "env", "env": "CartPole-v1", "num_envs": 8, **here},
        {"kind": "ppo", "env": "CartPole-v1", "num_envs": 8, "num_steps": 4, "engine": "eager"},
        {"kind": "env", "env": "Nothing-v0", "num_envs": 8, **here},
        {"kind": "ppo", "env": "CartPole-v1", "num_envs": 8, "num_steps": 4, "engine": "graph"},
    ]
    asked: list[dict[str, Any]] = []
    for row in rows:
        asked.append({"do": "open", "row": {**row, **here}})
        asked += [{"do": "run", "count": 2}, {"do": "close"}] if len(asked) < 6 else []
    first, *rest = side_child.answers(json.dumps(one) for one in asked)
    assert Path(first["file"]).name == "__init__.py"
    assert first["wall"] >= 0
    for opened, ran, closed in (rest[:3], rest[3:6]):
        assert opened["total_cpu"] > 0
        assert ran["wall"] > 0
        assert ran["cpu"] > 0
        assert closed == {}
    assert (rest[0]["size"], rest[3]["size"]) == (16 * 8, 8 * 4)
    assert "Nothing-v0" in rest[6]["error"]
    assert "engine eager" in rest[7]["error"]


def test_a_tree_that_cannot_be_imported(tmp_path: Path) -> None:
    package = tmp_path / "src" / "operant"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import this_is_not_installed")
    with pytest.raises(SideError, match=r"^old ended with exit code 1: ModuleNotFoundError"):
        Side(Tree("old", tmp_path))
    (package / "__init__.py").unlink()  # then there is another one on the path
    with pytest.raises(SideError, match="which is not its own"):
        Side(Tree("old", tmp_path))


def test_a_process_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "operant"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(sides, "_CHILD", Path(side_child.__file__))
    with Side(Tree("0123456789abcdef", tmp_path, is_commit=True)) as side:
        with pytest.raises(RequestError, match=r"^0123456789ab: "):
            side.ask("open", row={"kind": "env"})  # this package can do nothing
        side._process.kill()
        with pytest.raises(SideError, match="ended with exit code -9: silent"):
            side.ask("run", count=1)


def test_rows_of_another_size() -> None:
    rows = usual_rows("cpu", 1, "auto")
    other = {row.name: row.num_envs for row in resized(rows, 7)}
    assert {name for name, count in other.items() if count == 7} == {
        row.name for row in rows if row.name.startswith(("env-", "ppo-"))
    }
    assert other["start"] == 64
    assert resized(rows, 0) == rows
