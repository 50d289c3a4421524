"""Who trains a run: the process that has its lock, not the one that a file names."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from operant.runs import control, metrics_file
from operant.runs.control import ask_to_stop, trainer_of
from operant.runs.directory import Run
from operant.runs.metrics_file import MetricsReader, MetricsWriter, Status

PID, BORN = 64, 72  # offsets in the metrics file, as documented

TRAINER = """
import signal, sys, time
from pathlib import Path
from operant.runs.directory import Run
from operant.runs.metrics_file import MetricsWriter, Status

run, asked = Run(Path(sys.argv[1])), []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
lock = run.lock()
writer = MetricsWriter(run.mmap_file, ("steps",), run_id="one")
writer.say(Status(sys.argv[2]))
print("ready", flush=True)
while not asked:
    time.sleep(0.01)
writer.say(Status.INTERRUPTED)
print("stopped", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    return Run.create("one")


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


@contextmanager
def trainer(run: Run, status: str = "running") -> Iterator[subprocess.Popen[str]]:
    with process(sys.executable, "-c", TRAINER, str(run.path), status) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        yield one


def name_process(run: Run, pid: int) -> None:
    """Let the metrics say that the process trains it; every detail is right."""
    with open(run.mmap_file, "r+b") as file:
        file.seek(PID)
        file.write(struct.pack("<Q", pid))
        file.seek(BORN)
        file.write(struct.pack("<d", psutil.Process(pid).create_time()))


def refused(run: Run) -> None:
    assert trainer_of(run) is None
    with pytest.raises(ValueError, match=r"^one is not being trained on this machine$"):
        ask_to_stop(run)


def test_a_training_is_found_and_asked(run: Run) -> None:
    with trainer(run) as one:
        assert trainer_of(run) == one.pid
        assert ask_to_stop(run) == one.pid
        assert one.stdout is not None
        assert one.stdout.readline() == "stopped\n"
        assert one.poll() is None
        refused(run)  # it says that it has stopped
        one.send_signal(signal.SIGKILL)
        one.wait(timeout=30)
        refused(run)


@pytest.mark.parametrize("status", ["starting", "saving"])
def test_it_is_found_whatever_it_does(run: Run, status: str) -> None:
    with trainer(run, status) as one:
        assert trainer_of(run) == one.pid


def test_it_is_found_by_another_path(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(run.path)
    with trainer(run) as one:
        assert trainer_of(Run(tmp_path / "elsewhere")) == one.pid


def test_a_killed_training(run: Run) -> None:
    with trainer(run) as one:
        one.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet
        refused(run)


def test_an_innocent_process_is_not_asked(run: Run) -> None:
    """The metrics name it and say running, and it is there; but it has not the lock."""
    other = Run.create("two")
    with MetricsWriter(run.mmap_file, ("steps",), run_id="one"), ExitStack() as stack:
        refused(run)  # this process, without the lock
        sleeper = stack.enter_context(process("sleep", "600"))
        trains_other = stack.enter_context(trainer(other))
        for innocent in (sleeper, trains_other):
            name_process(run, innocent.pid)
            with MetricsReader(run.mmap_file) as reader:
                live = reader.read()
            assert (live.pid, live.alive, live.state()) == (innocent.pid, True, "running")
            refused(run)
        assert trainer_of(other) == trains_other.pid
        time.sleep(0.05)  # a signal would be on its way
        assert sleeper.poll() is None
        with MetricsReader(other.mmap_file) as reader:
            assert reader.read().state() == "running"


def test_a_file_of_that_name_elsewhere_is_no_lock(run: Run, tmp_path: Path) -> None:
    with MetricsWriter(run.mmap_file, ("steps",), run_id="one"), open(tmp_path / "lock", "w"):
        refused(run)
        lock = run.lock()
        assert trainer_of(run) == os.getpid()
        lock.close()
        refused(run)


@pytest.mark.parametrize("status", [Status.FINISHED, Status.INTERRUPTED, Status.FAILED])
def test_a_run_that_has_ended(run: Run, status: Status) -> None:
    lock = run.lock()  # of what comes after the training: an evaluation
    with MetricsWriter(run.mmap_file, ("steps",), run_id="one") as writer:
        assert trainer_of(run) == os.getpid()
        writer.say(status)
        refused(run)
    lock.close()


def test_another_host(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = run.lock()
    with MetricsWriter(run.mmap_file, ("steps",), run_id="one"):
        monkeypatch.setattr(metrics_file.platform, "node", lambda: "elsewhere")
        refused(run)
    lock.close()


@pytest.mark.parametrize("data", [None, b"", b"what" * 100])
def test_metrics_that_cannot_be_read(run: Run, data: bytes | None) -> None:
    lock = run.lock()
    if data is not None:
        run.mmap_file.write_bytes(data)
    refused(run)
    lock.close()


@pytest.mark.parametrize("error", [psutil.AccessDenied, psutil.NoSuchProcess])
def test_a_process_that_does_not_tell(
    run: Run, error: type[psutil.Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    def secret(self: psutil.Process) -> None:
        raise error(self.pid)

    monkeypatch.setattr(psutil.Process, "open_files", secret)
    monkeypatch.setattr(control.os, "kill", None)
    lock = run.lock()
    with MetricsWriter(run.mmap_file, ("steps",), run_id="one"):
        refused(run)
    lock.close()
