"""CSV, JSON lines, TensorBoard and W&B: whole rows, no duplicates after a resume."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.runs import logs
from operant.runs.logs import CsvLog, JsonlLog, Log, TensorBoardLog, WandbLog, read_csv

FIELDS = ("iteration", "steps", "reward")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.csv"


def fill(log: Log, rows: range) -> None:
    for i in rows:
        log.write({"iteration": i, "steps": 10 * i, "reward": i + 0.5})
    log.close()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_csv_as_written(path: Path) -> None:
    log = CsvLog(path, FIELDS)
    log.write({"iteration": 1, "steps": 2**60 + 1, "reward": 0.1})
    log.write({"steps": np.int64(2**60 + 1), "iteration": 2.0, "reward": math.nan})
    log.write({"reward": -math.inf})
    log.write({"iteration": True, "steps": -0.0, "reward": np.float32(0.5)})
    log.write({"iteration": 2.0**53, "steps": 0.0, "reward": 1e300})
    log.close()
    log.close()
    assert path.read_text() == (
        "iteration,steps,reward\n"
        "1,1152921504606846977,0.1\n"
        "2,1152921504606846977,\n"
        ",,-inf\n"
        "1,-0.0,0.5\n"
        "9007199254740992.0,0,1e+300\n"
    )


@given(value=st.floats())
def test_numbers_come_back_to_the_bit(value: float) -> None:
    text = logs._number(value)
    assert not text.endswith(".0") or abs(value) >= 2**53 or text == "-0.0"
    back = float(text or "nan")
    assert math.isnan(back) if math.isnan(value) else back.hex() == value.hex()


def test_csv_round_trip(path: Path) -> None:
    fill(CsvLog(path, FIELDS), range(5))
    columns = read_csv(path)
    assert list(columns) == list(FIELDS)
    assert all(column.dtype == np.float64 for column in columns.values())
    np.testing.assert_array_equal(columns["steps"], 10.0 * np.arange(5), strict=True)


def test_one_write_per_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CsvLog(path, FIELDS)
    written: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda _, data: written.append(bytes(data)) or len(data))
    log.write({"iteration": 1, "steps": 2, "reward": 3})
    log.write({"iteration": 2, "steps": 2, "reward": 3})
    assert written == [b"1,2,3\n", b"2,2,3\n"]


def test_csv_opened_again_goes_on(path: Path) -> None:
    fill(CsvLog(path, FIELDS), range(2))
    fill(CsvLog(path, FIELDS), range(2, 4))
    assert path.read_text().count("iteration") == 1
    assert read_csv(path)["iteration"].tolist() == [0, 1, 2, 3]


def test_a_torn_line_is_cut_on_opening(path: Path) -> None:
    fill(CsvLog(path, FIELDS), range(2))
    with open(path, "a") as file:
        file.write("2,20,2." + "5" * 200_000)
    fill(CsvLog(path, FIELDS), range(2, 4))
    assert read_csv(path)["reward"].tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("torn", ["", "iter", "iteration,steps,reward"])
def test_a_torn_header_is_written_anew(path: Path, torn: str) -> None:
    path.write_text(torn)
    with pytest.raises(ValueError, match="has no header"):
        read_csv(path)
    fill(CsvLog.resume(path, FIELDS, "iteration", 9), range(1))
    assert path.read_text() == "iteration,steps,reward\n0,0,0.5\n"


def test_another_header_of_a_new_log_is_refused(path: Path) -> None:
    path.write_text("iteration,steps,reward,more\n")
    with pytest.raises(ValueError, match=r"has another header.*move it away"):
        CsvLog(path, FIELDS)


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "x", "\n", "steps,steps\n", "steps,\udcff\n"])
def test_another_header_is_refused(path: Path, content: str) -> None:
    path.write_text(content, errors="surrogateescape")
    for open_log in (
        lambda: CsvLog(path, FIELDS),
        lambda: CsvLog.resume(path, FIELDS, "steps", 1),
    ):
        with pytest.raises(ValueError, match=r"has another header.*move it away"):
            open_log()
    assert path.read_text(errors="surrogateescape") == content


OLDER = "iteration,gone,steps\n0,5,0\n1,,10\n2,7,20\n3,8,30\n"
UNION = "iteration,gone,steps,reward\n0,5,0,\n1,,10,\n2,7,20,\n"


@pytest.mark.parametrize("torn", ["", "4,9,", "4"])
def test_a_log_with_older_columns_is_resumed_with_both(path: Path, torn: str) -> None:
    path.write_text(OLDER + torn)
    for _ in range(2):  # the second time they are all there
        log = CsvLog.resume(path, FIELDS, "iteration", 2)
        assert path.read_text() == UNION
        log.write({"iteration": 3, "steps": 30, "reward": 0.5})
        log.close()
        assert path.read_text() == UNION + "3,,30,0.5\n"
    assert list(read_csv(path)) == ["iteration", "gone", "steps", "reward"]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("row", ["5,1", "5,1,2,3", "5,x,2"])
def test_a_damaged_row_leaves_an_older_log_as_it_is(path: Path, row: str) -> None:
    path.write_text(OLDER + row + "\n")
    with pytest.raises(ValueError, match=r"line 6 has .*move it away"):
        CsvLog.resume(path, FIELDS, "iteration", 9)
    assert path.read_text() == OLDER + row + "\n"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_kill_while_columns_are_added_leaves_the_older_log(path: Path, call: str) -> None:
    path.write_text(OLDER)
    program = f"""
