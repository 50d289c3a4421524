"""Where rows of metrics go to stay: CSV and JSON lines here, TensorBoard and W&B in `trackers`.

A row is appended by one write, so a kill can tear only the last line; opening it again cuts that.
A file that passes `MOST_BYTES` is thinned by what stands first in its rows, the iteration: the
newest quarter stays row by row, and before it rows at equal distances that fill at most a half.
"""

from __future__ import annotations

import array
import errno
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from operant.runs.trackers import TensorBoardLog, WandbLog
from operant.toolchain.files import (
    open_plain,
    plain_descriptor,
    replace_file,
    replacing,
    sync_folder,
)

__all__ = ["CsvLog", "JsonlLog", "Log", "TensorBoardLog", "WandbLog", "cut_log", "read_csv"]

MOST_BYTES = 2**26
"""Of a file of rows."""
_MAX_LINE_BYTES = 2**20
_MAX_HEADER_BYTES = 2**16  # that older columns are taken from
_MAX_FILE_BYTES = 2**32  # that is read; from before files were thinned


class Log(Protocol):
    """Takes one row of metrics at a time."""

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class CsvLog:
    """Appends rows to a CSV file: NaN and absent values are empty cells, whole numbers have no dot.

    Raises:
        ValueError: the file is there and has another header, or a name cannot stand in a header.
    """

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._known = frozenset(fields)
        self._lines = _Lines(path, _header(self._fields))

    @classmethod
    def resume(cls, path: Path, fields: Sequence[str], key: str, up_to: float) -> CsvLog:
        """Open `path` without the rows whose `key` exceeds `up_to`; they will be written again.

        A file with other columns, as another version wrote it, keeps them; those that it lacks come
        after them and are empty in its rows. It is rewritten as a whole, or not at all.

        Raises:
            ValueError: a line that is not a row, or a header without `key`.
        """
        if key not in fields:
            raise ValueError(f"{key!r} is not one of the fields {', '.join(fields)}")
        old = _columns(path, fields, key)
        if not old:
            return cls(path, fields)
        both = (*old, *(name for name in fields if name not in old))
        place, added = old.index(key), b"," * (len(both) - len(old))

        def edit(number: int, line: bytes) -> bytes:
            if number == 1:
                return _header(both)
            known = _parse_row(line, number, len(old))[place] <= up_to
            return line[:-1] + added + b"\n" if known else b""

        _bound(path, _header(old))
        _rewrite(path, edit)
        return cls(path, both)

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row.

        Raises:
            ValueError: a name that is not in the header, or the log is closed.
            OSError: the disk is full, say; nothing of the row is in the file then.
        """
        if not row.keys() <= self._known:
            unknown = sorted(row.keys() - self._known)
            raise ValueError(f"unknown fields {', '.join(map(repr, unknown))} in the row")
        cells = (_number(row[name]) if name in row else "" for name in self._fields)
        self._lines.append(",".join(cells) + "\n")

    def close(self) -> None:
        """Close the file. May be repeated."""
        self._lines.close()


class JsonlLog:
    """Appends rows to a file of JSON objects, one a line; NaN and infinities are null."""

    def __init__(self, path: Path) -> None:
        self._lines = _Lines(path, b"")

    @classmethod
    def resume(cls, path: Path, key: str, up_to: float) -> JsonlLog:
        """Open `path` without the rows whose `key` exceeds `up_to`; they will be written again.

        Raises:
            ValueError: a line that is not a row with that key.
        """

        def edit(number: int, line: bytes) -> bytes:
            try:
                return line if json.loads(line)[key] <= up_to else b""
            except (ValueError, TypeError, LookupError, RecursionError):
                raise ValueError(f"line {number} is not a row with a number for {key!r}") from None

        if path.exists():
            _bound(path, b"")
            _rewrite(path, edit)
        return cls(path)

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row.

        Raises:
            ValueError: the log is closed.
            OSError: the disk is full, say; nothing of the row is in the file then.
        """
        cells = (
            f"{json.dumps(name)}: {_number(value) if math.isfinite(value) else 'null'}"
            for name, value in row.items()
        )
        self._lines.append("{" + ", ".join(cells) + "}\n")

    def close(self) -> None:
        """Close the file. May be repeated."""
        self._lines.close()


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV log, float64, NaN for empty cells. A torn last line is left out.

    Of a file larger than `MOST_BYTES` only every second row is read, or third, and so on.

    Raises:
        ValueError: not such a file; the message names file and line.
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_FILE_BYTES:
            raise ValueError(f"{path}: is larger than {_MAX_FILE_BYTES} bytes")
        every = max(1, -(-size // MOST_BYTES))
        try:
            fields: list[str] = []
            values = array.array("d")
            for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), 1):
                if not _whole(line, number):
                    break
                if number == 1:
                    fields = line.decode("utf-8").rstrip("\n").split(",")
                    _header(fields)
                elif (number - 2) % every == 0:
                    values.extend(_parse_row(line, number, len(fields)))
        except ValueError as error:
            reason = "line 1 is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise ValueError(f"{path}: {reason}") from None
    if not fields:
        raise ValueError(f"{path}: has no header")
    table = np.frombuffer(values).reshape(-1, len(fields))
    return {name: table[:, column].copy() for column, name in enumerate(fields)}


