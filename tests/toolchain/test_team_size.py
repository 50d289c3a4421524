"""How a number of threads is found."""

from __future__ import annotations

import pytest

from operant.toolchain.team_size import TeamSize


def settled(size: TeamSize, seconds: dict[int, float]) -> list[int]:
    """Sizes tried until it is settled."""
    tried = []
    while not size.settled:
        tried.append(size.now)
        size.took(seconds[size.now])
    return tried


@pytest.mark.parametrize(
    ("seconds", "tried", "best"),
    [
        ({4: 1.0, 2: 1.9, 1: 4.0}, [4, 4, 2, 2], 4),  # half as many are clearly slower
        ({4: 1.0, 2: 0.9, 1: 1.7}, [4, 4, 2, 2, 1, 1], 2),
        ({4: 3.0, 2: 2.0, 1: 1.0}, [4, 4, 2, 2, 1, 1], 1),
        ({4: 1.0, 2: 1.1, 1: 0.99}, [4, 4, 2, 2, 1, 1], 1),  # not clearly: goes on
    ],
)
def test_the_fastest_is_kept(seconds: dict[int, float], tried: list[int], best: int) -> None:
    size = TeamSize(4)
    assert settled(size, seconds) == tried
    assert size.now == best
    size.took(0.001)  # later figures change nothing
    assert size.now == best


def test_a_slow_first_try_does_not_count() -> None:
    size = TeamSize(2)
    for seconds in (9.0, 1.0, 1.5, 1.4):
        size.took(seconds)
    assert (size.now, size.settled) == (2, True)


def test_one_size_needs_no_trial() -> None:
    assert TeamSize(1).settled
    assert TeamSize(7, fixed=True).settled
    assert TeamSize(7, fixed=True).now == 7


def test_the_trial_is_repeated() -> None:
    """The other load on a machine changes: after 20 s, or 20 times the trial's own time."""
    size = TeamSize(2)
    settled(size, {2: 2.0, 1: 1.0})
    assert size.now == 1
    for _ in range(20 * 6):  # the trial took 2 + 2 + 1 + 1 s
        assert size.settled
        size.took(1.0)
    size.took(1.0)
    assert (size.settled, size.now) == (False, 2)
    settled(size, {2: 1.0, 1: 2.0})
    assert size.now == 2


def test_a_short_trial_is_repeated_after_twenty_seconds() -> None:
    size = TeamSize(2)
    settled(size, {2: 0.01, 1: 0.02})
    size.took(19.9)
    assert size.settled
    size.took(0.2)
    assert not size.settled
