"""The schedule of an asynchronous run as a file: written, torn, cut, distrusted."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from operant.runs.schedule import (
    MISSING,
    NEW_EPISODES,
    OTHER_OPTIONS,
    ScheduleError,
    ScheduleLog,
    Shape,
    Slice,
    packed,
    read_schedule,
)

SHAPE = Shape(num_steps=8, rows=4, max_lag=2, parts=2)
ROLLOUTS = [
    (Slice(0, 0, 0), Slice(1, 0, 0)),
    (Slice(0, 0, 0), Slice(1, 0, 0), Slice(1, 3, 1)),
    (Slice(0, 0, 0), Slice(1, 0, 1), Slice(0, 1, 1), Slice(1, 6, 2), Slice(0, 7, 2)),
    (Slice(0, 0, 1), Slice(1, 0, 3)),
]


def written(path: Path, count: int = len(ROLLOUTS)) -> bytes:
    log = ScheduleLog(path, SHAPE)
    for number, slices in enumerate(ROLLOUTS[:count]):
        log.append(number, slices)
    log.close()
    return path.read_bytes()


def test_a_schedule_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    data = written(path)
    schedule = read_schedule(path)
    assert schedule.shape == SHAPE
    assert list(schedule.rollouts) == ROLLOUTS
    assert schedule.why_not_followed() is None
    slices = sum(map(len, ROLLOUTS))
    assert len(data) == 32 + 12 * len(ROLLOUTS) + 8 * slices


def test_torn_at_any_byte_it_is_cut_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    data = written(path)
    whole = [len(written(path, count)) for count in range(len(ROLLOUTS) + 1)]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size < 32:
            with pytest.raises(ScheduleError, match="not a schedule"):
                read_schedule(path)
            continue
        found = read_schedule(path)
        assert len(found) == max(k for k, end in enumerate(whole) if end <= size)
        assert list(found.rollouts) == ROLLOUTS[: len(found)]
        log = ScheduleLog(path, SHAPE, len(found))
        for number in range(len(found), len(ROLLOUTS)):
            log.append(number, ROLLOUTS[number])
        log.close()
        assert path.read_bytes() == data


def test_what_came_after_a_checkpoint_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    written(path)
    log = ScheduleLog(path, SHAPE, 2, NEW_EPISODES)
    log.append(2, (Slice(0, 0, 2), Slice(1, 0, 2)))
    log.append(3, ROLLOUTS[3])
    log.close()
    found = read_schedule(path)
    assert list(found.rollouts[:2]) == ROLLOUTS[:2]
    assert found.flags == (0, 0, NEW_EPISODES, 0)
    why = found.why_not_followed()
    assert why is not None
    assert "before iteration 2" in why
    assert "began new episodes" in why


@pytest.mark.parametrize("count", [0, 1])
def test_a_schedule_that_lost_records_says_so(tmp_path: Path, count: int) -> None:
    path = tmp_path / "schedule.bin"
    written(path, count)
    log = ScheduleLog(path, SHAPE, 3)
    log.append(3, ROLLOUTS[3])
    log.close()
    found = read_schedule(path)
    assert (found.first, found.flags) == (3, (MISSING,))
    assert "was lost" in str(found.why_not_followed())


def test_a_lost_schedule_of_many_iterations_takes_no_room(tmp_path: Path) -> None:
    path, number = tmp_path / "schedule.bin", 10_000
    log = ScheduleLog(path, SHAPE, number)
    assert path.stat().st_size == 32, "though a forged checkpoint may say any number"
    log.append(number, (Slice(0, 0, number), Slice(1, 0, number)))
    log.close()
    log = ScheduleLog(path, SHAPE, number + 1)
    log.append(number + 1, (Slice(0, 0, number), Slice(1, 0, number)))
    log.close()
    found = read_schedule(path)
    assert (found.first, len(found)) == (number, 2)
    assert f"before iteration {number}" in str(found.why_not_followed())
    with pytest.raises(ValueError, match="counts less than"):
        ScheduleLog(path, SHAPE, 2**40)


def test_what_happened_is_noted_at_once_and_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    written(path, 2)
    ScheduleLog(path, SHAPE, 2, OTHER_OPTIONS).close()  # killed before its first rollout
    assert "with other options" in str(read_schedule(path).why_not_followed())
    log = ScheduleLog(path, SHAPE, 2)
    log.append(2, ROLLOUTS[2])
    log.close()
    assert read_schedule(path).flags == (0, 0, OTHER_OPTIONS)
    log = ScheduleLog(path, SHAPE, 2)  # killed before its first checkpoint
    log.append(2, ROLLOUTS[2])
    log.append(3, ROLLOUTS[3])
    log.close()
    assert read_schedule(path).flags == (0, 0, OTHER_OPTIONS, 0)


def test_a_record_that_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "schedule.bin", os.pwrite
    data = written(path, 2)
    log = ScheduleLog(path, SHAPE, 2)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda fd, data, place: write(fd, data[:7], place))
        with pytest.raises(OSError, match="No space left"):
            log.append(2, ROLLOUTS[2])
    assert path.read_bytes() == data
    log.close()


def test_damage_ends_the_schedule_and_is_never_misread(tmp_path: Path) -> None:
    path, rng = tmp_path / "schedule.bin", random.Random(0)
    data = written(path)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        if place < 32:
            with pytest.raises(ScheduleError):
                read_schedule(path)
        else:
            found = read_schedule(path)
            assert len(found) < len(ROLLOUTS)
            assert list(found.rollouts) == ROLLOUTS[: len(found)]


@pytest.mark.parametrize(
    "slices",
    [
        (Slice(0, 0, 3),),  # not of every part
        (Slice(0, 0, 3), Slice(1, 1, 3)),  # not from the first step on
        (Slice(0, 0, 3), Slice(1, 0, 3), Slice(2, 0, 3)),  # of a part more
        (Slice(0, 0, 0), Slice(1, 0, 3)),  # too old
        (Slice(0, 0, 2), Slice(1, 0, 3), Slice(0, 8, 3)),  # after the rollout
        (Slice(0, 0, 3), Slice(1, 0, 3), Slice(0, 1, 2)),  # older again
    ],
)
def test_records_that_cannot_be_are_not_believed(tmp_path: Path, slices: tuple[Slice, ...]) -> None:
    path = tmp_path / "schedule.bin"
    good = written(path, 3)
    path.write_bytes(good + packed(3, slices))
    assert len(read_schedule(path)) == 3
    path.write_bytes(good + packed(3, ROLLOUTS[3]))
    assert len(read_schedule(path)) == 4


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="cannot read"):
        read_schedule(tmp_path / "none")
    link = tmp_path / "schedule.bin"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ScheduleError, match="symbolic link"):
        read_schedule(link)
    with pytest.raises(OSError, match="symbolic link"):
        ScheduleLog(link, SHAPE)
