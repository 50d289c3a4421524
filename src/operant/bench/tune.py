"""``operant tune``: which sizes train fastest on this machine.

Cells take turns: in each round every cell trains for a while. Three quarters of the budget are for
rounds that every cell gets, the rest is for cells whose rounds differ too much. The fastest cell
whose rounds agree wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from operant.bench.grid import Cell
from operant.bench.rounds import Rounds
from operant.bench.training import Round
from operant.training.guard import NonFiniteError

FOR_ALL = 0.75
"""Share of the budget for rounds that every cell gets."""
LEAST_ROUNDS, USUAL_ROUNDS, MOST_ROUNDS = 3, 5, 25
LEAST_ROUND_S, MOST_ROUND_S = 0.05, 1.0
_LEAST_FREE = 0.1
"""Share of the machine's memory that stays free."""


class Trainer(Protocol):
    """What a cell is measured with; see `operant.bench.training.TimedTrainer`."""

    def warm_up(self) -> float:
        """Seconds that an iteration takes."""

    def iterations_for(self, seconds: float, once: float) -> int:
        """Iterations of a round."""

    def train(self, iterations: int) -> Round:
        """One round."""

    def close(self) -> None:
        """Give back what it holds."""


@dataclass
class Measured:
    """A cell, and what it reached in each round."""

    cell: Cell
    most_spread: float
    """IQR over median from which a cell is noisy."""
    once_s: float = 0.0
    """Seconds of an iteration."""
    rounds: list[Round] = field(default_factory=list)
    reason: str = ""
    """Why it was skipped."""

    @property
    def sps(self) -> Rounds | None:
        """Steps a second; None where nothing was measured."""
        return Rounds(tuple(one.sps for one in self.rounds)) if self.rounds else None

    @property
    def status(self) -> str:
        """``"stable"``, ``"noisy"`` or ``"skipped"``."""
        if self.reason or self.sps is None:
            return "skipped"
        return "noisy" if self.sps.relative_iqr > self.most_spread else "stable"


@dataclass(frozen=True)
class Plan:
    """How long a round is, and how many every cell gets."""

    round_s: float
    rounds: int


def least_budget(once: Sequence[float]) -> float:
    """Seconds that a grid needs, whose iterations take `once`: three short rounds of each cell."""
    return LEAST_ROUNDS * _pass_s(LEAST_ROUND_S, once) / FOR_ALL


def _pass_s(round_s: float, once: Sequence[float]) -> float:
    """Seconds of one round of every cell, in whole iterations."""
    return sum(math.ceil(round_s / one * (1 - 1e-9)) * one for one in once)


def planned(budget_s: float, once: Sequence[float]) -> Plan:
    """How to spend a budget on cells whose iterations take `once` seconds.

    Five rounds, as long as there is time for, up to a second; then more rounds.

    Raises:
        ValueError: too small; the message says what would do.
    """
    needed = least_budget(once)
    if needed > budget_s:
        raise ValueError(
            f"--budget {budget_s:g}s is too small for {len(once)} cells, {LEAST_ROUNDS} rounds of "
            f"each: it takes {math.ceil(needed)}s, or a smaller grid"
        )
    shared = FOR_ALL * budget_s * (1 + 1e-9)  # a rounding must not cost a round
    for wanted in range(USUAL_ROUNDS, LEAST_ROUNDS - 1, -1):
        round_s = min(max(shared / wanted / len(once), LEAST_ROUND_S), MOST_ROUND_S)
        while round_s > LEAST_ROUND_S and _pass_s(round_s, once) * wanted > shared:
            round_s = max(0.9 * round_s, LEAST_ROUND_S)  # whole iterations take longer
        rounds = int(shared / _pass_s(round_s, once))
        if rounds >= wanted:
            break
    return Plan(round_s, min(max(rounds, LEAST_ROUNDS), MOST_ROUNDS))


