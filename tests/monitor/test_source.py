"""A run as the monitor sees it: whole, followed, dead, damaged, hostile."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from operant.monitor import source as module
from operant.monitor.frame import frame
from operant.monitor.source import Source, View
from operant.runs import metrics_file
from operant.runs.directory import Run
from operant.runs.logs import CsvLog, read_csv
from operant.runs.metrics_file import MetricsWriter, Status

FIELDS = ("iteration", "steps", "seconds", "sps", "mean_return")
CONFIG = '[env]\nid = "CartPole-v1"\n[run]\ntotal_steps = 4000\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    made = Run.create("one", CONFIG)
    made.write_info({"engine": "eager", "device": "cpu"})
    return made


class Training:
    """Writes what a training writes: each row to the CSV, then, with one figure more, live."""

    def __init__(self, run: Run, capacity: int = 8, history: Sequence[Sequence[float]] = ()):
        names = (*FIELDS, "cpu_percent")
        self.live = MetricsWriter(
            run.mmap_file, names, run_id="one", capacity=capacity, history=history
        )
        self.csv = CsvLog(run.csv_file, FIELDS)

    def write(self, rows: range) -> None:
        for i in rows:
            values = (i, 100.0 * i, 0.5 * i, 200.0, i + 0.25)
            self.csv.write(dict(zip(FIELDS, values, strict=True)))
            self.live.append((*values, 50.0))

    def close(self, status: Status = Status.FINISHED) -> None:
        self.live.say(status)
        self.live.close()
        self.csv.close()


@contextmanager
def training(run: Run, rows: int = 0, **options: Any) -> Iterator[Training]:
    one = Training(run, **options)
    one.write(range(1, rows + 1))
    try:
        yield one
    finally:
        one.csv.close()


def iterations(view: View) -> list[float]:
    return view.table["iteration"].tolist()


def check_same(found: View, expected: View, names: Sequence[str]) -> None:
    for name in names:
        np.testing.assert_array_equal(found.table[name], expected.table[name], strict=True)


def shown(view: View) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False)
    console.print(frame(view, 80), highlight=False)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    return text


def test_a_run_is_shown_as_it_is(run: Run) -> None:
    with training(run, rows=5) as one:
        run.log("started")
        view = Source(run).read()
        assert (view.run_id, view.status, view.problem, view.torn) == ("one", "running", "", 0)
        assert (view.env, view.engine, view.device) == ("CartPole-v1", "eager", "cpu")
        assert (view.pid, view.total_steps, view.threshold) == (os.getpid(), 4000, 475)
        assert tuple(view.table) == (*FIELDS, "cpu_percent")
        for name, column in read_csv(run.csv_file).items():
            np.testing.assert_array_equal(view.table[name], column, strict=True)
        assert view.table["cpu_percent"].tolist() == [50] * 5
        # 500 steps in 2.5 s; 3500 left at 200 a second.
        assert (view.last("steps"), view.mean_sps, view.progress) == (500, 200, 0.125)
        assert view.eta_s == 17.5
        assert math.isnan(view.last("nothing"))
        assert view.heartbeat_age(view.heartbeat + 3) == 3
        assert view.log[-1].endswith("  started")
        one.close()
    view = Source(run).read()
    assert (view.status, view.live) == ("finished", False)
    assert math.isnan(view.eta_s)
    text = shown(view)
    assert "one  finished  CartPole-v1 · eager on cpu" in text
    assert "200 steps/s   return 5.25" in text
    assert "500 of 4000 steps" in text


def test_a_run_that_has_no_rows_yet(run: Run) -> None:
    with training(run) as one:
        one.live.say(Status.STARTING)
        source = Source(run)
        view = source.read()
        assert (view.status, view.live, iterations(view)) == ("starting", True, [])
        assert view.x()[0] == "steps"
        assert "- steps/s" in shown(view)
        one.write(range(1, 3))
        assert iterations(source.read()) == [1, 2]


@pytest.mark.parametrize(
    ("table", "name", "x"),
    [
        ({"step": [3.0, 4.0], "a": [0.0, 0.0]}, "step", [3, 4]),
        ({"a": [7.0, 7.0, 7.0]}, "row", [0, 1, 2]),
        ({}, "row", []),
    ],
)
def test_what_curves_are_drawn_over(table: dict[str, Any], name: str, x: list[float]) -> None:
    columns = {key: np.array(values) for key, values in table.items()}
    found = View("one", "running", table=columns).x()
    assert (found[0], found[1].tolist()) == (name, x)


def test_following_gives_the_same_as_reading_anew(run: Run) -> None:
    with training(run, capacity=64) as one:
        source = Source(run)
        row = 1
        for count in (0, 1, 1, 5, 0, 17, 20):
            one.write(range(row, row + count))
            row += count
            view = source.read()
            assert iterations(view) == list(range(1, row))
            check_same(view, Source(run).read(), (*FIELDS, "cpu_percent"))


def test_a_view_stays_as_it_was(run: Run) -> None:
    with training(run, rows=2) as one:
        source = Source(run)
        before = source.read()
        one.write(range(3, 5))
        assert iterations(source.read()) == [1, 2, 3, 4]
        assert iterations(before) == [1, 2]


@pytest.mark.parametrize("rows", [7, 8, 9, 16, 17, 40])
def test_what_the_ring_has_lost_comes_from_the_csv(run: Run, rows: int) -> None:
    with training(run, rows):
        view = Source(run).read()
    assert iterations(view) == list(range(1, rows + 1))
    for name, column in read_csv(run.csv_file).items():
        np.testing.assert_array_equal(view.table[name], column, strict=True)
    known = np.isfinite(view.table["cpu_percent"])  # which the CSV does not have
    assert known.tolist() == [False] * max(0, rows - 8) + [True] * min(rows, 8)


def test_a_reader_that_comes_late_takes_the_gap_from_the_csv(run: Run) -> None:
    with training(run, rows=3) as one:
        source = Source(run)
        source.read()
        one.write(range(4, 41))  # far more than the ring has
        view = source.read()
    assert iterations(view) == list(range(1, 41))
    check_same(view, Source(run).read(), FIELDS)
    assert view.table["cpu_percent"][:3].tolist() == [50] * 3


def test_without_a_csv_the_ring_is_all_there_is(run: Run) -> None:
    with training(run, rows=20):
        for change in (lambda: run.csv_file.write_text("steps\n1\n"), run.csv_file.unlink):
            change()
            assert iterations(Source(run).read()) == list(range(13, 21))


def test_names_that_the_csv_lacks_and_no_iterations(run: Run) -> None:
    with MetricsWriter(run.mmap_file, ("loss",), run_id="one", capacity=4) as writer:
        for i in range(10):
            writer.append((i,))
        run.csv_file.write_text("loss\n" + "".join(f"{i}\n" for i in range(10)))
        view = Source(run).read()
        assert view.table["loss"].tolist() == [6, 7, 8, 9]
        assert math.isnan(view.mean_sps)
        shown(view)


@pytest.mark.parametrize(("kept", "more"), [(3, 0), (3, 1), (3, 9), (30, 0), (30, 5)])
def test_a_resumed_run_is_followed(run: Run, kept: int, more: int) -> None:
    """It goes on from `kept` rows, of which the new file has the last ones, as the Recorder does;
    the rows after them are dropped and written again."""
    rows = kept + 4
    with training(run, rows):
        source = Source(run)
        assert iterations(source.read()) == list(range(1, rows + 1))
    CsvLog.resume(run.csv_file, FIELDS, "iteration", kept).close()
    table = read_csv(run.csv_file)
    last = np.column_stack([*table.values(), np.full(kept, np.nan)])[-8:].tolist()
    run.write_info({"engine": "fused", "device": "cpu"})
    with training(run, history=last) as one:
        one.write(range(kept + 1, kept + more + 1))
        view = source.read()
        assert iterations(view) == list(range(1, kept + more + 1))
        assert view.engine == "fused"
        check_same(view, Source(run).read(), (*FIELDS, "cpu_percent"))
        one.write(range(kept + more + 1, kept + more + 3))
        assert iterations(source.read()) == list(range(1, kept + more + 3))


def test_a_file_with_other_columns_is_a_new_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was made at the same moment, by the clock."""
    monkeypatch.setattr(metrics_file.time, "time", lambda: 1000.0)
    with training(run, rows=3):
        source = Source(run)
        source.read()
    fields = ("iteration", "loss")
    writer = MetricsWriter(
        run.mmap_file, fields, run_id="one", history=[(i, -i) for i in range(1, 6)]
    )
    view = source.read()
    assert {name: column.tolist() for name, column in view.table.items()} == {
        "iteration": [1, 2, 3, 4, 5],
        "loss": [-1, -2, -3, -4, -5],
    }
    writer.close()


