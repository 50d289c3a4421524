"""Train in the background, watch, read the log, stop: the commands as a user types them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from operant.cli import main
from operant.monitor.source import Source
from operant.runs.checkpoint import list_checkpoints
from operant.runs.directory import Run, find_run
from operant.runs.logs import read_csv
from operant.toolchain import paths
from operant.utils import Logger

SMALL = ["--set", "env.backend=reference", "--set", "env.num_envs=8", "--set", "ppo.num_steps=16"]
SMALL += ["--set", "policy.hidden=[8]", "--set", "run.eval_episodes=5", "--set", "run.threads=1"]
OPERANT = [sys.executable, "-m", "operant"]


def kill_all(home):
    """End what runs with this home, which is ours alone: also what a failing test left."""
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("OPERANT_HOME") == str(home)
            if ours and process.pid != os.getpid():
                process.kill()
        except psutil.Error:
            continue


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "120")
        try:
            yield home
        finally:
            kill_all(home)


@pytest.fixture
def cli(home, monkeypatch, capsys):
    monkeypatch.setenv("OPERANT_HOME", str(home))  # and so after a test: --home changes it

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *arguments])
        found = 0
        try:
            main()
        except SystemExit as end:
            found = end.code or 0
        out, err = capsys.readouterr()
        assert found == code, err
        assert "Traceback" not in err
        return out, err

    return run


def detach(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*OPERANT, "train", *arguments, "--detach"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.02)


def end_of(run_id: str) -> str:
    """The status at the end of a run that ends by itself."""
    source = Source(find_run(run_id))
    until(lambda: not source.read().live)
    return source.read().status


def is_gone(pid: int) -> bool:
    """Whether a process has ended; it may stay a zombie, nobody being there to wait for it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def base(home):
    """A run of 512 steps, trained in the background; what the command said."""
    done = detach("CartPole-v1", *SMALL, "--total-steps", "512", "--run-id", "base")
    assert done.returncode == 0, done.stderr
    status = end_of("base")
    pid = Source(find_run("base")).read().pid
    until(lambda: is_gone(pid))
    return done, status


