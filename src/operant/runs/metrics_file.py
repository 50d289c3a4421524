"""The live metrics of a run, `metrics.mmap`: one process writes, any number read, nobody waits.

A record carries a sequence number, odd while the record is being written, and a CRC-32: Python has
no memory barriers, so where a processor reorders stores the check catches what the number lets by.

Nobody here maps the file, though anybody may: to touch a mapped page beyond the end of a file that
someone has truncated is a SIGBUS, which kills. A read of it is short, and a write makes it longer.
"""

from __future__ import annotations

import os
import platform
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from operant.runs import metrics_layout as at
from operant.runs.metrics_layout import Layout, Status, Views, status_code
from operant.toolchain.files import open_plain, replacing, sync_folder, write_synced

__all__ = ["MetricsFileError", "MetricsReader", "MetricsWriter", "Snapshot", "Status"]

_TRIES = 8
_ONE = np.uint64(1)
_PAUSE_S = 1e-4  # between tries; a record takes the writer a few microseconds
_LOOK_S = 1.0  # how often the writer looks whether its file is still whole


class MetricsFileError(ValueError):
    """A metrics file that cannot be read; the message names it and says what is wrong."""


class MetricsWriter:
    """Creates the metrics file `path`, in place of one that may be there, and appends records.

    `history`: rows of an earlier part of the run, taken over as the first records.

    Raises:
        ValueError: names that are empty, double or not printable, or sizes out of bounds.
        OSError: the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        fields: Sequence[str],
        *,
        run_id: str,
        capacity: int = 4096,
        history: Sequence[Sequence[float]] = (),
    ) -> None:
        self.path = path
        self.layout = Layout(run_id, platform.node() or "unknown", tuple(fields), capacity)
        self._image = bytearray(self.layout.file_bytes)  # what the file is to hold
        self._views = Views(self._image, self.layout)
        self._records_at = self.layout.records_at
        self._record = np.zeros(self.layout.record_words, "<u8")
        self._values = self._record[1:-1].view("<f8")
        self._head = max(0, len(history) - capacity)
        # What changes of the header after the beginning, in one write.
        self._changing = self._views.words[at.WORD_STATUS : at.WORD_HEAD + 1].data
        self._descriptor = -1
        self._looked_at = time.monotonic()
        now = time.time()
        at.write_header(self._image, self.layout, os.getpid(), _born(os.getpid()) or 0.0, now)
        for row in history[self._head :]:
            self._store(row)
        self._create()

    def _create(self) -> None:
        """Put the image in the place of whatever is there."""
        descriptor = -1
        try:
            with replacing(self.path) as staged:
                write_synced(staged, self._image)
                descriptor = os.open(staged, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        sync_folder(self.path.parent)

    def append(self, values: Sequence[float]) -> None:
        """Add one record, a value for each field; counts as a heartbeat.

        Raises:
            ValueError: another number of values, or the file is closed.
        """
        self._check_open()
        start = self._store(values)
        # The order is the protocol: odd, record, even, head.
        self._record[0] -= _ONE
        self._write(start, self._record.data)
        self._record[0] += _ONE
        self._write(start, self._record[:1].data)
        self.heartbeat()

    def _store(self, values: Sequence[float]) -> int:
        """Put the next record into the image; its offset there."""
        if len(values) != len(self.layout.fields):
            raise ValueError(f"expected {len(self.layout.fields)} values, got {len(values)}")
        self._values[:] = values
        slot = self._head % self.layout.capacity
        self._record[0] = 2 * self._head + 2
        self._record[-1] = zlib.crc32(self._record[:-1].data)
        self._views.records[slot] = self._record
        self._head += 1
        self._views.words[at.WORD_HEAD] = self._head
        return self._records_at + slot * self._record.nbytes

    def heartbeat(self, now: float | None = None) -> None:
        """Say that the writer lives. `now`: seconds since 1970, by default the clock's."""
        self._check_open()
        self._views.floats[at.WORD_HEARTBEAT] = time.time() if now is None else now
        self._write(8 * at.WORD_STATUS, self._changing)
        self._repair()

    def _write(self, offset: int, data: memoryview) -> None:
        # Fails where the disk is full and someone has cut the file, whose blocks were all there.
        # Live figures are not worth a training: the file is repaired when it can be.
        with suppress(OSError):
            os.pwrite(self._descriptor, data, offset)

    def _repair(self) -> None:
        """Make the file anew if someone cut it, removed it, or put another thing in its place."""
        now = time.monotonic()
        if now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        with suppress(OSError):
            found, own = os.lstat(self.path), os.fstat(self._descriptor)
            # By its content: a cut file is soon as long as before, with zeros where it was cut.
            # 0.15 ms for 1 MB.
            held = os.pread(self._descriptor, len(self._image) + 1, 0)
            if os.path.samestat(found, own) and held == self._image:
                return
        with suppress(OSError):  # the folder is gone, or the disk full
            self._create()

    @property
    def status(self) -> Status:
        """What was said last."""
        return list(Status)[int(self._views.words[at.WORD_STATUS])]

    def say(self, status: Status) -> None:
        """What the run is doing, or how it ended."""
        self._check_open()
        self._views.words[at.WORD_STATUS] = status_code(status)
        self.heartbeat()

    def close(self) -> None:
        """Let go of the file; a run that was not finished counts as interrupted. May be
        repeated."""
        if self._descriptor < 0:
            return
        if self.status.live:
            self.say(Status.INTERRUPTED)
        self.__del__()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_open(self) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self.path} is closed")

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a metrics file held at one moment. Times are seconds since 1970."""

    run_id: str
    host: str
    fields: tuple[str, ...]
    status: Status  # what the writer said last
    pid: int
    alive: bool | None  # is the writer's process there? None: its number is another's, or its host
    started: float
    heartbeat: float
    head: int  # records ever written
    first: int  # index of the first of `rows`; they are consecutive unless `torn`
    rows: np.ndarray  # float64 [n, fields], newest last; the reader's own copy
    torn: int  # records that did not become whole within the bounded tries

    def state(self, now: float | None = None, patience_s: float = 30.0) -> str:
        """What the writer said last, see `Status`, or ``"stale"``.

        Stale: said to be at work, but its process is gone; or that cannot be known, the process
        number being taken by another or of another host, and no heartbeat came for `patience_s`.
        """
        if not self.status.live or self.alive:
            return str(self.status)
        age = (time.time() if now is None else now) - self.heartbeat
        return str(self.status) if self.alive is None and age <= patience_s else "stale"


class MetricsReader:
    """Reads the metrics file `path`. It may be anything: each length in it is bounded.

    Raises:
        MetricsFileError: it is not there, not such a file, of another version, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._open()

    def _open(self) -> None:
        try:
            with open_plain(self.path) as file:
                status = os.fstat(file.fileno())
                head = file.read(at.HEADER_BYTES + 3 * at.MAX_TEXT_BYTES)
                self._layout = at.parse_layout(head, status.st_size)
                descriptor = os.dup(file.fileno())
        except OSError as error:
            raise MetricsFileError(f"{self.path}: {error.strerror or error}") from error
        except ValueError as error:
            raise MetricsFileError(f"{self.path}: {error}") from error
        self.close()
        self._descriptor = descriptor
        self._identity = (status.st_dev, status.st_ino, status.st_size)

    def read(self, since: int = 0) -> Snapshot:
        """The records from index `since` on that the ring still holds. Never waits for the writer.

        A resumed run puts a new file in place of the old one; reading then goes on with that.

        Raises:
            MetricsFileError: the file is gone or damaged.
        """
        self._follow()
        words = np.frombuffer(self._header(), "<u8")
        floats = words.view("<f8")
        head, code = int(words[at.WORD_HEAD]), int(words[at.WORD_STATUS])
        if head >= 2**62 or code >= len(Status):
            raise MetricsFileError(f"{self.path}: is damaged: head {head}, status {code}")
        first = min(max(since, head - self._layout.capacity, 0), head)
        indices, rows, torn = self._rows(np.arange(first, head, dtype=np.int64))
        pid = int(words[at.WORD_PID])
        return Snapshot(
            run_id=self._layout.run_id,
            host=self._layout.host,
            fields=self._layout.fields,
            status=list(Status)[code],
            pid=pid,
            alive=_alive(pid, float(floats[at.WORD_PROCESS_STARTED]), self._layout.host),
            started=float(floats[at.WORD_STARTED]),
            heartbeat=float(floats[at.WORD_HEARTBEAT]),
            head=head,
            first=int(indices[0]) if len(indices) else head,
            rows=rows,
            torn=torn,
        )

    def _header(self) -> bytes:
        """The words of the header. Read twice: they have no check that would show a torn one."""
        header = self._bytes(0, at.HEADER_BYTES)
        for _ in range(_TRIES):
            again = self._bytes(0, at.HEADER_BYTES)
            if again == header:
                break
            header = again
        if not header.startswith(at.MAGIC):  # zeros: cut, and made longer again
            raise MetricsFileError(f"{self.path}: is not a metrics file")
        return header

    def _rows(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Indices and values of the records of `wanted` that are whole, and how many are torn."""
        kept = [np.empty(0, np.int64)]
        found = [np.empty((0, self._layout.record_words), "<u8")]
        for attempt in range(_TRIES):
            if not len(wanted):
                break
            if attempt:
                time.sleep(_PAUSE_S)
            expected = 2 * wanted.astype(np.uint64) + 2
            records = self._records(wanted)
            after = self._records(wanted)[:, 0]
            good = (records[:, 0] == expected) & (after == expected)
            good[good] = [zlib.crc32(record[:-1].data) == record[-1] for record in records[good]]
            kept.append(wanted[good])
            found.append(records[good])
            # A later even number: the ring has come round, the record is gone and nobody's fault.
            gone = (after > expected) & (after % 2 == 0)
            wanted = wanted[~good & ~gone]
        indices, records = np.concatenate(kept), np.concatenate(found)
        order = np.argsort(indices)
        values = records[order, 1:-1].view("<f8").astype(np.float64)
        return indices[order], values, len(wanted)

    def _records(self, wanted: np.ndarray) -> np.ndarray:
        """The slots of the records `wanted`, ascending, as they are now: u64 [n, words]."""
        first, count = int(wanted[0]), int(wanted[-1] - wanted[0]) + 1
        slot, size = first % self._layout.capacity, 8 * self._layout.record_words
        straight = min(count, self._layout.capacity - slot)
        data = self._bytes(self._layout.records_at + slot * size, straight * size)
        if straight < count:  # the ring goes on at its beginning
            data += self._bytes(self._layout.records_at, (count - straight) * size)
        records = np.frombuffer(data, "<u8").reshape(count, -1)
        return records if count == len(wanted) else records[wanted - first]

    def _bytes(self, start: int, count: int) -> bytes:
        data = os.pread(self._descriptor, count, start)
        if len(data) < count:
            raise MetricsFileError(f"{self.path}: is truncated: ends within byte {start + count}")
        return data

    def _follow(self) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self.path} is closed")
        try:
            status = os.lstat(self.path)
        except OSError as error:
            raise MetricsFileError(f"{self.path}: {error.strerror or error}") from error
        if (status.st_dev, status.st_ino, status.st_size) != self._identity:
            self._open()

    def close(self) -> None:
        """Let go of the file. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> MetricsReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _born(pid: int) -> float | None:
    """When the process started, seconds since 1970; 0 if that is secret, None if there is none."""
    import psutil

    try:
        process = psutil.Process(pid)  # type: ignore[no-untyped-call]
        if process.status() == psutil.STATUS_ZOMBIE:  # type: ignore[no-untyped-call]
            return None
        return float(process.create_time())  # type: ignore[no-untyped-call]
    except psutil.AccessDenied:
        return 0.0
    except psutil.Error:
        return None


def _alive(pid: int, born: float, host: str) -> bool | None:
    if host != (platform.node() or "unknown"):
        return None
    found = _born(pid)
    if found is None:
        return False
    # Clocks are set: two seconds apart is still the same process. More is a reused number, or a
    # clock that was set by more, so the heartbeat decides.
    return True if found == 0.0 or abs(found - born) < 2.0 else None
