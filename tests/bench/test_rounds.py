"""What rounds amount to."""

from __future__ import annotations

import pytest

from operant.bench.rounds import Rounds, clearly_different, shares


def test_median_and_spread() -> None:
    rounds = Rounds((40.0, 10.0, 20.0, 30.0, 100.0))
    assert rounds.median == 30.0
    assert rounds.iqr == 20.0  # quartiles 20 and 40
    assert rounds.relative_iqr == pytest.approx(2 / 3)
    assert rounds.spread == 3.0
    assert rounds.record() == {
        "median": 30.0,
        "min": 10.0,
        "max": 100.0,
        "iqr": 20.0,
        "spread": 3.0,
        "rounds": [40.0, 10.0, 20.0, 30.0, 100.0],
    }


def test_one_round_has_no_spread_and_none_is_refused() -> None:
    assert (Rounds((5.0,)).iqr, Rounds((5.0,)).spread) == (0.0, 0.0)
    with pytest.raises(ValueError, match="no round"):
        Rounds(())


def test_shares_are_of_all_rounds_and_sum_to_one() -> None:
    found = shares([{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 4.0, "b": 1.0, "c": 1.0}])
    assert found == {"a": 0.5556, "b": 0.2222, "c": 0.2222}
    thirds = shares([{"a": 1.0, "b": 1.0, "c": 1.0}])
    assert sum(thirds.values()) == 1.0  # to the bit: 3 x 0.3333 would not be
    assert shares([{"a": 3.0, "b": -1.0}]) == {"a": 1.0, "b": 0.0}


def test_a_difference_is_clear_if_the_rounds_do_not_mix() -> None:
    assert clearly_different([3.0, 4.0], [1.0, 2.0])
    assert clearly_different([1.0, 2.0], [3.0, 4.0])
    assert not clearly_different([1.0, 3.0], [2.0, 4.0])
    assert not clearly_different([1.0, 2.0], [2.0, 3.0])