def check_budget(cells: Sequence[Cell], budget_s: float) -> None:
    """Refuse a budget that cannot do, however fast the cells are.

    Raises:
        ValueError: too small, or no cell to spend it on.
    """
    count = sum(not cell.reason for cell in cells)
    if count == 0:
        raise ValueError("no cell of the grid can be trained: " + cells[0].reason)
    planned(budget_s, [LEAST_ROUND_S] * count)


def measure(
    cells: Sequence[Cell],
    budget_s: float,
    most_spread: float,
    open_trainer: Callable[[Any], Trainer],
) -> Generator[str, None, list[Measured]]:
    """Let the cells take turns; yields what is being done, before it is done; returns figures.

    Starting and warming up (two or three iterations) is not a part of the budget.

    Raises:
        ValueError: the budget is too small.
    """
    check_budget(cells, budget_s)
    everyone = [Measured(cell, most_spread, reason=cell.reason) for cell in cells]
    running: list[tuple[Measured, Trainer]] = []
    try:
        for one in everyone:
            if not one.reason:
                yield f"starting {one.cell.label}"
                _start(one, open_trainer, running)
        if not running:
            raise ValueError("no cell of the grid can be trained: " + everyone[0].reason)
        plan = planned(budget_s, [one.once_s for one, _ in running])
        left = budget_s
        for number in range(plan.rounds):
            for one, trainer in running:
                if not one.reason:
                    yield f"round {number + 1} of {plan.rounds}: {one.cell.label}"
                    left -= _work(one, trainer, plan.round_s)
        yield from _calm(running, plan.round_s, left)
    finally:
        for _, trainer in running:
            trainer.close()
    return everyone


def _start(
    one: Measured,
    open_trainer: Callable[[Any], Trainer],
    running: list[tuple[Measured, Trainer]],
) -> None:
    """Open a cell's trainer, or note why that cannot be."""
    import psutil

    memory = psutil.virtual_memory()  # type: ignore[no-untyped-call]
    if memory.available < _LEAST_FREE * memory.total:
        raise ValueError(
            f"the trainers of {len(running)} cells fill this machine's memory; use a smaller grid"
        )
    try:
        trainer = open_trainer(one.cell.config)
        running.append((one, trainer))
        one.once_s = trainer.warm_up()
    except (ValueError, TypeError, MemoryError, NonFiniteError) as error:
        one.reason = str(error) or type(error).__name__
        if running and running[-1][0] is one:
            running.pop()[1].close()


def _work(one: Measured, trainer: Trainer, round_s: float) -> float:
    """One round of a cell; the seconds it took."""
    try:
        done = trainer.train(trainer.iterations_for(round_s, one.once_s))
    except NonFiniteError as error:
        one.reason = str(error)
        return 0.0
    one.rounds.append(done)
    return done.seconds


def _calm(
    running: Sequence[tuple[Measured, Trainer]], round_s: float, left: float
) -> Generator[str, None, None]:
    """More rounds for noisy cells, the fastest first, as long as the budget lasts."""
    while True:
        noisy = [pair for pair in running if pair[0].status == "noisy"]
        noisy.sort(key=lambda pair: -pair[0].sps.median)  # type: ignore[union-attr]
        fits = [pair for pair in noisy if max(round_s, pair[0].once_s) <= left]
        if not fits:
            return
        for one, trainer in fits:
            if max(round_s, one.once_s) <= left:
                yield f"noisy, {left:.0f} s left: {one.cell.label}"
                left -= _work(one, trainer, round_s)


def ranked(everyone: Sequence[Measured]) -> list[Measured]:
    """The stable cells, the fastest first."""
    stable = [one for one in everyone if one.status == "stable"]
    return sorted(stable, key=lambda one: -one.sps.median)  # type: ignore[union-attr]


def record(one: Measured) -> dict[str, Any]:
    """A cell's figures, for JSON."""
    sps = one.sps
    return {
        "values": dict(one.cell.values),
        "base": one.cell.is_base,
        "status": one.status,
        "reason": one.reason or None,
        "sps": None if sps is None else sps.record(),
        "relative_iqr": None if sps is None else round(sps.relative_iqr, 4),
    }
