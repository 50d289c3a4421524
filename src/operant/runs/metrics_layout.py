"""The bytes of `metrics.mmap`: a header of 16 words, texts, and a ring of records.

Everything is little-endian and lies on multiples of 8 bytes; docs/metrics-file.md has the table.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAGIC = b"OPERMETR"
VERSION = 1
HEADER_WORDS = 16
HEADER_BYTES = 8 * HEADER_WORDS

# The words of the header; the last three are the only ones that change after creation.
(
    WORD_MAGIC,
    WORD_VERSION,
    WORD_RECORDS_AT,
    WORD_FIELDS,
    WORD_CAPACITY,
    WORD_RUN_ID_BYTES,
    WORD_HOST_BYTES,
    WORD_NAMES_BYTES,
    WORD_PID,
    WORD_PROCESS_STARTED,
    WORD_STARTED,
    WORD_STATUS,
    WORD_HEARTBEAT,
    WORD_HEAD,
) = range(14)

MAX_FIELDS = 1024
MAX_CAPACITY = 2**20
MAX_TEXT_BYTES = 2**16
MAX_FILE_BYTES = 2**26


class Status(enum.StrEnum):
    """What the writer says of its run; stored as the position in this list."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STARTING = "starting"
    SAVING = "saving"

    @property
    def live(self) -> bool:
        """Whether there is to be a process that does it."""
        return self in (Status.RUNNING, Status.STARTING, Status.SAVING)


@dataclass(frozen=True)
class Layout:
    """Names and sizes of one file, checked.

    Raises:
        ValueError: a size out of bounds, or a text that is not printable.
    """

    run_id: str
    host: str
    fields: tuple[str, ...]
    capacity: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.fields) <= MAX_FIELDS:
            raise ValueError(f"must have 1 to {MAX_FIELDS} fields, got {len(self.fields)}")
        if not 1 <= self.capacity <= MAX_CAPACITY:
            raise ValueError(f"capacity must be 1 to {MAX_CAPACITY}, got {self.capacity}")
        for text in (self.run_id, self.host, *self.fields):
            # Not printable: control characters, which a terminal would act on, and the newline
            # that separates names.
            if not text or not text.isprintable():
                raise ValueError(f"names must be printable text, got {text[:40]!r}")
        if len(set(self.fields)) < len(self.fields):
            raise ValueError("has the same field twice")
        if max(map(len, self.texts)) > MAX_TEXT_BYTES:
            raise ValueError(f"names may take at most {MAX_TEXT_BYTES} bytes")
        if self.file_bytes > MAX_FILE_BYTES:
            raise ValueError(f"would take {self.file_bytes} bytes, at most {MAX_FILE_BYTES}")

    @property
    def texts(self) -> tuple[bytes, bytes, bytes]:
        """Run id, host and field names as they lie behind the header."""
        return self.run_id.encode(), self.host.encode(), "\n".join(self.fields).encode()

    @property
    def records_at(self) -> int:
        """Offset of the first record in bytes."""
        return HEADER_BYTES + -(-sum(map(len, self.texts)) // 8) * 8

    @property
    def record_words(self) -> int:
        """Sequence number, values, check."""
        return len(self.fields) + 2

    @property
    def file_bytes(self) -> int:
        """Size of the whole file."""
        return self.records_at + 8 * self.record_words * self.capacity


class Views:
    """Aligned 8-byte words of a buffer laid out as `layout`; they alias it."""

    def __init__(self, buffer: bytearray, layout: Layout) -> None:
        self.words = np.ndarray((HEADER_WORDS,), "<u8", buffer)
        self.floats = self.words.view("<f8")
        shape = (layout.capacity, layout.record_words)
        self.records = np.ndarray(shape, "<u8", buffer, layout.records_at)


def status_code(status: Status) -> int:
    """The number that stands for `status` in the header."""
    return list(Status).index(status)


def write_header(buffer: bytearray, layout: Layout, pid: int, born: float, now: float) -> None:
    """Fill header and texts of a new file; status running, no records."""
    views = Views(buffer, layout)
    run_id, host, names = (len(text) for text in layout.texts)
    views.words[WORD_MAGIC] = int.from_bytes(MAGIC, "little")
    views.words[WORD_VERSION] = VERSION
    views.words[WORD_RECORDS_AT] = layout.records_at
    views.words[WORD_FIELDS] = len(layout.fields)
    views.words[WORD_CAPACITY] = layout.capacity
    views.words[WORD_RUN_ID_BYTES : WORD_NAMES_BYTES + 1] = run_id, host, names
    views.words[WORD_PID] = pid
    views.floats[WORD_PROCESS_STARTED] = born
    views.floats[WORD_STARTED] = now
    views.floats[WORD_HEARTBEAT] = now
    buffer[HEADER_BYTES : HEADER_BYTES + run_id + host + names] = b"".join(layout.texts)


def parse_layout(head: bytes, size: int) -> Layout:
    """The layout of a file of `size` bytes that begins with `head`; every length is bounded.

    `head` is the file's beginning, up to HEADER_BYTES + 3 * MAX_TEXT_BYTES of it.

    Raises:
        ValueError: it is not such a file, or damaged.
    """
    if size == 0:
        raise ValueError("is empty")
    if head[:8] != MAGIC:
        raise ValueError("is not a metrics file")
    if len(head) < HEADER_BYTES:
        raise ValueError(f"is truncated: {size} bytes, the header alone takes {HEADER_BYTES}")
    words = [int(word) for word in np.frombuffer(head, "<u8", HEADER_WORDS)]
    if words[WORD_VERSION] != VERSION:
        raise ValueError(f"has the version {words[WORD_VERSION]}, this one reads {VERSION}")
    if words[WORD_PID] >= 2**31:
        raise ValueError(f"has the absurd process number {words[WORD_PID]}")
    lengths = words[WORD_RUN_ID_BYTES : WORD_NAMES_BYTES + 1]
    if max(lengths) > MAX_TEXT_BYTES:
        raise ValueError(f"has a text of {max(lengths)} bytes, at most {MAX_TEXT_BYTES} allowed")
    run_id, host, names = _texts(head, lengths)
    layout = Layout(run_id, host, tuple(names.split("\n")), words[WORD_CAPACITY])
    expected = words[WORD_FIELDS], words[WORD_RECORDS_AT], size
    if expected != (len(layout.fields), layout.records_at, layout.file_bytes):
        raise ValueError(
            f"has {size} bytes and says {expected[0]} fields with records from byte {expected[1]}; "
            f"its names and capacity make {layout.file_bytes} bytes, {len(layout.fields)} fields "
            f"and {layout.records_at}"
        )
    return layout


def _texts(head: bytes, lengths: Sequence[int]) -> list[str]:
    texts = []
    at = HEADER_BYTES
    for length in lengths:
        if at + length > len(head):
            raise ValueError(f"is truncated: its names end beyond byte {len(head)}")
        try:
            texts.append(head[at : at + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise ValueError("has a name that is not UTF-8") from None
        at += length
    return texts