@pytest.fixture
def stub(home):
    """A run of a process that holds its lock and does not stop when asked to."""
    code = """
import signal, time
from operant.utils import Logger
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
log = Logger("stub")
log.log(step=7)
print(log.run_id, flush=True)
while True:
    time.sleep(0.01)
    while asked:
        log.log(asked=asked.pop())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


# In the background --------------------------------------------------------------------------
def test_a_detached_training_prints_its_name_and_ends_by_itself(base, home):
    done, status = base
    assert done.stdout == "base\n"
    assert "operant monitor base" in done.stderr
    assert "operant stop base" in done.stderr
    assert status == "finished"
    assert read_csv(find_run("base").csv_file)["steps"][-1] == 512
    assert "not solved: return" in (home / "detached" / "base.log").read_text()


def test_stop_ends_a_detached_training(cli, home):
    """It is interrupted with a checkpoint, and whoever follows its log sees the end."""
    done = detach("CartPole-v1", *SMALL, "--total-steps", "1e9", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    name = found["run_id"]
    assert re.fullmatch(r"cartpole-v1-\d{8}-\d{6}", name)
    assert Path(found["path"]) == home / "runs" / name
    source = Source(find_run(name))
    view = source.read()
    assert view.live
    assert "train" in psutil.Process(view.pid).cmdline()
    assert os.getsid(view.pid) == view.pid  # of no terminal
    until(lambda: source.read().last("iteration") >= 2)
    with subprocess.Popen(
        [*OPERANT, "logs", name, "-f"], stdout=subprocess.PIPE, text=True
    ) as follower:
        try:
            assert follower.stdout is not None
            assert "started: CartPole-v1, seed 3" in follower.stdout.readline()
            out, _ = cli("stop", name)
            rest, _ = follower.communicate(timeout=60)
            assert follower.returncode == 0
        finally:
            follower.kill()
    words = re.fullmatch(rf"{name} is interrupted at step ([\d,]+)\n", out)
    assert words, out
    step = int(words[1].replace(",", ""))
    assert step == read_csv(find_run(name).csv_file)["steps"][-1] > 0
    assert int(list_checkpoints(find_run(name).checkpoints)[-1].name) == step
    assert rest.endswith(f"interrupted at step {step:,}\n")
    until(lambda: is_gone(view.pid))
    _, err = cli("stop", name, code=2)
    assert err == f"operant: {name} is not being trained on this machine\n"


def test_a_run_is_resumed_in_the_background(base):
    source = Source(find_run("base"))
    before = source.read()
    done = detach("--resume", "base", "--total-steps", "640")
    assert (done.returncode, done.stdout) == (0, "base\n"), done.stderr
    assert end_of("base") == "finished"
    view = source.read()
    assert view.pid != before.pid
    assert view.table["iteration"].tolist() == [1, 2, 3, 4, 5]
    assert (view.last("steps"), view.total_steps) == (640, 640)
    until(lambda: is_gone(view.pid))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow-control"], "--allow-control goes with --web; in a terminal all keys work"),
        (["--web", "--allow-control", "--read-only"], "not both"),
        (["--web", "--once"], "leave out --once"),
    ],
)
def test_options_that_do_not_go_together(cli, options, message):
    _, err = cli("monitor", *options, code=2)
    assert message in err


def test_what_it_printed_goes_with_the_run(cli, home):
    Run.create("gone")
    printed = home / "detached" / "gone.log"
    printed.parent.mkdir(exist_ok=True)
    printed.write_text("words\n")
    cli("runs", "rm", "gone")
    assert not printed.exists()


def test_a_detached_training_that_cannot_start_says_why(cli, home):
    wrong = ["train", "CartPol-v1", *SMALL, "--run-id", "wrong"]
    _, plain = cli(*wrong, code=2)
    assert "unknown environment 'CartPol-v1'; did you mean CartPole-v1" in plain
    out, err = cli(*wrong, "--detach", code=2)
    assert (out, err) == ("", plain)
    assert not (home / "runs" / "wrong").exists()


def test_what_is_wrong_before_it_starts(cli, home):
    cases = (
        (["CartPole-v1", "--run-id", "a/b"], "a run's name has letters"),
        (["--resume", "nothing-like-it"], "there is no run 'nothing-like-it'"),
        ([], "name an environment"),
        (["CartPole-v1", "--total-steps", "many"], "--total-steps must be a number"),
    )
    for arguments, sentence in cases:
        out, err = cli("train", *arguments, "--detach", code=2)
        assert out == ""
        assert err.startswith(f"operant: {sentence}")
        assert err.count("\n") == 1


# Stop ---------------------------------------------------------------------------------------
def test_a_finished_run_is_not_stopped(cli, base):
    out, err = cli("stop", "base", code=2)
    assert (out, err) == ("", "operant: base is not being trained on this machine\n")


def test_a_training_that_does_not_stop(cli, stub):
    name, process = stub
    out, _ = cli("stop", name, "--timeout", "0")
    assert out == f"{name} was asked to stop\n"
    _, err = cli("stop", name, "--timeout", "0.1", code=2)
    assert (
        err == f"operant: {name} was asked to stop and has not after 0.1 s; process {process.pid}\n"
    )
    found = json.loads(cli("stop", name, "--timeout", "0.1", "--json")[0])
    assert found == {"run_id": name, "pid": process.pid, "status": "running"}
    assert process.poll() is None
    until(lambda: Source(find_run(name)).read().last("asked") == 1)


# Monitor ------------------------------------------------------------------------------------
def test_one_frame(cli, base):
    out, _ = cli("monitor", "base", "--once")
    lines = out.splitlines()
    assert lines[0].startswith("base  finished  CartPole-v1 · eager on cpu")
    assert "steps/s" in lines[1]
    assert "100%" in lines[2]
    assert "mean_return" in lines
    assert "evaluated: " in lines[-1]
    assert max(map(len, lines)) <= 120
    assert "\x1b" not in out


def test_figures_as_json(cli, base):
    found = json.loads(cli("monitor", "base", "--json")[0])
    table = read_csv(find_run("base").csv_file)
    assert (found["run_id"], found["status"], found["env"]) == ("base", "finished", "CartPole-v1")
    for name in ("steps", "iteration", "sps", "mean_return"):
        assert found[name] == found["metrics"][name] == table[name][-1]
    assert found["total_steps"] == found["steps"]
    assert found["heartbeat_age_s"] >= 0
    assert set(table) <= set(found["metrics"])


def test_the_latest(cli, base):
    with Logger("newest", total_steps=4) as log:
        log.log(return_=2.5)
        time.sleep(0.01)
        for words in (["--latest"], ["latest"], [], ["--latest", "latest"]):
            found = json.loads(cli("monitor", *words, "--json")[0])
            assert (found["run_id"], found["status"]) == ("newest", "running")
            assert (found["pid"], found["metrics"]["return"]) == (os.getpid(), 2.5)
    assert cli("monitor", "--once")[0].startswith("newest  finished  ")
    _, err = cli("monitor", "base", "--latest", "--json", code=2)
    assert err == "operant: name a run or say --latest, not both\n"


@pytest.mark.parametrize(
    "words", [["monitor"], ["monitor", "--once"], ["monitor", "--json"], ["stop"], ["logs"]]
)
def test_an_unknown_run(cli, base, words):
    out, err = cli(*words, "bass", code=2)
    assert (out, err) == ("", "operant: there is no run 'bass'; did you mean base?\n")


def test_another_home(cli, tmp_path):
    where = ["--home", str(tmp_path)]
    _, err = cli("monitor", "--once", *where, code=2)
    assert err.startswith("operant: there are no runs yet; ")
    run = tmp_path / "runs" / "elsewhere"
    run.mkdir(parents=True)
    found = json.loads(cli("monitor", "--latest", "--json", *where)[0])
    assert (found["run_id"], found["status"]) == ("elsewhere", "unreadable")
    assert "No such file" in found["problem"]
    assert "No such file" in cli("monitor", "elsewhere", "--once", *where)[0]
    for missing in (tmp_path / "missing", run / "file"):
        (run / "file").touch()
        for how in ([], ["--once"], ["--json"]):
            _, err = cli("monitor", *how, "--home", str(missing), code=2)
            assert err == f"operant: there is no folder {missing}\n"


def test_a_run_elsewhere_in_the_browser(cli, base, tmp_path, monkeypatch):
    web = pytest.importorskip("operant.monitor.web")
    shutil.copytree(find_run("base").path, tmp_path / "elsewhere")
    shown = []
    monkeypatch.setattr(web.MonitorServer, "serve", lambda self: shown.append(self.command[-2]))
    monkeypatch.chdir(tmp_path / "elsewhere")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    for name in (".", "base", "latest"):
        cli("monitor", name, "--web", "--port", port)
    assert shown == [str(tmp_path / "elsewhere"), "base", find_run("latest").id]


# Logs ---------------------------------------------------------------------------------------
def test_logs(cli, base):
    text = find_run("base").log_file.read_text()
    assert text.count("\n") >= 4
    assert cli("logs", "base")[0] == text
    assert cli("logs", "base", "-f")[0] == text  # it is over
    *_, before, last = text.splitlines(keepends=True)
    assert cli("logs", "base", "-n", "1")[0] == last
    assert cli("logs", "base", "--lines", "2", "--follow")[0] == before + last
    assert cli("logs", "base", "-n", "1000")[0] == text


def test_a_log_that_is_strange(cli, base):
    run = Run.create("strange")
    _, err = cli("logs", "strange", code=2)
    assert err == "operant: strange has no log yet\n"
    long = "x" * 200_000
    run.log_file.write_bytes(f"one\x1b[2J\r\n{long}\nlast ä\n".encode() + b"\xff\ntorn")
    for words in (["-f"], []):
        lines = cli("logs", "strange", *words)[0].split("\n")
        assert (lines[0], lines[2:]) == ("one?[2J?", ["last ä", "\ufffd", ""])  # not the torn one
        assert set(lines[1]) == {"x"}
    assert cli("logs", "strange", "-n", "2", "-f")[0] == "last ä\n\ufffd\n"
    run.log_file.unlink()
    run.log_file.symlink_to("/etc/passwd")
    _, err = cli("logs", "strange", code=2)
    assert "is a symbolic link" in err
    run.remove()


@pytest.mark.parametrize("verb", ["monitor", "stop", "logs"])
def test_help_has_an_example(cli, verb):
    assert "Example:" in cli(verb, "--help")[0]