def cut_log(path: Path, most: int) -> None:
    """Keep the last lines of a text file, half of `most` bytes of them, if it is larger than that.

    Raises:
        OSError: it cannot be read or written.
    """
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= most:
                return
            file.seek(size - most // 2)
            text = file.read(most // 2)
    except FileNotFoundError:
        return
    replace_file(path, text.partition(b"\n")[2])


class _Lines:
    """Whole lines at the end of a file that begins with `header`."""

    def __init__(self, path: Path, header: bytes) -> None:
        self._path, self._header = path, header
        self._thin_at = MOST_BYTES
        fresh = not _has_header(path, header)
        self._descriptor = self._open()
        try:
            os.ftruncate(self._descriptor, 0 if fresh else _whole_bytes(self._descriptor))
            if fresh and header:
                self.append(header.decode())
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        return plain_descriptor(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def append(self, line: str) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed")
        data = line.encode()
        size = os.fstat(self._descriptor).st_size
        if size + len(data) > self._thin_at:
            size = self._thin(size)
        try:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def _thin(self, size: int) -> int:
        """Make the file smaller; its new size. Later, where there is no room for the new one."""
        with suppress(OSError):
            _thin(self._path, self._header)
            descriptor = self._open()
            os.close(self._descriptor)
            self._descriptor = descriptor
            size = os.fstat(descriptor).st_size
        self._thin_at = max(MOST_BYTES, size + MOST_BYTES // 4)
        return size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _bound(path: Path, header: bytes) -> None:
    """Thin a file that is too large."""
    if path.stat().st_size > MOST_BYTES:
        _thin(path, header)


def _thin(path: Path, header: bytes) -> None:
    """Atomically make a file of about `MOST_BYTES`, or of more, smaller than that.

    Not "every second row of the older half": that halves the oldest rows each time, and soon there
    are none. The older part is divided by the first column, and the first row of each part stays.
    The parts are powers of two wide, so those of the next time are made of whole ones of this time.
    """
    end = path.stat().st_size - MOST_BYTES // 4
    count, first, last = 0, math.nan, math.nan
    with open_plain(path) as file:
        file.readline(len(header))
        while file.tell() < end and (line := file.readline(_MAX_LINE_BYTES)):
            last = _place(line)
            first = last if count == 0 else first
            count += 1
    parts = max(1, MOST_BYTES // 2 * count // max(1, end))
    width = power_of_two((last - first) / (parts - 1)) if parts > 1 else math.inf
    at, part = 0, math.nan

    def edit(_: int, line: bytes) -> bytes:
        nonlocal at, part
        at += len(line)
        if at <= len(header) or at > end:
            return line
        before, part = part, (_place(line) - first) // width
        return line if part != before and part == part else b""

    _rewrite(path, edit)


def power_of_two(width: float) -> float:
    """The smallest power of two that is not below `width`; 1 where that is no positive number."""
    if not 0 < width < math.inf:
        return 1.0
    mantissa, exponent = math.frexp(width)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


def _place(line: bytes) -> float:
    """The first number of a row, whether of a CSV or of JSON lines; NaN if it is none."""
    cell = line.partition(b": ")[2] if line.startswith(b"{") else line
    try:
        return float(cell.partition(b",")[0].rstrip(b"}\n"))
    except ValueError:
        return math.nan


def _whole_bytes(descriptor: int) -> int:
    """Length of the file up to its last newline."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _has_header(path: Path, header: bytes) -> bool:
    """Whether the file is there with its `header`; also False if it was torn within the header.

    Raises:
        ValueError: it begins with something else.
    """
    try:
        with open_plain(path) as file:
            start = file.read(len(header))
    except FileNotFoundError:
        return False
    if start == header:
        return True
    if header.startswith(start):
        return False
    raise ValueError(
        f"{path} has another header: it begins with {start[:200]!r}, "
        f"expected {header[:200]!r}; move it away to go on"
    )


def _columns(path: Path, fields: Sequence[str], key: str) -> tuple[str, ...]:
    """The columns that a log has; none if it is not there or was torn within its header.

    Raises:
        ValueError: it begins with something else than a header with `key`.
    """
    try:
        return tuple(fields) if _has_header(path, _header(fields)) else ()
    except ValueError:
        with open_plain(path) as file:
            line = file.readline(_MAX_HEADER_BYTES)
        with suppress(ValueError):
            names = tuple(line.decode().rstrip("\n").split(","))
            if line == _header(names) and key in names:
                return names
        raise


def _rewrite(path: Path, edit: Callable[[int, bytes], bytes]) -> None:
    """Atomically put what `edit(number, line)` returns in each line's place; drop a torn last one.

    An empty one drops the line.
    """
    try:
        with replacing(path) as staged, open_plain(path) as source, open(staged, "xb") as target:
            for number, line in enumerate(iter(lambda: source.readline(_MAX_LINE_BYTES), b""), 1):
                if not _whole(line, number):
                    break
                target.write(edit(number, line))
            target.flush()
            os.fsync(target.fileno())
    except ValueError as error:
        raise ValueError(f"{path}: {error}; move it away to go on") from None
    sync_folder(path.parent)


def _whole(line: bytes, number: int) -> bool:
    """Whether the line is complete; if not, it is the file's last one."""
    if line.endswith(b"\n"):
        return True
    if len(line) >= _MAX_LINE_BYTES:
        raise ValueError(f"line {number} is longer than {_MAX_LINE_BYTES} bytes")
    return False


def _header(fields: Sequence[str]) -> bytes:
    for name in fields:
        if not name or not name.isprintable() or "," in name or '"' in name:
            raise ValueError(f"{name[:40]!r} cannot be the name of a column")
    if not fields or len(set(fields)) < len(fields):
        raise ValueError("a header needs at least one name, and none twice")
    return (",".join(fields) + "\n").encode()


def _parse_row(line: bytes, number: int, count: int) -> list[float]:
    cells = line.rstrip(b"\n").split(b",")
    if len(cells) != count:
        raise ValueError(f"line {number} has {len(cells)} cells, the header {count}")
    try:
        return [float(cell) if cell else math.nan for cell in cells]
    except ValueError:
        raise ValueError(f"line {number} has a cell that is not a number") from None


def _number(value: float) -> str:
    """The shortest text that reads back as the same float64; empty for NaN."""
    if isinstance(value, int | np.integer):
        return str(int(value))  # int: or a bool would be a word
    number = float(value)
    if math.isnan(number):
        return ""
    # 2**53: from there on a float64 is whole whether it was meant so or not. -0.0 keeps its sign.
    if number.is_integer() and abs(number) < 2**53 and (number or math.copysign(1, number) > 0):
        return str(int(number))
    return repr(number)
