"""Measures cases in rounds: in each everyone works for a while, so that what slows the machine down
for a while meets everyone."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from operant.bench.suite.case import Case, Measured, Work
from operant.bench.suite.machine_noise import Noise, NoiseMeter


class Result(NamedTuple):
    """What a run of the suite found."""

    measured: list[Measured]
    noise: Noise


def measure(
    cases: Sequence[Case], rounds: int, seconds: float, meter: NoiseMeter | None = None
) -> Generator[str, None, Result]:
    """Measure; yields what is being done, before it is done; returns what was found.

    A case that cannot be opened, or fails, is left out, with the reason.

    Args:
        cases: what to measure.
        rounds: of each case, unless it has fewer.
        seconds: that a case works in a round, about.
        meter: watches the machine; a new one unless given.
    """
    found = [Measured(case) for case in cases]
    works: dict[str, Work] = {}
    with ExitStack() as stack:
        for one in found:
            yield f"opening {one.case.name}"
            try:
                work = works[one.case.name] = one.case.open()
            except Exception as error:
                one.trouble = _sentence(error)
                continue
            stack.callback(work.close)
        meter = meter or NoiseMeter()
        for number in range(rounds):
            meter.probe()
            for one in found:
                if one.trouble or number >= one.case.most_rounds:
                    continue
                yield f"round {number + 1} of {rounds}: {one.case.name}"
                try:
                    one.rounds.append(works[one.case.name].measure(seconds))
                except Exception as error:
                    one.trouble = _sentence(error)
        for one in found:
            if not one.trouble:
                one.details = works[one.case.name].details()
        noise = meter.read()
    return Result(found, noise)


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
