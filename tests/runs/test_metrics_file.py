"""The live metrics file: round trips, torn reads, dead writers, damaged files."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.runs import metrics_file
from operant.runs.metrics_file import MetricsFileError, MetricsReader, MetricsWriter, Status

FIELDS = ("iteration", "steps", "reward/mean ä")
PAGE = Path(__file__).parents[2] / "docs" / "metrics-file.md"
HEAD, STATUS, HEARTBEAT = 104, 88, 96  # offsets, as documented


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.mmap"


def write(path: Path, rows: int = 0, **options: Any) -> MetricsWriter:
    writer = MetricsWriter(path, FIELDS, run_id="run 1", **options)
    for i in range(rows):
        writer.append((i, 10.0 * i, -i))
    return writer


def poke(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_round_trip(path: Path) -> None:
    before = time.time()
    writer = write(path, 3)
    values = [float("nan"), float("-inf"), 5e-324]
    writer.append(np.array(values))
    snapshot = MetricsReader(path).read()
    assert (snapshot.run_id, snapshot.fields) == ("run 1", FIELDS)
    assert (snapshot.head, snapshot.first, snapshot.torn) == (4, 0, 0)
    assert snapshot.rows.dtype == np.float64
    np.testing.assert_array_equal(
        snapshot.rows, [[0, 0, 0], [1, 10, -1], [2, 20, -2], values], strict=True
    )
    assert (snapshot.pid, snapshot.status, snapshot.alive) == (os.getpid(), Status.RUNNING, True)
    assert before <= snapshot.started <= snapshot.heartbeat <= time.time()
    assert os.listdir(path.parent) == ["metrics.mmap"]


def test_a_new_file_has_no_rows(path: Path) -> None:
    write(path)
    snapshot = MetricsReader(path).read()
    assert (snapshot.head, snapshot.first, snapshot.rows.shape) == (0, 0, (0, 3))


def test_the_ring_keeps_the_newest(path: Path) -> None:
    writer = write(path, capacity=5)
    reader = MetricsReader(path)
    for count in range(1, 24):
        writer.append((count - 1, 0, 0))
        snapshot = reader.read()
        first = max(0, count - 5)
        assert (snapshot.head, snapshot.first, snapshot.torn) == (count, first, 0)
        assert snapshot.rows[:, 0].tolist() == list(range(first, count))


def test_since(path: Path) -> None:
    writer = write(path, 7, capacity=5)
    reader = MetricsReader(path)
    seen = reader.read(since=4)
    assert (seen.first, seen.rows[:, 0].tolist()) == (4, [4, 5, 6])
    for since in (7, 8, 2**70):
        nothing = reader.read(since)
        assert (nothing.head, nothing.first, nothing.rows.shape) == (7, 7, (0, 3))
    writer.append((7, 0, 0))
    assert reader.read(seen.head).rows[:, 0].tolist() == [7]
    assert reader.read(-3).first == 3


def test_rows_are_copies(path: Path) -> None:
    writer = write(path, 1, capacity=1)
    rows = MetricsReader(path).read().rows
    writer.append((9, 9, 9))
    assert rows.tolist() == [[0, 0, 0]]
    rows[:] = 1  # writable: nothing of the file


@pytest.mark.parametrize("capacity", [4, 10, 64])
def test_history_comes_first(path: Path, capacity: int) -> None:
    history = [(i, i, i) for i in range(10)]
    writer = write(path, capacity=capacity, history=history)
    writer.append((10, 10, 10))
    snapshot = MetricsReader(path).read()
    assert snapshot.head == 11
    assert snapshot.first == max(0, 11 - capacity)
    assert snapshot.rows[:, 2].tolist() == list(range(snapshot.first, 11))


def test_a_reader_follows_to_the_file_of_a_resumed_run(path: Path) -> None:
    write(path, 5)
    with MetricsReader(path) as reader:
        seen = reader.read()
        writer = write(path, history=seen.rows[:3].tolist())
        assert reader.read(seen.head).head == 3
        writer.append((3, 3, 3))
        assert reader.read().rows[:, 1].tolist() == [0, 10, 20, 3]
        path.unlink()
        with pytest.raises(MetricsFileError, match=r"metrics\.mmap: No such file"):
            reader.read()
    with pytest.raises(ValueError, match="is closed"):
        reader.read()


def test_wrong_rows_are_refused_and_write_nothing(path: Path) -> None:
    with write(path, 1) as writer:
        for bad in ([], [1.0], [1.0] * 4):
            with pytest.raises(ValueError, match=f"expected 3 values, got {len(bad)}"):
                writer.append(bad)
        with pytest.raises(ValueError):
            writer.append([1.0, 2.0, "x"])  # type: ignore[list-item]
        writer.append((1, 1, 1))
    assert MetricsReader(path).read().rows.tolist() == [[0, 0, 0], [1, 1, 1]]
    writer.close()
    for late in (lambda: writer.append((1, 2, 3)), writer.heartbeat):
        with pytest.raises(ValueError, match="is closed"):
            late()


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ((), {}, "1 to 1024 fields, got 0"),
        (["a"] * 1025, {}, "got 1025"),
        (["a", "a"], {}, "the same field twice"),
        (["a\n"], {}, r"printable text, got 'a\\n'"),
        (["\x1b[2J"], {}, "printable"),
        (["\u202e"], {}, "printable"),
        ([""], {}, "printable"),
        (["a" * 70_000], {}, "at most 65536 bytes"),
        (["a"], {"run_id": ""}, "printable"),
        (["a"], {"capacity": 0}, "capacity must be 1 to 1048576, got 0"),
        (["a"], {"capacity": 2**20 + 1}, "capacity"),
        ([str(i) for i in range(1000)], {"capacity": 2**20}, "at most 67108864"),
        (["a"], {"history": [(1, 2)]}, "expected 1 values, got 2"),
    ],
)
def test_a_file_that_could_not_be_read_is_not_made(
    path: Path, fields: Any, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        MetricsWriter(path, fields, **{"run_id": "r", **options})
    assert not os.listdir(path.parent)


def test_nothing_is_left_where_the_file_cannot_be_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write(path)
    assert not os.listdir(path.parent)


@pytest.mark.parametrize("status", [Status.FINISHED, Status.INTERRUPTED, Status.FAILED])
def test_the_end_of_a_run(path: Path, status: Status) -> None:
    writer = write(path, 2)
    reader = MetricsReader(path)
    assert reader.read().state() == "running"
    writer.say(status)
    assert reader.read().state() == status.value
    writer.close()
    assert reader.read().state() == status.value


def test_an_append_is_a_heartbeat(path: Path) -> None:
    writer = write(path)
    reader = MetricsReader(path)
    writer.heartbeat(1000.0)
    assert reader.read().heartbeat == 1000.0
    writer.append((1, 2, 3))
    assert reader.read().heartbeat > time.time() - 60


def test_a_run_that_is_closed_unfinished_was_stopped(path: Path) -> None:
    write(path).close()
    assert MetricsReader(path).read().state() == "interrupted"


def test_state_of_a_run_whose_process_cannot_be_known(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write(path)
    writer.heartbeat(1000.0)
    reader = MetricsReader(path)
    assert reader.read().state(now=9e9) == "running"  # the process is there: it is just busy

    monkeypatch.setattr(metrics_file.platform, "node", lambda: "elsewhere")
    assert reader.read().alive is None
    assert reader.read().state(now=1029.0) == "running"
    assert reader.read().state(now=1031.0) == "stale"
    assert reader.read().state(now=1031.0, patience_s=60) == "running"
    assert reader.read().state() == "stale"
    poke(path, HEARTBEAT, struct.pack("<d", float("nan")))
    assert reader.read().state() == "stale"
    monkeypatch.undo()

    poke(path, 72, struct.pack("<d", time.time() - 1e6))  # that number is another process's by now
    poke(path, HEARTBEAT, struct.pack("<d", 1000.0))
    assert reader.read().alive is None
    assert reader.read().state(now=1031.0) == "stale"


def test_a_process_that_hides_is_taken_as_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path)

    def hide(self: Any) -> float:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "create_time", hide)
    assert MetricsReader(path).read().state(now=9e9) == "running"


WRITER = """
import os, signal, sys
from pathlib import Path
from operant.runs.metrics_file import MetricsWriter

