"""What is measured of spaces: the same work for everyone, in turns, and ratios of the rounds."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import utils

from operant.bench import spaces as bench_spaces
from operant.bench.spaces import COPY, Contender


def test_everyone_works_on_the_same_samples() -> None:
    everyone = {(one.system, one.operation): one.run for one in bench_spaces.contenders(70)}
    space = bench_spaces.example_space()
    ours = everyone["operant", "both"]()
    theirs = everyone["gymnasium", "both"]()
    assert len(theirs) == 70
    for key in space:
        expected = np.stack([one[key] for one in theirs])
        np.testing.assert_array_equal(ours[key], expected)
    assert everyone["operant", "flatten"]().shape == (70, 880)
    back = everyone["operant", "unflatten"]()
    assert all(np.array_equal(back[key], ours[key]) for key in space)
    first = {key: value[0] for key, value in ours.items()}
    np.testing.assert_array_equal(
        everyone["gymnasium", "flatten"]()[0], utils.flatten(space, first)
    )


def test_turns_and_ratios() -> None:
    order: list[str] = []
    everyone = [
        Contender("operant", "flatten", lambda: order.append("a")),
        Contender("gymnasium", "flatten", lambda: order.append("b")),
        Contender(COPY, COPY, lambda: order.append("c")),
    ]
    doing = list(bench_spaces.measure(everyone, repeats=3, seconds=1e-12))
    assert "".join(order[-9:]) == "abcabcabc"
    assert doing[-2:] == ["round 3 of 3: gymnasium flatten", "round 3 of 3: copy"]
    for one, rounds in zip(
        everyone, ([2e-6, 4e-6, 1e-6], [2e-4, 2e-4, 3e-4], [1e-6] * 3), strict=True
    ):
        one.rounds = rounds
    ours, theirs, copy = bench_spaces.records(everyone, 8)
    assert (ours["us"], ours["us_min"], ours["us_max"]) == (2, 1, 4)
    assert (ours["speed_ratio"], ours["copy_ratio"]) == (100, 2)  # of 100, 50, 300; of 2, 4, 1
    assert (ours["leaves"], ours["row_bytes"], ours["rows"]) == (6, 880, 8)
    for other in (theirs, copy):
        assert other["speed_ratio"] is None
        assert other["copy_ratio"] is None
