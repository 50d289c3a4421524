"""The commands as a user types them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import operant
from operant.cli import main

ROOT = Path(__file__).parents[2]
Cli = Callable[..., tuple[object, str, str]]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "operant", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
    )


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The same in this process, which has imported everything: exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(ROOT)

    def invoke(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return invoke


def test_version_and_help(cli: Cli) -> None:
    assert run("--version").stdout == f"operant {operant.__version__}\n"
    for command in (["envs"], ["check"], ["bench", "env"]):
        code, out, _ = cli(*command, "--help")
        assert code == 0
        assert "Example:" in out


def test_options_typed_as_commands(cli: Cli) -> None:
    said = {("help",): "operant --help", ("help", "train"): "operant train --help"}
    for words, write in {**said, ("version",): "operant --version"}.items():
        code, _, err = cli(*words)
        assert code == 2
        assert err == f"operant: there is no command {words[0]!r}; write {write}\n"


def test_no_arguments_show_the_help() -> None:
    shown = run()
    assert "bench" in shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr


def test_envs_lists_everything(cli: Cli) -> None:
    _, text, _ = cli("envs")
    data = json.loads(cli("envs", "--json")[1])
    assert [row["id"] for row in data["envs"]] == operant.envs.env_ids()
    for row in data["envs"]:
        assert row["id"] in text
        assert row["backends"] == ["reference", "cpu"]
    cartpole = next(row for row in data["envs"] if row["id"] == "CartPole-v1")
    assert cartpole["action_space"] == "Discrete(2)"
    assert cartpole["params"]["gravity"] == 9.8


def test_check_passes_a_user_environment(cli: Cli) -> None:
    code, out, err = cli("check", "examples/lander.py:Lander")
    assert code == 0, out + err
    assert "passed" in out
    assert re.search(r"reference \d.*, cpu \d.* steps/s \((64 and )?4096 environments\)\n", out)
    assert "FAIL" not in out


def test_check_finds_the_only_class_and_prints_json(cli: Cli) -> None:
    code, out, err = cli("check", "examples/lander.py", "--json", "--no-speed")
    assert code == 0, err
    (report,) = json.loads(out)["checks"]
    assert report["passed"] is True
    assert report["sps"] == report["num_envs"] == {}
    assert {finding["name"] for finding in report["findings"]} >= {"definition", "parity"}


def test_check_by_module_name() -> None:
    shown = run("check", "lander:Lander", "--no-speed", cwd=ROOT / "examples")
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_check_fails_with_exit_code_1(cli: Cli) -> None:
    code, out, _ = cli("check", "tests/broken_envs.py:IgnoresActions", "--no-speed")
    assert code == 1
    assert "FAIL" in out
    assert "step() never uses `action`" in out


def test_check_shows_where_a_definition_was_refused(cli: Cli) -> None:
    code, out, err = cli("check", "tests/broken_definition.py")
    assert code == 1
    assert "broken_definition.py:21: `if` on a value" in out
    assert "where(condition, a, b)" in out
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "Cartpol-v1"], "did you mean CartPole-v1"),
        (["check", "examples/nothing.py:Lander"], "there is no file 'examples/nothing.py'"),
        (["check", "no_such_module:Env"], "there is no module 'no_such_module'"),
        (["check", "examples/lander.py:Landr"], "no environment 'Landr'; it has: Lander"),
        (["check", "tests/broken_envs.py"], "name one: tests/broken_envs.py:Class"),
        (["bench", "env", "--env", "Nope-v9"], "unknown environment 'Nope-v9'"),
        (["bench", "env", "--peers", "pufferlib"], "unknown peer 'pufferlib'"),
        (
            ["bench", "env", "--backend", "tpu"],
            "backend must be 'auto', 'reference', 'cpu' or 'cuda'",
        ),
        (["bench", "env", "--workers", "100000"], "workers must be between 1 and"),
        (["bench", "env", "--num-envs", "0"], "--num-envs"),
        (["bench", "env", "--json", "/proc/nowhere/x.json", "--seconds", "0.001"], "cannot write"),
        (["nonsense"], "nonsense"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    cli: Cli, arguments: list[str], sentence: str
) -> None:
    code, out, err = cli(*arguments)
    assert code == 2, out + err
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err


def test_a_mistake_of_a_process() -> None:
    shown = run("check", "Cartpol-v1")
    assert shown.returncode == 2, shown.stdout + shown.stderr
    assert "did you mean CartPole-v1" in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.stderr


def test_bench_writes_the_frame(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "bench.json"
    sizes = ["--num-envs", "64", "--num-envs", "128", "--workers", "1", "--workers", "2"]
    short = ["--repeats", "3", "--seconds", "0.01"]
    arguments = ["bench", "env", *sizes, "--peers", "gymnasium", *short, "--json", str(target)]
    code, out, err = cli(*arguments)
    assert code == 0, err
    assert "CartPole-v1" in out
    data = json.loads(target.read_text())
    assert set(data) == {"machine", "commit", "date", "results"}
    assert data["machine"]["versions"]["gymnasium"]
    ours = [row for row in data["results"] if row["system"] == "operant"]
    peers = [row for row in data["results"] if row["system"] == "gymnasium"]
    assert [(row["num_envs"], row["workers"]) for row in ours] == [
        *((64, 1), (64, 2)),
        *((128, 1), (128, 2)),
    ]
    assert [row["num_envs"] for row in peers] == [64, 128]
    for row in ours:
        (peer,) = (p for p in peers if p["num_envs"] == row["num_envs"])
        assert row["ratio_to"]["gymnasium"] == pytest.approx(row["sps"] / peer["sps"], abs=0.01)
        assert row["sps_min"] <= row["sps"] <= row["sps_max"]
        assert row["repeats"] == 3


def test_bench_json_to_standard_output_is_only_json() -> None:
    arguments = ["--env", "Pendulum-v1", "--num-envs", "16", "--peers", "gymnasium", "--copy"]
    shown = run("bench", "env", *arguments, "--repeats", "1", "--seconds", "0.01", "--json", "-")
    data = json.loads(shown.stdout)
    ours, sync, cartpole = data["results"]
    assert (ours["env"], ours["copy"]) == ("Pendulum-v1", True)
    assert (sync["env"], sync["backend"]) == ("Pendulum-v1", "sync")
    assert (cartpole["env"], cartpole["backend"]) == ("CartPole-v1", "numpy")
    assert set(ours["ratio_to"]) == {"gymnasium", "gymnasium cartpole"}


def test_interrupt_exits_130(unmeasured: Callable[[], dict[str, str]]) -> None:
    terminal, device = pty.openpty()
    command = [sys.executable, "-m", "operant", "bench", "env", "--repeats", "100000"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": device}
    # A signal that arrives while coverage holds its lock would wait for ever.
    with subprocess.Popen(command, **pipes, env=unmeasured()) as process:
        os.close(device)
        shown = b""
        try:
            while b"round 1 of 100000" not in shown:
                shown += os.read(terminal, 1000)
            process.send_signal(signal.SIGINT)
            while b"operant: interrupted\r\n" not in shown:
                shown += os.read(terminal, 1000)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
            os.close(terminal)
    assert b"Traceback" not in shown


SWALLOWS = """
import os, signal, sys, time, weakref
import operant.cli
from operant.cli.screen import verb

class Thing: pass

def dropped(reference):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)

@verb
def command():
    thing = Thing()
    reference = weakref.ref(thing, dropped)
    del thing  # the interrupt is raised in the callback, where Python drops it
    print("dropped", flush=True)
    if sys.argv[1] == "error":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            raise RuntimeError("what a compiler makes of it") from None
    time.sleep(60)

operant.cli.app = command
operant.cli.main()
"""


@pytest.mark.parametrize("then", ["sleep", "error"])
def test_an_interrupt_that_got_lost_is_raised_again(then: str) -> None:
    command = [sys.executable, "-c", SWALLOWS, then]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (130, "dropped\n")
    assert ended.stderr == "operant: interrupted\n"