path, capacity, kill_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
writer = MetricsWriter(path, [f"f{i}" for i in range(16)], run_id="w", capacity=capacity)



def deadly(descriptor, data, offset):
    pwrite(descriptor, bytes(data)[:72], offset)
    os.kill(os.getpid(), signal.SIGKILL)


pwrite = os.pwrite
row = [0.0] * 16
print("ready", flush=True)
i = 0
while True:
    if i == kill_at:  # with the sequence odd and half of the record written
        os.pwrite = deadly
    row[:] = [float(i)] * 16
    writer.append(row)
    i += 1
"""


@contextmanager
def spawn(path: Path, capacity: int, kill_at: int = -1) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, str(path), str(capacity), str(kill_at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            yield writer
        finally:
            writer.kill()


def test_no_torn_row_is_taken_for_a_good_one(path: Path) -> None:
    """A ring of three: the writer is always in what the reader copies."""
    with spawn(path, 3):
        reader = MetricsReader(path)
        rows = reads = 0
        began = time.monotonic()
        while time.monotonic() < began + 1.5 or min(reads, rows) <= 100:
            assert time.monotonic() < began + 60
            snapshot = reader.read()
            values = snapshot.rows
            assert (values == values[:, :1]).all()
            assert (np.diff(values[:, 0]) > 0).all()
            if len(values):
                assert values[0, 0] == snapshot.first
                assert values[-1, 0] < snapshot.head
            rows += len(values)
            reads += 1
        assert snapshot.state() == "running"


@pytest.mark.parametrize("rows", [5, 20])
def test_a_writer_killed_within_a_record_is_stale(path: Path, rows: int) -> None:
    """The half record is not counted; the one it overwrote, if any, is torn. Nobody hangs."""
    with spawn(path, 8, kill_at=rows) as writer:
        # Not reaped yet: a zombie still has its number.
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
        reader = MetricsReader(path)
        assert reader.read().state() == "stale"
    began = time.monotonic()
    snapshot = reader.read()
    assert time.monotonic() - began < 20
    assert (snapshot.status, snapshot.alive, snapshot.state()) == (Status.RUNNING, False, "stale")
    assert snapshot.head == rows
    wrapped = rows > 8
    assert snapshot.torn == wrapped
    assert snapshot.rows[:, 0].tolist() == list(range(rows - 7 if wrapped else 0, rows))
    assert snapshot.first == (rows - 7 if wrapped else 0)
    sequence = struct.unpack_from(
        "<Q", path.read_bytes(), path.stat().st_size - (8 - rows % 8) * 144
    )
    assert sequence == (2 * rows + 1,)


def test_a_damaged_record_is_skipped(path: Path) -> None:
    write(path, 4, capacity=4)
    record = 8 * (len(FIELDS) + 2)
    poke(path, path.stat().st_size - 3 * record + 8, b"\x01")  # a value of record 1
    snapshot = MetricsReader(path).read()
    assert snapshot.torn == 1
    assert snapshot.rows[:, 0].tolist() == [0, 2, 3]


def test_the_head_may_lie(path: Path) -> None:
    write(path, 4, capacity=4)
    reader = MetricsReader(path)
    poke(path, HEAD, struct.pack("<Q", 6))  # two records that never came
    snapshot = reader.read()
    assert (snapshot.head, snapshot.first, snapshot.torn) == (6, 2, 2)
    poke(path, HEAD, struct.pack("<Q", 2))
    snapshot = reader.read()
    assert (snapshot.rows[:, 0].tolist(), snapshot.torn) == ([0, 1], 0)
    poke(path, HEAD, struct.pack("<Q", 2**63))
    with pytest.raises(MetricsFileError, match="is damaged: head 9223372036854775808"):
        reader.read()


HEADERS: dict[str, tuple[int, bytes, str]] = {
    "magic": (0, b"PK\x03\x04", "is not a metrics file"),
    "version": (8, struct.pack("<Q", 2), "has the version 2, this one reads 1"),
    "records_at": (16, struct.pack("<Q", 2**63), "records from byte"),
    "records_at 8": (16, struct.pack("<Q", 8), "records from byte 8"),
    "fields": (24, struct.pack("<Q", 4), "says 4 fields"),
    "fields huge": (24, b"\xff" * 8, "fields"),
    "capacity": (32, struct.pack("<Q", 17), "make"),
    "capacity 0": (32, bytes(8), "capacity must be 1 to 1048576, got 0"),
    "capacity huge": (32, b"\xff" * 8, "capacity must be"),
    "run id": (40, b"\xff" * 8, "has a text of 18446744073709551615 bytes"),
    "host": (48, struct.pack("<Q", 65537), "has a text of 65537 bytes"),
    "host long": (48, struct.pack("<Q", 60000), "is truncated: its names end beyond"),
    "names": (56, bytes(8), "printable"),
    "pid": (64, struct.pack("<Q", 2**31), "absurd process number"),
    "escape": (128, b"\x1b[", "printable text, got '\\x1b["),
    "not UTF-8": (128, b"\xff", "has a name that is not UTF-8"),
    "status": (STATUS, struct.pack("<Q", 6), "status 6"),
    "status huge": (STATUS, b"\xff" * 8, "status"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_malformed_header(path: Path, case: str) -> None:
    offset, data, reason = HEADERS[case]
    write(path, 3, capacity=16)
    poke(path, offset, data)
    with pytest.raises(MetricsFileError) as caught:
        MetricsReader(path).read()
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


def test_not_such_a_file(path: Path) -> None:
    def refused(reason: str) -> None:
        with pytest.raises(MetricsFileError, match=f"^{path}: {reason}"):
            MetricsReader(path)

    refused("No such file")
    path.touch()
    refused("is empty")
    path.write_bytes(b"short")
    refused("is not a metrics file")
    path.write_bytes(b"OPERMETR")
    refused("is truncated: 8 bytes, the header alone takes 128")
    path.unlink()
    os.mkfifo(path)
    refused("is not a plain file")
    path.unlink()
    path.symlink_to(path.parent)
    refused("is a symbolic link")


@pytest.mark.parametrize("size", [127, 128, 140, 200])
def test_truncated(path: Path, size: int) -> None:
    """Also while it is mapped: to touch a page that is gone would kill the reader."""
    write(path, 3, capacity=2000)
    reader = MetricsReader(path)
    os.truncate(path, size)
    for read in (reader.read, lambda: MetricsReader(path)):
        with pytest.raises(MetricsFileError, match=r"truncated|has .* bytes"):
            read()


def test_a_file_that_shrinks_between_two_reads_of_one_poll(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, 3, capacity=2000)
    reader = MetricsReader(path)
    follow = reader._follow

    def shrink() -> None:
        follow()
        os.truncate(path, 200)

    monkeypatch.setattr(reader, "_follow", shrink)
    with pytest.raises(MetricsFileError, match="is truncated: ends within byte"):
        reader.read()


def test_zeros_where_the_header_was(path: Path) -> None:
    write(path, 3)
    reader, size = MetricsReader(path), path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)
    with pytest.raises(MetricsFileError, match="is not a metrics file"):
        reader.read()


@pytest.mark.parametrize("damage", ["cut", "removed", "a folder", "a symbolic link", "a pipe"])
def test_a_file_that_was_damaged_is_made_anew(
    path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write(path, 3)
    if damage == "cut":
        os.truncate(path, 100)
    else:
        path.unlink()
    other = path.with_name("other")
    if damage == "a folder":
        path.mkdir()
    elif damage == "a symbolic link":
        other.write_bytes(b"mine")
        path.symlink_to(other)
    elif damage == "a pipe":
        os.mkfifo(path)
    writer.append((3, 30, -3))
    with pytest.raises(MetricsFileError):
        MetricsReader(path)
    monkeypatch.setattr(metrics_file, "_LOOK_S", 0.0)
    writer.append((4, 40, -4))
    if damage == "a folder":  # a file cannot take its place, and training goes on
        assert path.is_dir()
        return
    assert MetricsReader(path).read().rows[:, 0].tolist() == [0, 1, 2, 3, 4]
    writer.append((5, 50, -5))
    assert MetricsReader(path).read().rows[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert not other.exists() or other.read_bytes() == b"mine"


def test_a_writer_goes_on_where_its_folder_is_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_file, "_LOOK_S", 0.0)
    with write(path, 3) as writer:
        path.unlink()
        path.parent.rmdir()
        writer.append((3, 30, -3))
    path.parent.mkdir()  # pytest's own, which it lists at the end


def test_truncations_kill_neither_readers_nor_the_writer() -> None:
    """A small part of the benchmark, which does 100 000."""
    script = Path(__file__).parents[2] / "benchmarks" / "truncations.py"
    command = [sys.executable, str(script), "-", "--truncations", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    readers, trainer = json.loads(done.stdout)["results"]
    assert (readers["crashes"], readers["wrong_rows"], trainer["crashes"]) == (0, 0, 0)
    assert readers["reads_refused"] > 0


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "metrics.mmap"
    write(path, 5, capacity=3)
    return path, path.read_bytes()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 250), st.binary(min_size=1, max_size=8)), min_size=1),
    st.integers(0, 300),
)
def test_fuzz(sample: tuple[Path, bytes], pokes: list[tuple[int, bytes]], cut: int) -> None:
    path, original = sample
    data = bytearray(original)
    for offset, junk in pokes:
        data[offset : offset + len(junk)] = junk
    path.write_bytes(data if cut > 250 else data[:cut])
    try:
        snapshot = MetricsReader(path).read()
    except MetricsFileError:
        return
    snapshot.state()
    assert snapshot.rows.shape[1] == len(snapshot.fields)
    assert len(snapshot.rows) + snapshot.torn <= 3
    good = {(i, 10.0 * i, -i) for i in range(5)}
    assert {tuple(row) for row in snapshot.rows.tolist()} <= good


def example() -> Path:
    """The reader that needs NumPy only."""
    return Path(__file__).parents[2] / "examples" / "read_metrics.py"


@pytest.mark.parametrize("rows", [0, 3, 11])
def test_the_documented_reader_reads(path: Path, rows: int) -> None:
    write(path, rows, capacity=4).close()
    assert len(example().read_text().splitlines()) <= 40
    assert "import operant" not in example().read_text()
    command = [sys.executable, "-W", "error", str(example()), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].split(",") == list(FIELDS)
    values = [[float(cell) for cell in line.split(",")] for line in lines[1:]]
    assert values == MetricsReader(path).read().rows.tolist()
    assert len(values) == min(rows, 4)


def test_the_documented_offsets_are_right(path: Path) -> None:
    write(path, 7, capacity=4).say(Status.FAILED)
    data = path.read_bytes()
    snapshot = MetricsReader(path).read()
    names = "\n".join(FIELDS).encode()
    at = 128 + -(-(5 + len(snapshot.host.encode()) + len(names)) // 8) * 8
    assert struct.unpack_from("<8s13Q", data)[:9] == (
        *(b"OPERMETR", 1, at, 3, 4, 5, len(snapshot.host.encode()), len(names), os.getpid()),
    )
    assert struct.unpack_from("<dd", data, 72)[0] == psutil.Process().create_time()
    assert struct.unpack_from("<dQdQQQ", data, 80) == (
        *(snapshot.started, 3, snapshot.heartbeat, 7, 0, 0),
    )
    assert data[128:at].rstrip(b"\0") == b"run 1" + snapshot.host.encode() + names
    assert len(data) == at + 4 * 5 * 8
    sequence, *values, check = struct.unpack_from("<Q3dQ", data, at + 2 * 40)  # record 6, slot 2
    assert (sequence, values) == (14, [6, 60, -6])
    assert check == zlib.crc32(data[at + 80 : at + 80 + 32])
