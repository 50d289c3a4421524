"""`Logger`: what any loop logs is in the files, whatever ends the loop."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from operant.monitor.source import Source, View
from operant.runs.control import trainer_of
from operant.runs.directory import find_run
from operant.runs.hardware import HARDWARE
from operant.runs.logs import read_csv
from operant.runs.summary import summary
from operant.utils import Logger, TUILogger, logger

OWN = ("iteration", "steps", "seconds", "sps")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    return tmp_path


def seen(run_id: str) -> View:
    """The run by its live metrics, which must agree with its CSV."""
    run = find_run(run_id)
    view, table = Source(run).read(), read_csv(run.csv_file)
    assert view.problem == ""
    assert tuple(view.table) == (*table, *HARDWARE)
    for name, column in table.items():
        np.testing.assert_array_equal(view.table[name], column, strict=True)
    assert not list(run.path.glob(".*")), "something was left behind"
    return view


def column(view: View, name: str) -> list[float | None]:
    return [None if math.isnan(value) else value for value in view.table[name].tolist()]


def test_rows_are_in_both_files(home: Path) -> None:
    with Logger("my-loop", total_steps=300, env="Pong") as log:
        assert log.run_id == "my-loop"
        view = seen("my-loop")
        assert (view.status, view.last("steps")) == (
            "starting",
            pytest.approx(math.nan, nan_ok=True),
        )
        for step in (100, 200):
            log.log(step=step, return_=step / 8, loss=-0.1)
            view = seen("my-loop")
            assert view.status == "running"
            assert view.last("steps") == step  # at once, not at the end
        assert trainer_of(find_run("my-loop")) == os.getpid()
    view = seen("my-loop")
    assert (view.status, view.env, view.engine) == ("finished", "Pong", "own loop")
    assert (view.total_steps, view.progress) == (300, pytest.approx(2 / 3))
    assert tuple(view.table) == (*OWN, "return", "loss", *HARDWARE)
    assert column(view, "iteration") == [1, 2]
    assert column(view, "steps") == [100, 200]
    assert column(view, "return") == [12.5, 25]
    assert column(view, "loss") == [-0.1, -0.1]
    seconds, speed = view.table["seconds"], view.table["sps"]
    assert 0 <= seconds[0] < seconds[1]
    assert math.isnan(speed[0])
    assert speed[1] == pytest.approx(100 / (seconds[1] - seconds[0]))
    assert [line.split("  ")[1] for line in view.log] == ["started", "finished after 2 rows"]
    assert trainer_of(find_run("my-loop")) is None
    found = summary(find_run("latest"))
    assert (found.run_id, found.env, found.state, found.steps) == (
        *("my-loop", "Pong", "finished", 200),
    )


def test_steps_are_counted_where_none_are_given() -> None:
    with TUILogger() as log:
        for _ in range(3):
            log.log(loss=1)
        log.log()
    view = seen("run")
    assert column(view, "steps") == [1, 2, 3, 4]
    assert column(view, "loss") == [1, 1, 1, None]
    assert (view.env, view.to_dict()["total_steps"]) == ("?", 0)
    assert math.isnan(view.progress)


def test_new_names_may_come_later() -> None:
    with Logger() as log:
        source = Source(find_run("run"))
        log.log(a=1)
        log.log(a=2, b=20)
        assert source.read().status == "running"
        log.log(c=300)
        log.log(b=40, a=4, d=math.nan)
        log.log(step=-math.inf, a=0.1)
        view = seen("run")
    assert column(view, "iteration") == [1, 2, 3, 4, 5]
    assert column(view, "steps") == [1, 2, 3, 4, -math.inf]
    assert column(view, "a") == [1, 2, None, 4, 0.1]
    assert column(view, "b") == [None, 20, None, 40, None]
    assert column(view, "c") == [None, None, 300, None, None]
    assert column(view, "d") == [None] * 5
    followed = source.read()
    assert followed.status == "finished"
    for name in read_csv(find_run("run").csv_file):
        np.testing.assert_array_equal(followed.table[name], view.table[name], strict=True)


def test_new_names_after_more_rows_than_are_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "_HISTORY", 8)
    with Logger() as log:
        for i in range(20):
            log.log(a=i)
        log.log(b=1)
        for i in range(5):
            log.log(a=i)
    view = seen("run")
    assert column(view, "iteration") == list(range(1, 27))
    assert column(view, "a") == [*range(20), None, *range(5)]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("return_", "return"),
        ("class__", "class"),
        ("_", "_"),
        ("_a", "_a"),
        ("reward/mean ä", None),
    ],
)
def test_names(name: str, column: str | None) -> None:
    with Logger() as log:
        log.log(**{name: 3.0})
    assert seen("run").last(column or name) == 3


BAD_NAMES = [
    "",
    "a,b",
    'a"',
    "a\nb",
    "\x1b[2J",
    "\u202e",
    "steps",
    "sps_",
    "cpu_percent",
    "é" * 40_000,
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("rows", [0, 2])
def test_a_bad_name_is_refused_and_changes_nothing(name: str, rows: int) -> None:
    with Logger() as log:
        for _ in range(rows):
            log.log(a=1)
        with pytest.raises(ValueError):
            log.log(a=5, **{name: 1.0})
        assert len(seen("run").table["iteration"]) == rows
        log.log(a=2)
        log.log(b=3)
    view = seen("run")
    assert column(view, "iteration") == list(range(1, rows + 3))
    assert column(view, "a") == [*[1] * rows, 2, None]


def test_more_names_than_a_file_may_have() -> None:
    with Logger() as log:
        log.log(a=1)
        with pytest.raises(ValueError, match="1 to 1024 fields, got 1034"):
            log.log(**{f"m{i}": i for i in range(1023)})
        log.log(a=2)
    assert column(seen("run"), "a") == [1, 2]


def test_numbers_of_all_kinds() -> None:
    kinds = [
        3,
        3.0,
        np.float32(3),
        np.int64(3),
        np.array(3),
        np.array([3.0]),
        np.array([[3]]),
        torch.tensor(3.0),
        torch.tensor([[3]]),
        torch.tensor(3.0, dtype=torch.bfloat16),
        torch.tensor(3.0, requires_grad=True),
        torch.tensor([1.5], requires_grad=True) * 2,
    ]
    with Logger() as log:
        for kind in kinds:
            log.log(step=kind, loss=kind)
        log.log(step=np.array([3]), loss=True)
    view = seen("run")
    assert column(view, "loss") == [3] * len(kinds) + [1]
    assert column(view, "steps") == [3] * (len(kinds) + 1)


@pytest.mark.parametrize(
    "value",
    [None, "three", [1.0], {}, 1j, object(), 10**400, np.ones(2), np.empty(0), torch.ones(2)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_refused_and_changes_nothing(value: Any) -> None:
    with Logger() as log:
        log.log(a=1)
        with pytest.raises(TypeError, match=f"new must be a number, got {type(value).__name__}"):
            log.log(a=2, new=value)
        if value is not None:
            with pytest.raises(TypeError, match="step must be a number"):
                log.log(step=value, a=2)
        log.log(a=3)
    view = seen("run")
    assert column(view, "a") == [1, 3]
    assert column(view, "iteration") == [1, 2]
    assert "new" not in view.table


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ZeroDivisionError("by\x1bnothing"), "failed", "failed: ZeroDivisionError: by?nothing"),
        (MemoryError(), "failed", "failed: MemoryError: "),
        (KeyboardInterrupt(), "interrupted", "interrupted after 1 rows"),
        (SystemExit(3), "interrupted", "interrupted after 1 rows"),
    ],
)
def test_an_exception_ends_the_run(error: BaseException, status: str, words: str) -> None:
    def loop() -> None:
        with Logger() as log:
            log.log(a=1)
            raise error

    with pytest.raises(type(error)) as caught:
        loop()
    assert caught.value is error
    view = seen("run")
    assert (view.status, column(view, "a")) == (status, [1])
    assert words in "\n".join(view.log)
    find_run("run").lock().close()  # free


def test_a_closed_logger() -> None:
    log = Logger()
    log.log(a=1)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="the logger of run is closed"):
        log.log(a=2)
    with log:  # its end changes nothing
        pass
    view = seen("run")
    assert (view.status, column(view, "a")) == ("finished", [1])
    assert len(view.log) == 2


def test_a_second_logger_of_the_name_is_another_run() -> None:
    with Logger("loop") as first, Logger("loop") as second:
        first.log(a=1)
        second.log(a=2)
        assert (first.run_id, second.run_id) == ("loop", "loop-2")
    with Logger("loop") as third:
        assert third.run_id == "loop-3"
    assert (seen("loop").last("a"), seen("loop-2").last("a")) == (1, 2)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "latest", ".a", "a\n", "ä"])
def test_a_name_that_no_run_can_have(home: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a run's name has letters, digits"):
        Logger(name)
    assert not (home / "runs").exists()


@pytest.mark.parametrize("env", ['a"b', "a\\", "a\nb = 1", "\x1b[2J", "Pöng 2", "\udcff"])
def test_an_odd_environment(env: str) -> None:
    with Logger(env=env, total_steps=7) as log:
        log.log(a=1)
    view = seen("run")
    assert view.total_steps == 7  # the configuration is still one
    assert view.env.isprintable()
    assert len(view.env) == len(env)
    json.dumps(view.to_dict(), allow_nan=False)


WRITER = """
import sys
from operant.utils import Logger
log = Logger("killed")
i = 0
while True:
    i += 1
    log.log(step=10 * i, a=i, **({"late": i} if i > 500 else {}))
    if i == 1000:
        print("ready", flush=True)
"""


def test_kill_leaves_readable_files() -> None:
    """In the middle of writing, not at a moment of the process's own choice."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            assert trainer_of(find_run("killed")) == writer.pid
            writer.send_signal(signal.SIGKILL)
            writer.wait(timeout=30)
        finally:
            writer.kill()
    run = find_run("killed")
    view, table = Source(run).read(), read_csv(run.csv_file)
    rows = len(table["iteration"])
    assert rows >= 1000
    assert (view.status, view.problem) == ("stale", "")
    # The row is in the CSV first; a kill between the two leaves it there only.
    assert len(view.table["iteration"]) in (rows, rows - 1)
    for found in (table, view.table):
        count = np.arange(1, len(found["iteration"]) + 1)
        np.testing.assert_array_equal(found["iteration"], count)
        np.testing.assert_array_equal(found["steps"], 10 * count)
        np.testing.assert_array_equal(found["a"], count)
        np.testing.assert_array_equal(found["late"], np.where(count > 500, count, np.nan))
    run.lock().close()