import os, signal, sys
from pathlib import Path
from operant.runs.logs import CsvLog
os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
CsvLog.resume(Path(sys.argv[1]), {FIELDS!r}, "iteration", 2)
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == OLDER
    CsvLog.resume(path, FIELDS, "iteration", 2).close()
    assert path.read_text() == UNION


@pytest.mark.parametrize("fields", [[], ["a", "a"], ["a,b"], ['"'], ["a\n"], [""], ["\x1b"]])
def test_names_that_cannot_be_columns(path: Path, fields: list[str]) -> None:
    with pytest.raises(ValueError, match="name"):
        CsvLog(path, fields)
    assert not path.exists()


def test_unknown_fields_and_late_rows_are_refused(path: Path) -> None:
    log = CsvLog(path, FIELDS)
    with pytest.raises(ValueError, match="unknown fields 'loss', 'lr' in the row"):
        log.write({"steps": 1, "lr": 1, "loss": 2})
    log.close()
    with pytest.raises(ValueError, match=r"metrics\.csv is closed"):
        log.write({"steps": 1})
    assert path.read_text() == "iteration,steps,reward\n"


def make(kind: str, path: Path, up_to: float | None = None) -> Log:
    if kind == "csv":
        return (
            CsvLog(path, FIELDS)
            if up_to is None
            else CsvLog.resume(path, FIELDS, "iteration", up_to)
        )
    return JsonlLog(path) if up_to is None else JsonlLog.resume(path, "iteration", up_to)


