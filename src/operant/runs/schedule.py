"""The schedule of an asynchronous run: which weights acted on which part of each rollout.

Nothing else of such a run depends on time, so a run that follows the schedule of another one ends
with the same weights. The file ``schedule.bin`` is appended to, little-endian:

- a header of 32 bytes: ``OPSCHED1``, then uint32: steps of a rollout, rows, the most versions of
  lag, parts that rows are collected in, flags of the record to come, and the CRC-32 of all that;
- a record for each rollout, in order, from 0 on, or from a later one that says that those before
  were lost: uint32 its number, uint16 how many slices follow, uint16
  flags, uint32 the CRC-32 of these and of the slices; then 8 bytes a slice: uint16 the part, uint16
  how many versions behind its weights were, uint32 the step from which on they acted.

A rollout whose weights did not change takes 20 bytes, any one at most
``12 + 8 * parts * (max_lag + 1)``. A record that a kill tore is cut off when the run is resumed.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from operant.toolchain.files import plain_descriptor, read_bounded

MOST_BYTES = 1 << 24
"""Of a file that is read: 800,000 rollouts of one part. In memory it is 45 times as large."""
_MAGIC = b"OPSCHED1"
_HEADER = struct.Struct("<8s5I")
_RECORD = struct.Struct("<IHH")
_SLICE = struct.Struct("<HHI")
_CRC = struct.Struct("<I")
NEW_EPISODES, OTHER_OPTIONS, MISSING = 1, 2, 4
_WHY = {
    NEW_EPISODES: "its environments cannot be saved, and began new episodes",
    OTHER_OPTIONS: "it went on with other options",
    MISSING: "the schedule before it was lost",
}
"""Flags of a rollout: what happened before it, when the run was resumed."""
_KNOWN = NEW_EPISODES | OTHER_OPTIONS | MISSING


class ScheduleError(ValueError):
    """A schedule that cannot be used; the message names the file."""


class Slice(NamedTuple):
    """From step `t` on, the rows of `part` are acted on with the weights of `version`."""

    part: int
    t: int
    version: int


class Shape(NamedTuple):
    """What a schedule is about."""

    num_steps: int
    rows: int
    max_lag: int
    parts: int = 1


@dataclass(frozen=True)
class Schedule:
    """The slices of each rollout, by its number from `first` on."""

    shape: Shape
    rollouts: tuple[tuple[Slice, ...], ...]
    flags: tuple[int, ...] = ()
    first: int = 0
    coming: int = 0
    """Flags of the rollout after the last."""

    def __len__(self) -> int:
        return len(self.rollouts)

    def why_not_followed(self) -> str | None:
        """Why a run cannot repeat it, as the end of a sentence; None: it can."""
        for number, flag in enumerate((*self.flags, self.coming), self.first):
            for bit, why in _WHY.items():
                if flag & bit:
                    return f"it was resumed before iteration {number}, and {why}"
        return None


def read_schedule(path: Path) -> Schedule:
    """What a file has up to its first record that is not whole.

    Raises:
        ScheduleError: missing, or no schedule.
    """
    try:
        data = read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror}") from None
    return _parsed(data, path)[0]


def _parsed(data: bytes, path: Path) -> tuple[Schedule, list[int]]:
    """The schedule in `data`, and where each of its records begins and the last one ends."""
    size = _HEADER.size + _CRC.size
    if (
        len(data) < size
        or not data.startswith(_MAGIC)
        or _crc(data, size) != zlib.crc32(data[: _HEADER.size])
    ):
        raise ScheduleError(f"{path} is not a schedule of an asynchronous run, or it is damaged")
    _, steps, rows, lag, parts, coming = _HEADER.unpack_from(data)
    shape = Shape(steps, rows, lag, parts)
    rollouts: list[tuple[Slice, ...]] = []
    flags: list[int] = []
    ends = [size]
    first = _first(data, size)
    while (found := _record(data, ends[-1], first + len(rollouts), shape)) is not None:
        slices, flag, end = found
        rollouts.append(slices)
        flags.append(flag)
        ends.append(end)
    return Schedule(shape, tuple(rollouts), tuple(flags), first, coming & _KNOWN), ends


def _first(data: bytes, start: int) -> int:
    """Which rollout a schedule begins with: 0, if its first record does not say otherwise."""
    if start + _RECORD.size > len(data):
        return 0
    number, _, flags = _RECORD.unpack_from(data, start)
    return int(number) if flags & MISSING else 0


def _crc(data: bytes, end: int) -> int:
    found: int = _CRC.unpack_from(data, end - _CRC.size)[0]
    return found


def _record(
    data: bytes, start: int, number: int, shape: Shape
) -> tuple[tuple[Slice, ...], int, int] | None:
    """The record of rollout `number` at `start`, its flags and its end; None: there is none, or not
    a good one."""
    head = start + _RECORD.size
    if head + _CRC.size > len(data):
        return None
    found, count, flags = _RECORD.unpack_from(data, start)
    body = head + _CRC.size
    end = body + count * _SLICE.size
    if found != number or end > len(data):
        return None
    if _crc(data, body) != zlib.crc32(data[body:end], zlib.crc32(data[start:head])):
        return None
    slices = tuple(
        Slice(part, t, number - lag) for part, lag, t in _SLICE.iter_unpack(data[body:end])
    )
    return (slices, flags, end) if is_good(slices, number, shape) else None


def is_good(slices: Sequence[Slice], number: int, shape: Shape) -> bool:
    """Whether a rollout can have come about so: every part from its first step on, with weights
    that are not too old and only get newer."""
    now: dict[int, Slice] = {}
    for one in slices:
        before = now.get(one.part)
        follows = one.t == 0 if before is None else before.t < one.t < shape.num_steps
        newer = before is None or before.version < one.version
        lag = number - one.version
        if not (follows and newer and 0 <= one.part < shape.parts):
            return False
        if one.version < 0 or not 0 <= lag <= shape.max_lag:
            return False
        now[one.part] = one
    return len(now) == shape.parts


def packed(number: int, slices: Sequence[Slice], flags: int = 0) -> bytes:
    """A record."""
    head = _RECORD.pack(number, len(slices), flags)
    body = b"".join(_SLICE.pack(one.part, number - one.version, one.t) for one in slices)
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


class ScheduleLog:
    """The file of a run that is being trained, to append to.

    Args:
        path: the file.
        shape: what the schedule is about.
        number: iterations that the run has behind it. What the file says of later ones is cut off;
            if it lacks some, or is no schedule of this shape, it begins anew with that noted.
        flags: what happened when the run was resumed. It is in the file at once, and stays there
            when what came after it is cut off.

    Raises:
        ValueError: more iterations than a file can count.
    """

    def __init__(self, path: Path, shape: Shape, number: int = 0, flags: int = 0) -> None:
        if not 0 <= number < 2**32:
            raise ValueError(f"a schedule counts less than 2**32 iterations, got {number:,}")
        self._path, self._shape, self._flags = path, shape, flags
        self._descriptor = plain_descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            keep = self._good_bytes(path, shape, number)
            os.ftruncate(self._descriptor, keep)
            if not keep and number:
                self._flags |= MISSING
            self._write_header()
        except BaseException:
            self.close()
            raise

    def _good_bytes(self, path: Path, shape: Shape, number: int) -> int:
        """How much of the file is the schedule of the first `number` rollouts; 0: not all of it.
        Flags of what is cut off are those of what is to come."""
        try:
            schedule, ends = _parsed(read_bounded(path, MOST_BYTES), path)
        except (OSError, ScheduleError):
            return 0
        kept = number - schedule.first
        if not (number > 0 and schedule.shape == shape and 0 < kept < len(ends)):
            return 0
        for flag in (*schedule.flags[kept:], schedule.coming):
            self._flags |= flag
        return ends[kept]

    def append(self, number: int, slices: Sequence[Slice]) -> None:
        """Write the record of a rollout. A kill afterwards loses nothing of it."""
        end = os.fstat(self._descriptor).st_size
        self._write(packed(number, slices, self._flags), end)
        if self._flags:
            self._flags = 0
            self._write_header()

    def _write_header(self) -> None:
        head = _HEADER.pack(_MAGIC, *self._shape, self._flags)
        self._write(head + _CRC.pack(zlib.crc32(head)), 0)

    def _write(self, data: bytes, place: int) -> None:
        try:
            if os.pwrite(self._descriptor, data, place) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        except OSError:
            if place:  # nothing of a record
                os.ftruncate(self._descriptor, place)
            raise

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()
