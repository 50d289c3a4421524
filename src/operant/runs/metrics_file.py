"""The live metrics of a run, `metrics.mmap`: one process writes, any number read, nobody waits.

A record carries a sequence number, odd while the record is being written, and a CRC-32: Python has
no memory barriers, so where a processor reorders stores the check catches what the number lets by.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from operant.runs import metrics_layout as at
from operant.runs.files import open_plain, sync_folder, temporary_name, write_synced
from operant.runs.metrics_layout import Layout, Status, Views, status_code

__all__ = ["MetricsFileError", "MetricsReader", "MetricsWriter", "Snapshot", "Status"]

_TRIES = 8
_PAUSE_S = 1e-4  # between tries; a record takes the writer a few microseconds


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
        self._record = np.zeros(self.layout.record_words, "<u8")
        self._values = self._record[1:-1].view("<f8")
        self._head = max(0, len(history) - capacity)
        # The blocks are allocated by writing them: a store into a hole of a full disk is a SIGBUS.
        image = bytearray(self.layout.file_bytes)
        at.write_header(image, self.layout, os.getpid(), _born(os.getpid()) or 0.0, time.time())
        self._views: Views | None = Views(image, self.layout)
        for row in history[self._head :]:
            self.append(row)
        self._views = Views(self._create(image), self.layout)

    def _create(self, image: bytearray) -> mmap.mmap:
        staged = self.path.with_name(temporary_name(self.path.name))
        try:
            write_synced(staged, image)
            with open(staged, "r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            os.replace(staged, self.path)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        sync_folder(self.path.parent)
        return mapped

    def append(self, values: Sequence[float]) -> None:
        """Add one record, a value for each field; counts as a heartbeat.

        Raises:
            ValueError: another number of values, or the file is closed.
        """
        views = self._open_views()
        if len(values) != len(self.layout.fields):
            raise ValueError(f"expected {len(self.layout.fields)} values, got {len(values)}")
        self._values[:] = values
        index = self._head
        slot = index % self.layout.capacity
        self._record[0] = 2 * index + 2
        self._record[-1] = zlib.crc32(self._record[:-1].data)
        # The order is the protocol: odd, record, even, head.
        views.sequence[slot] = 2 * index + 1
        views.records[slot, 1:] = self._record[1:]
        views.sequence[slot] = 2 * index + 2
        self._head = index + 1
        views.words[at.WORD_HEAD] = self._head
        self.heartbeat()

    def heartbeat(self, now: float | None = None) -> None:
        """Say that the writer lives. `now`: seconds since 1970, by default the clock's."""
        self._open_views().floats[at.WORD_HEARTBEAT] = time.time() if now is None else now

    def say(self, status: Status) -> None:
        """What the run is doing, or how it ended."""
        self._open_views().words[at.WORD_STATUS] = status_code(status)
        self.heartbeat()

    def close(self) -> None:
        """Let go of the file; a run that was not finished counts as interrupted. May be
        repeated."""
        if self._views is None:
            return
        if list(Status)[int(self._views.words[at.WORD_STATUS])].live:
            self.say(Status.INTERRUPTED)
        # Unmapped when the last view goes. To insist, by mmap.close(), would be a BufferError where
        # a traceback still holds one.
        self._views = None

    def _open_views(self) -> Views:
        if self._views is None:
            raise ValueError(f"{self.path} is closed")
        return self._views

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
    """Maps the metrics file `path` read-only. It may be anything: each length in it is bounded.

    Raises:
        MetricsFileError: it is not there, not such a file, of another version, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        try:
            with open_plain(self.path) as file:
                status = os.fstat(file.fileno())
                head = file.read(at.HEADER_BYTES + 3 * at.MAX_TEXT_BYTES)
                layout = at.parse_layout(head, status.st_size)
                mapped = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise MetricsFileError(f"{self.path}: {error.strerror or error}") from error
        except ValueError as error:
            raise MetricsFileError(f"{self.path}: {error}") from error
        self._layout = layout
        self._views: Views | None = Views(mapped, layout)
        self._identity = (status.st_dev, status.st_ino, status.st_size)

    def read(self, since: int = 0) -> Snapshot:
        """The records from index `since` on that the ring still holds. Never waits for the writer.

        A resumed run puts a new file in place of the old one; reading then goes on with that.

        Raises:
            MetricsFileError: the file is gone or damaged.
        """
        views = self._follow()
        words = views.words.copy()
        floats = words.view("<f8")
        head, code = int(words[at.WORD_HEAD]), int(words[at.WORD_STATUS])
        if head >= 2**62 or code >= len(Status):
            raise MetricsFileError(f"{self.path}: is damaged: head {head}, status {code}")
        first = min(max(since, head - self._layout.capacity, 0), head)
        indices, rows, torn = self._rows(views, np.arange(first, head, dtype=np.int64))
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

    def _rows(self, views: Views, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Indices and values of the records of `wanted` that are whole, and how many are torn."""
        kept = [np.empty(0, np.int64)]
        found = [np.empty((0, self._layout.record_words), "<u8")]
        for attempt in range(_TRIES):
            if not len(wanted):
                break
            if attempt:
                time.sleep(_PAUSE_S)
            slots = wanted % self._layout.capacity
            expected = 2 * wanted.astype(np.uint64) + 2
            records = views.records[slots]
            after = views.sequence[slots]
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

    def _follow(self) -> Views:
        if self._views is None:
            raise ValueError(f"{self.path} is closed")
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise MetricsFileError(f"{self.path}: {error.strerror or error}") from error
        # Also when the size has changed: to touch a page beyond the end of a file is a SIGBUS.
        if (status.st_dev, status.st_ino, status.st_size) != self._identity:
            self._open()
        return self._views

    def close(self) -> None:
        """Let go of the file. May be repeated."""
        self._views = None

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