WRITER = """
import sys, time
from pathlib import Path
from operant.runs.metrics_file import MetricsWriter
writer = MetricsWriter(Path(sys.argv[1]), ("iteration", "steps"), run_id="one")
for i in range(1, 4):
    writer.append((i, 10 * i))
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_writer_is_stale(run: Run) -> None:
    command = [sys.executable, "-c", WRITER, str(run.mmap_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            source = Source(run)
            view = source.read()
            assert (view.status, view.pid) == ("running", writer.pid)
            assert source.read(now=9e9).status == "running"  # it is there: just busy
            writer.send_signal(signal.SIGKILL)
            writer.wait(timeout=300)
        finally:
            writer.kill()
    for one in (source, Source(run)):
        view = one.read()
        assert (view.status, view.live, iterations(view)) == ("stale", False, [1, 2, 3])
    assert "one  stale since " in shown(view)


def test_on_another_host_the_heartbeat_decides(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with training(run, rows=1) as one:
        one.live.heartbeat(1000.0)
        monkeypatch.setattr(metrics_file.platform, "node", lambda: "elsewhere")
        assert Source(run).read(now=1000 + module.PATIENCE_S - 0.1).status == "running"
        assert Source(run).read(now=1000 + module.PATIENCE_S + 0.1).status == "stale"


@pytest.mark.parametrize("status", [Status.FINISHED, Status.INTERRUPTED, Status.FAILED])
def test_the_end_is_as_the_writer_says(run: Run, status: Status) -> None:
    with training(run, rows=1) as one:
        source = Source(run)
        assert source.read().status == "running"
        one.close(status)
        assert source.read().status == status.value


GARBAGE = {
    "missing": None,
    "empty": b"",
    "zeros": bytes(4096),
    "binary": bytes(range(256)) * 16,
    "text": b"what is this?\x1b[2J\n" * 20,
    "not UTF-8": b"\xff\xfe\x80" * 100,
}


def spoil(path: Path, kind: str) -> None:
    data = GARBAGE[kind]
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("kind", [*GARBAGE, "truncated", "folder", "link", "pipe"])
def test_live_metrics_that_cannot_be_read(run: Run, kind: str) -> None:
    with training(run, rows=4) as one:
        source = Source(run)
        source.read()
        one.close()
    if kind in GARBAGE:
        spoil(run.mmap_file, kind)
    elif kind == "truncated":
        os.truncate(run.mmap_file, 200)
    else:
        run.mmap_file.unlink()
        make = {"folder": os.mkdir, "link": lambda p: os.symlink(run.csv_file, p)}
        make.get(kind, os.mkfifo)(run.mmap_file)
    for found in (source, Source(run)):
        view = found.read()
        assert (view.status, view.live, iterations(view)) == ("unreadable", False, [1, 2, 3, 4])
        assert "metrics.mmap: " in view.problem
        assert view.problem.isprintable()
        assert (view.env, view.pid) == ("CartPole-v1", 0)
        assert "metrics.mmap: " in shown(view).replace("\n", "")
        assert json.loads(json.dumps(view.to_dict(), allow_nan=False))["steps"] == 400


def test_metrics_that_come_back(run: Run) -> None:
    """As where a run is copied from elsewhere, file by file."""
    with training(run, rows=12):
        source = Source(run)
        data = run.mmap_file.read_bytes()
        run.mmap_file.unlink()
        assert source.read().status == "unreadable"
        run.mmap_file.write_bytes(data)
        view = source.read()
        assert (view.status, iterations(view)) == ("running", list(range(1, 13)))


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("name", ["csv_file", "config_file", "info_file", "log_file"])
def test_other_files_that_cannot_be_read(run: Run, name: str, kind: str) -> None:
    """Only what they would have told is missing."""
    run.log("started")
    with training(run, rows=12) as one:
        one.close()
    spoil(getattr(run, name), kind)
    view = Source(run).read()
    assert (view.status, view.problem, view.last("steps")) == ("finished", "", 1200)
    assert iterations(view) == list(range(5 if name == "csv_file" else 1, 13))
    assert view.env == ("?" if name == "config_file" else "CartPole-v1")
    assert view.engine == ("?" if name == "info_file" else "eager")
    if name == "config_file":
        assert math.isnan(view.total_steps)
        assert math.isnan(view.progress)
        assert math.isnan(view.threshold)
    assert all(line.isprintable() for line in view.log)
    shown(view)


def test_nothing_is_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        view = Source(Run(path)).read()
        assert (view.status, view.env, view.table, view.log) == ("unreadable", "?", {}, ())
        assert view.problem
        shown(view)
        json.dumps(view.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "total"),
    [("1e6", 1e6), ("nan", None), ("inf", None), (f"{2**63}", None), ("true", None), ("'3'", None)],
)
def test_a_number_of_steps_that_is_none(run: Run, text: str, total: float | None) -> None:
    run.config_file.write_text(f"[run]\ntotal_steps = {text}\n")
    view = Source(run).read()
    assert view.to_dict()["total_steps"] == total
    shown(view)


@pytest.mark.parametrize("value", [None, 3, [1], {"id": 1}, True, "x" * 100_000])
def test_facts_of_other_types(run: Run, value: Any) -> None:
    run.write_info(dict.fromkeys(("env", "engine", "device", "total_steps"), value))
    view = Source(run).read()
    expected = "x" * 200 if isinstance(value, str) else "?"
    assert (view.engine, view.device) == (expected, expected)
    shown(view)


EVIL = "a\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202eb\u2028\udcffc"


def test_escapes_do_not_reach_the_terminal(tmp_path: Path) -> None:
    run = Run(tmp_path / "r\x1b[2J")
    run.path.mkdir()
    run.config_file.write_text(f"[env]\nid = {json.dumps(EVIL.replace(chr(0xDCFF), ''))}\n")
    run.write_info({"engine": EVIL, "device": EVIL})
    run.log_file.write_bytes(b"2026  " + EVIL.encode(errors="surrogateescape") + b"\nlast\x1b\n")
    with training(run, rows=3):
        for view in (Source(run).read(), Source(run).read()):
            texts = (view.run_id, view.status, view.env, view.engine, view.device, view.host)
            assert all(text.isprintable() for text in (*texts, *view.log))
            assert view.env.startswith("a?[2J?]0;owned??31m")
            assert view.run_id == "r?[2J"
            assert view.log[-1] == "last?"
            assert "r?[2J" in shown(view)
    spoil(run.mmap_file, "text")
    view = Source(run).read()
    assert view.status == "unreadable"
    assert view.problem.isprintable()
    shown(view)


def test_the_end_of_a_long_log(run: Run) -> None:
    run.log_file.write_text("".join(f"line {i}\n" for i in range(20_000)) + "x" * 5000)
    *lines, last = Source(run).read().log
    assert last == "x" * 200
    numbers = [int(line.removeprefix("line ")) for line in lines]  # the first is not cut
    assert numbers == list(range(numbers[0], 20_000))
    assert len(numbers) > 500


@pytest.mark.parametrize("live", [True, False])
def test_the_number_of_rows_is_limited(
    run: Run, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 40)
    with training(run, capacity=16) as one:
        if not live:
            run.mmap_file.unlink()
        source, rows = Source(run), 0
        for count in (30, 15, 40, 300, 1, 1, *[20] * 9):
            one.write(range(rows + 1, rows + count + 1))
            rows += count
            view = source.read()
            found = iterations(view)
            assert all(len(column) == len(found) for column in view.table.values())
            assert 20 < len(found) <= 40 or rows == len(found) == 30
            assert (found[0], found[-1]) == (1, rows)
            gaps = np.diff(found)
            assert (gaps > 0).all()
            assert (gaps[-8:] == 1).all()  # the newest are whole
            assert len(found) == rows or gaps[0] > 1
            assert gaps.max() <= rows / 5  # and no part of the run is gone


def test_to_dict(run: Run) -> None:
    with training(run, rows=3) as one:
        one.live.append((4, 400, 2, math.nan, math.inf, -math.inf))
        view = Source(run).read()
    found = json.loads(json.dumps(view.to_dict(view.heartbeat + 2), allow_nan=False))
    wanted = {"run_id", "status", "steps", "total_steps", "sps", "mean_return", "iteration"}
    assert wanted | {"heartbeat_age_s", "pid", "metrics"} <= set(found)
    assert (found["run_id"], found["status"], found["pid"]) == ("one", "running", os.getpid())
    assert (found["steps"], found["total_steps"], found["iteration"]) == (400, 4000, 4)
    assert (found["sps"], found["mean_return"], found["mean_sps"]) == (None, None, 200)
    assert (found["heartbeat_age_s"], found["problem"]) == (2, None)
    assert found["metrics"] == {
        "iteration": 4,
        "steps": 400,
        "seconds": 2,
        "sps": None,
        "mean_return": None,
        "cpu_percent": None,
    }


# Hostile files ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, bytes]]:
    """A finished run of 9 rows, 4 of them in the ring, and its good files."""
    run = Run(tmp_path_factory.mktemp("fuzz"))
    run.config_file.write_text(CONFIG)
    with training(run, rows=9, capacity=4) as one:
        one.close()
    return run, {path.name: path.read_bytes() for path in (run.mmap_file, run.csv_file)}


# Half of the places are in the first 300 bytes: the header and the names.
PLACE = st.one_of(st.integers(0, 300), st.integers(0, 700))
MUTATION = st.one_of(
    st.tuples(st.just("flip"), PLACE, st.integers(1, 255)),
    st.tuples(st.just("put"), PLACE, st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("cut"), PLACE, st.none()),
    st.tuples(st.just("add"), PLACE, st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("swap"), PLACE, PLACE),
)


def mutate(data: bytes, mutations: list[Any]) -> bytes:
    changed = bytearray(data)
    for kind, place, how in mutations:
        at = min(place, len(changed))
        if kind == "flip":
            changed[at : at + 1] = bytes(byte ^ how for byte in changed[at : at + 1])
        elif kind == "put":
            changed[at : at + len(how)] = how
        elif kind == "cut":
            del changed[at:]
        elif kind == "add":
            changed[at:at] = how
        else:
            other = min(how, len(changed))
            a, b = changed[at : at + 8], changed[other : other + 8]
            if len(a) == len(b):
                changed[at : at + 8], changed[other : other + 8] = b, a
    return bytes(changed)


@settings(max_examples=300, deadline=None)
@given(st.lists(MUTATION, max_size=3), st.lists(MUTATION, max_size=3), st.booleans())
def test_fuzz(
    victim: tuple[Run, dict[str, bytes]], live: list[Any], csv: list[Any], replaced: bool
) -> None:
    run, good = victim
    for name, data in good.items():
        (run.path / name).write_bytes(data)
    source = Source(run)
    assert iterations(source.read()) == list(range(1, 10))
    for name, mutations in (("metrics.mmap", live), ("metrics.csv", csv)):
        if replaced:
            (run.path / name).unlink()
        (run.path / name).write_bytes(mutate(good[name], mutations))
    for one in (source, Source(run)):
        view = one.read()
        lengths = {len(column) for column in view.table.values()}
        assert len(lengths) <= 1
        assert (view.status == "unreadable") == bool(view.problem)
        shown(view)
        json.dumps(view.to_dict(), allow_nan=False)


NAMES = (*FIELDS, "collect_seconds", "advantages_seconds", "update_seconds", "cpu_percent")
NAMES += ("memory_mb", "gpu_watts", "return_min", "return_max", "return_std", "episodes")
ODD = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 2.0**63])
ROW = st.lists(st.one_of(ODD, st.floats()), min_size=len(NAMES), max_size=len(NAMES))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=6))
def test_any_numbers_can_be_shown(victim: tuple[Run, Any], rows: list[list[float]]) -> None:
    run, _ = victim
    run.csv_file.unlink(missing_ok=True)
    writer = MetricsWriter(run.mmap_file, NAMES, run_id="one", capacity=8, history=rows)
    view = Source(run).read()
    assert view.status == "running"
    np.testing.assert_array_equal(view.table["sps"], [row[3] for row in rows])
    shown(view)
    json.dumps(view.to_dict(), allow_nan=False)
    writer.close()
