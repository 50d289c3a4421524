"""Flame graphs, traces and memory of a training."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from operant import PPO
from operant.bench.inside import flame
from operant.bench.inside.flame import Sampler, record_flame
from operant.bench.inside.memory import memory_parts, memory_record
from operant.bench.inside.trace import record_trace
from operant.cli import main


def test_the_sampler_sees_who_waits_where() -> None:
    ready, done = threading.Event(), threading.Event()

    def waits_here() -> None:
        ready.set()
        done.wait()

    other = threading.Thread(target=waits_here, name="the other one")
    other.start()
    ready.wait()
    with Sampler(0.001) as sampler:
        while sampler.looks < 3:
            os.sched_yield()
    done.set()
    other.join()
    found = sampler.speedscope("a name")
    by_name = {one["name"]: one for one in found["profiles"]}
    assert found["profiles"][0]["name"] == "MainThread"
    waiting = by_name["the other one"]
    names = [one["name"] for one in found["shared"]["frames"]]
    for sample in waiting["samples"]:
        stack = [names[k] for k in sample]
        assert any(name.endswith("waits_here") for name in stack)
        assert stack.index(next(n for n in stack if n.endswith("waits_here"))) < len(stack) - 1
    for one in found["profiles"]:
        assert len(one["samples"]) == len(one["weights"]) >= 3
        assert one["endValue"] == pytest.approx(sum(one["weights"]))
    assert "operant-sampler" not in by_name
    assert {"name", "file", "line"} == set(found["shared"]["frames"][0])


def fake_spy(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program called py-spy, found before any other."""
    program = folder / "py-spy"
    program.write_text(f"#!{sys.executable} -S\nimport sys, signal, pathlib\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


WAITS = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("py-spy> Sampling process 200 times a second", flush=True)
signal.sigwait([signal.SIGINT])
"""
WRITES = "pathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text(repr(sys.argv))"


def test_py_spy_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spy(tmp_path, WAITS + WRITES, monkeypatch)
    done: list[int] = []
    assert record_flame(lambda: done.append(1), tmp_path / "f.json", "x") == "py-spy"
    assert done == [1]
    written = (tmp_path / "f.json").read_text()
    assert f"'--pid', '{os.getpid()}'" in written
    assert "'--format', 'speedscope'" in written


def test_where_py_spy_may_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spy(tmp_path, "print('Error: Permission Denied'); sys.exit(1)", monkeypatch)
    done: list[int] = []
    who = record_flame(lambda: done.append(1), tmp_path / "f.json", "x")
    assert who == "the built-in sampler (py-spy may not look: Error: Permission Denied)"
    assert done == [1]
    assert json.loads((tmp_path / "f.json").read_text())["name"] == "x"


def test_py_spy_that_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spy(tmp_path, WAITS, monkeypatch)
    with pytest.raises(ValueError, match="py-spy may not look: py-spy> Sampling"):
        record_flame(lambda: None, tmp_path / "f.json", "x")


def test_a_trace_names_the_parts(tmp_path: Path) -> None:
    ppo = PPO("CartPole-v1", num_envs=8, num_steps=8, engine="eager", device="cpu", minibatches=2)
    engine = ppo.engine
    count = record_trace(ppo, 2 * 64, tmp_path / "t.json")
    assert ppo.engine is engine
    assert ppo.steps == 128
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = [one["name"] for one in events if one.get("cat") == "user_annotation"]
    assert sorted(named) == sorted(["collect", "advantages", "update"] * 2)
    assert count > 50


def test_memory_is_what_the_arrays_take() -> None:
    sizes = {"num_envs": 8, "num_steps": 16, "hidden": [4], "shared": False}
    ppo = PPO("CartPole-v1", engine="eager", device="cpu", normalize_obs=False, **sizes)
    parts = {one.name: one for one in memory_parts(ppo)}
    parameters = 2 * (4 * 4 + 4) + (4 * 2 + 2) + (4 + 1)
    assert parts["networks"].nbytes == 4 * parameters
    assert parts["optimiser"].nbytes == 2 * 4 * parameters
    # obs of 17 steps, an int64 action, six float32 and two flags of 16 steps, and the last value
    rollout = 8 * (17 * 16 + 16 * (8 + 6 * 4 + 2) + 4)
    assert parts["rollout"].nbytes == rollout
    assert parts["rollout"].each == rollout / 8
    assert parts["environments"].nbytes > 8 * 16
    found = memory_record(ppo, 5)
    assert found["process_before"] == 5
    assert 0 < found["process_now"] <= found["process_peak"] * 1.1
    ppo.env.close()


def test_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flame.shutil, "which", lambda name: None)
    small = ("--set", "env.num_envs=8", "--set", "ppo.num_steps=8", "--seconds", "0.001")
    where = ("--device", "cpu", "--engine", "eager")

    def profile(*arguments: str) -> tuple[int, str, str]:
        command = ["operant", "profile", "CartPole-v1", *small, *where, *arguments]
        monkeypatch.setattr(sys, "argv", command)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    files = ("--flame", "new/f.json", "--trace", "t.json")
    code, out, err = profile(*files, "--memory")
    assert code == 0, err
    assert "new/f.json: open it in speedscope" in out
    assert "t.json:" in out
    assert "rollout" in out
    assert not (tmp_path / "artifacts").exists()  # nothing was measured
    code, out, err = profile("--memory", "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert {one["name"] for one in found["memory"]["parts"]} >= {"rollout", "networks"}
    code, out, err = profile("--trace", str(tmp_path))
    assert (code, out) == (2, "")
    assert "it is a folder" in " ".join(err.split())