def iterations(kind: str, path: Path) -> list[float]:
    if kind == "csv":
        return read_csv(path)["iteration"].tolist()
    return [json.loads(line)["iteration"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(("up_to", "kept"), [(3, 4), (99, 8), (-1, 0), (3.5, 4)])
def test_resume_drops_what_will_be_written_again(
    path: Path, kind: str, torn: bool, up_to: float, kept: int
) -> None:
    fill(make(kind, path), range(8))
    if torn:
        with open(path, "ab") as file:
            file.write(b'{"iteration": 8, "st' if kind == "jsonl" else b"8,80")
    fill(make(kind, path, up_to), range(kept, 10))
    assert iterations(kind, path) == list(range(10))
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_resume_without_a_file_begins_one(path: Path, kind: str) -> None:
    fill(make(kind, path, 5), range(2))
    assert iterations(kind, path) == [0, 1]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_resume_that_fails_changes_nothing(
    path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(make(kind, path), range(8))
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(OSError, match="No space left"):
                make(kind, path, 2)
        assert path.read_bytes() == before
    for garbage in (b"garbage\n", b"1,2\n", b"[" * 100_000 + b"\n", b"\xff\n", b"x" * 2**21):
        path.write_bytes(before + garbage)
        with pytest.raises(ValueError, match=r"metrics\.csv: line \d+ .*move it away"):
            make(kind, path, 2)
        assert path.read_bytes() == before + garbage
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_that_grows_is_thinned(
    path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never above the bound; from the first row to the last, the newer half without a gap."""
    monkeypatch.setattr(logs, "MOST_BYTES", 4000)
    log = make(kind, path)
    for i in range(5000):
        log.write({"iteration": i, "steps": 10 * i, "reward": i + 0.5})
        assert path.stat().st_size <= 4000
    log.close()
    found = np.array(iterations(kind, path))
    gaps = np.diff(found)
    assert (found[0], found[-1]) == (0, 4999)
    assert (gaps > 0).all()
    assert gaps.max() <= 256  # no part of the run is gone: 5000 in more than 18 parts
    assert (gaps[-len(gaps) // 4 :] == 1).all()
    assert os.listdir(path.parent) == [path.name]
    # Resumed from a checkpoint before: what came after is written again, as ever.
    fill(make(kind, path, 4990), range(4991, 5000))
    assert iterations(kind, path) == found.tolist()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("times", [1.1, 1.4, 20])
def test_a_file_from_before_there_was_a_bound_can_be_read_and_resumed(
    path: Path, kind: str, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(make(kind, path), range(3000))
    most = int(path.stat().st_size / times)
    monkeypatch.setattr(logs, "MOST_BYTES", most)
    if kind == "csv":
        rows = read_csv(path)["iteration"]
        assert rows[0] == 0
        assert 3000 / (times + 2) < len(rows) < 3000 * 0.75
    fill(make(kind, path, 2900), range(2901, 2910))
    found = iterations(kind, path)
    assert path.stat().st_size <= most
    assert found[0] == 0
    assert found[-9:] == list(range(2901, 2910))
    assert len(found) > 3000 / times / 4
    assert (np.diff(found) > 0).all()


def test_no_room_to_thin_is_no_reason_to_stop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 400)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    log = CsvLog(path, FIELDS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        for i in range(50):
            log.write({"iteration": i})
    assert path.read_text().splitlines()[1:] == [f"{i},," for i in range(50)]
    assert os.listdir(path.parent) == [path.name]
    for i in range(50, 100):
        log.write({"iteration": i})
    assert path.stat().st_size <= 400


@pytest.mark.parametrize(
    ("width", "power"),
    [(1, 1), (1.01, 2), (2, 2), (3, 4), (0.3, 0.5), (1e300, 2.0**997), (0, 1), (math.nan, 1)],
)
def test_power_of_two(width: float, power: float) -> None:
    assert logs.power_of_two(width) == power


def test_a_long_log_keeps_its_end(path: Path) -> None:
    logs.cut_log(path, 1000)
    assert not path.exists()
    path.write_text("".join(f"line {i}\n" for i in range(100)))
    before = path.read_text()
    logs.cut_log(path, 1000)
    assert path.read_text() == before
    logs.cut_log(path, 200)
    assert path.read_text() == "".join(f"line {i}\n" for i in range(88, 100))


def test_resume_needs_a_known_key(path: Path) -> None:
    with pytest.raises(ValueError, match="'time' is not one of the fields iteration, steps"):
        CsvLog.resume(path, FIELDS, "time", 1)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_disk_full_leaves_whole_rows(path: Path, kind: str, spare: int) -> None:
    """A write that takes only a part of the row takes none of it."""
    log = make(kind, path)
    log.write({"iteration": 1, "steps": 2, "reward": 0.123456789})
    before = path.read_bytes()
    with (
        largest_file(len(before) + spare),
        pytest.raises(OSError, match=r"File too large|No space left"),
    ):
        log.write({"iteration": 2, "steps": 3, "reward": 0.123456789})
    assert path.read_bytes() == before
    log.write({"iteration": 3, "steps": 4, "reward": 1.0})
    assert iterations(kind, path) == [1, 3]


def test_disk_full_for_the_header(path: Path) -> None:
    with largest_file(3), pytest.raises(OSError, match=r"File too large|No space left"):
        CsvLog(path, FIELDS)
    assert path.read_bytes() == b""


KILLED = """
import sys
from pathlib import Path
from operant.runs.logs import CsvLog

log = CsvLog.resume(Path(sys.argv[1]), ("iteration", "value"), "iteration", int(sys.argv[2]))
i = int(sys.argv[2]) + 1
while True:
    log.write({"iteration": i, "value": i / 7})
    if i % 1000 == 0:
        print(i, flush=True)
    i += 1
"""


def test_kill_while_rows_are_written(path: Path) -> None:
    last = -1
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, str(path), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            line = writer.stdout.readline()
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        noted = int(line)
        columns = read_csv(path)
        assert len(columns["iteration"]) >= noted
        np.testing.assert_array_equal(columns["iteration"], np.arange(len(columns["iteration"])))
        np.testing.assert_array_equal(columns["value"], columns["iteration"] / 7)
        last = noted // 2  # a checkpoint some way back


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no header"),
        (b"a,b", "has no header"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 cells, the header 2"),
        (b"a,b\n1,2,3\n", "line 2 has 3 cells"),
        (b"a,b\n1,x\n", "line 2 has a cell that is not a number"),
        (b"a,b\n1,\xff\n", "line 2 has a cell that is not a number"),
        (b"a,\xff\n", "line 1 is not UTF-8"),
        (b"a,a\n", "none twice"),
        (b"a,\x1b[2J\n", r"'\\x1b\[2J' cannot be the name of a column"),
        (b"\n", "'' cannot be the name"),
        (b"a\n" + b"1" * 2**21, "line 2 is longer than 1048576 bytes"),
        (bytes(100) + b"\n", "cannot be the name"),
    ],
)
def test_csv_that_is_garbage(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
        read_csv(path)


def test_read_csv_ignores_a_torn_line_only(path: Path) -> None:
    path.write_bytes(b"a,b\n1,\n3,4\n5,6")
    assert read_csv(path)["a"].tolist() == [1, 3]
    np.testing.assert_array_equal(read_csv(path)["b"], [math.nan, 4])
    path.write_bytes(b"a\n\n1\n")
    np.testing.assert_array_equal(read_csv(path)["a"], [math.nan, 1])
    path.write_bytes(b"a,b\n")
    assert read_csv(path)["b"].shape == (0,)


def test_read_csv_is_bounded_and_reads_plain_files_only(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_csv(path)
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a plain file"):
        read_csv(path)
    path.unlink()
    path.write_bytes(b"a\n")
    os.truncate(path, 2**32 + 1)
    with pytest.raises(ValueError, match="is larger than 4294967296 bytes"):
        read_csv(path)


@given(st.binary(max_size=60))
def test_read_csv_fuzz(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(b"a,b\n1,2\n" + content)
    try:
        columns = read_csv(path)
    except ValueError:
        return
    assert len(columns["a"]) == 1 + content.count(b"\n")
    assert columns["b"][0] == 2


def test_jsonl_as_written(path: Path) -> None:
    log = JsonlLog(path)
    log.write({"steps": 10, "a/b": 0.1, '"': 2.0})
    log.write({"steps": math.nan, "x": math.inf, "y": -math.inf})
    log.close()
    log.close()
    assert path.read_text() == (
        '{"steps": 10, "a/b": 0.1, "\\"": 2}\n{"steps": null, "x": null, "y": null}\n'
    )
    with pytest.raises(ValueError, match="is closed"):
        log.write({"steps": 1})


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    log = TensorBoardLog(folder)
    fill(log, range(6))
    assert scalars(folder, "reward") == [(10 * i, i + 0.5) for i in range(6)]

    log = TensorBoardLog(folder, up_to=30)
    log.write({"steps": 40, "reward": 7.0, "loss": math.nan})
    log.write({"steps": 50, "reward": 8.0, "loss": 0.25})
    log.close()
    log.close()
    expected = [(0, 0.5), (10, 1.5), (20, 2.5), (30, 3.5), (40, 7.0), (50, 8.0)]
    assert scalars(folder, "reward") == expected
    assert scalars(folder, "loss") == [(50, 0.25)]


def test_tensorboard_needs_steps(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    with pytest.raises(ValueError, match="the row has no 'steps'; it has reward"):
        log.write({"reward": 1.0})
    log.close()


@pytest.mark.parametrize(
    ("module", "make_log", "message"),
    [
        (
            "tensorboard",
            lambda folder: TensorBoardLog(folder),
            r"^TensorBoard is not installed: pip install 'operant\[tensorboard\]'$",
        ),
        (
            "wandb",
            lambda folder: WandbLog(folder, "r", {}),
            r"^wandb is not installed: pip install 'operant\[wandb\]'$",
        ),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, make_log: Any, message: str
) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=message):
        make_log(tmp_path)


def test_a_broken_extra_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'six'", name="six")

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="six"):
        TensorBoardLog(Path("unused"))


def test_modules_of_runs_load_no_framework() -> None:
    code = (
        "import sys, operant.runs.logs, operant.runs.checkpoint, operant.runs.metrics_file;"
        "print([m for m in ('torch', 'tensorboard', 'wandb', 'numba', 'psutil')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr
