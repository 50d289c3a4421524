"""The journal of a sweep: a line of JSON for everything that happens, which Optuna replays.

Optuna's own backend writes the same lines. This one differs in what a killed process leaves: its
lock goes with it (Optuna's stays for 30 seconds), and half a line is cut off before the next is
written (Optuna's reader stops there for ever). Nothing is unpickled: only a backend with snapshots
would be, and this one has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from operant.toolchain.file_locks import fcntl
from operant.toolchain.files import open_plain, plain_descriptor

MOST_BYTES = 1 << 28
"""Of a journal: a trial of ten options takes 3 KB."""
_LONGEST_LINE = 1 << 20
_OPERATIONS = range(10)


class JournalError(ValueError):
    """A journal is damaged; the message is one sentence with its name."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"the journal {path} is damaged: {what}; remove the folder {path.parent}, or begin a "
            "sweep of another name"
        )


class Journal(BaseJournalBackend):
    """A file that several processes append to. Its reader trusts nothing.

    Args:
        path: the file; made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts = [0]
        """Where each line that was read begins, and where the next will."""
        os.close(plain_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Entries from that number on; half a line at the end is still being written.

        Raises:
            JournalError: a line that is no entry.
            OSError: it cannot be read.
        """
        number = min(log_number_from, len(self._starts) - 1)
        with open_plain(self.path) as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                raise JournalError(self.path, f"it has more than {MOST_BYTES >> 20} MiB")
            file.seek(self._starts[number])
            while line := file.readline(_LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) == _LONGEST_LINE:
                        raise JournalError(self.path, f"line {number + 1} is too long")
                    return
                number += 1
                if number == len(self._starts):
                    self._starts.append(file.tell())
                if number > log_number_from:
                    yield self._entry(line, number)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise JournalError(self.path, f"line {number} is not JSON") from None
        known = isinstance(entry, dict) and type(entry.get("op_code")) is int
        if not known or entry["op_code"] not in _OPERATIONS or "worker_id" not in entry:
            raise JournalError(self.path, f"line {number} is no entry of Optuna's")
        return entry  # type: ignore[no-any-return]

    def append_logs(self, logs: Iterable[dict[str, Any]]) -> None:
        """Add entries, on the disk when this returns.

        Raises:
            OSError: it cannot be written.
        """
        text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in logs)
        descriptor = plain_descriptor(self.path, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _cut_half_a_line(descriptor)
            data = text.encode()
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cut_half_a_line(descriptor: int) -> None:
    """Remove what a process that was killed while it wrote left at the end."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        tail = os.pread(descriptor, _LONGEST_LINE, max(0, size - _LONGEST_LINE))
        os.ftruncate(descriptor, size - len(tail) + tail.rfind(b"\n") + 1)


@contextmanager
def held(path: Path, wait: bool = True) -> Iterator[bool]:
    """A lock file for as long as the body runs, or the process lives; False: another has it.

    Raises:
        OSError: something else is in its place.
    """
    descriptor = plain_descriptor(path, os.O_WRONLY | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine = True
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        os.close(descriptor)
