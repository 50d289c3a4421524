"""Two source trees that take turns: what ``operant bench compare`` does.

A round starts a new process of each side, and has them take turns in short slices of the
same work, in the order ABBA or BAAB: what slows the machine down for longer than a slice meets
both. A process can be slow as a whole, by where its memory happens to lie; so a round, not a
slice, is one observation.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from operant.bench.paired import Paired
from operant.bench.sides import RequestError

_SLICE_S = 0.02  # longer than what a scheduler gives a process at once, shorter than most bursts
_FEWEST_TURNS = 3
CLOCKS = ("wall", "cpu")
"""``cpu``: the time of all cores, which does not pass while others have them."""


@dataclass(frozen=True)
class Row:
    """One thing to measure."""

    name: str
    kind: str
    """``env``, ``ppo``; ``import`` and ``start``, of a new process."""
    env: str = ""
    num_envs: int = 0
    num_steps: int = 0
    engine: str = ""
    device: str = "cpu"
    threads: int = 1
    clock: str = "wall"
    """One of `CLOCKS`."""

    @property
    def starts(self) -> bool:
        """Whether it is about the start of a process."""
        return self.kind in ("import", "start")


def usual_rows(device: str, threads: int, clock: str) -> list[Row]:
    """What is measured if nothing is asked for. A GPU takes larger batches.

    The clock ``auto`` is ``cpu`` where one thread of a CPU does the work, else ``wall``.

    Raises:
        ValueError: an unknown clock, or that of the cores for a GPU.
    """
    gpu = device != "cpu"
    if clock not in ("auto", *CLOCKS) or (gpu and clock == "cpu"):
        known = "wall for a GPU" if gpu else "auto, wall or cpu"
        raise ValueError(f"the clock must be {known}, got {clock!r}")
    if clock == "auto":
        clock = "wall" if gpu or threads > 1 else "cpu"
    here: dict[str, Any] = {"device": device, "threads": threads, "clock": clock}
    many, few = (65536, 16384) if gpu else (4096, 1024)
    engines = ("fused", "graph", "eager") if gpu else ("fused", "eager")
    sizes = {"fused": (2048, 32), "graph": (2048, 32), "eager": (256, 32)}
    return [
        *(
            Row(f"env-{env.partition('-')[0].lower()}", "env", env, count, **here)
            for env, count in (
                ("CartPole-v1", many),
                ("Pendulum-v1", many),
                ("Acrobot-v1", many),
                ("Prospector-v0", few),
            )
        ),
        *(Row(f"ppo-{name}", "ppo", "CartPole-v1", *sizes[name], name, **here) for name in engines),
        Row("import", "import", clock=clock),
        Row("start", "start", "CartPole-v1", 64, 32, "fused", **here),
    ]


def resized(rows: Sequence[Row], num_envs: int) -> list[Row]:
    """The same rows with so many environments where they step or train; 0 leaves each its own."""
    sized = ("env", "ppo")
    return [replace(r, num_envs=num_envs) if num_envs and r.kind in sized else r for r in rows]


Seconds = dict[str, tuple[list[float], list[float]]]
"""By clock: of the slices of the old and of the new side, of which those at the same place were
neighbours."""


@dataclass
class Measured:
    """A row, and what both sides reached in it."""

    row: Row
    ratios: dict[str, list[float]] = field(default_factory=lambda: {"wall": [], "cpu": []})
    """Speed of the new side over that of the old one, by clock and round."""
    old: list[float] = field(default_factory=list)
    """Its figure by round: steps a second, or the seconds that a start took."""
    new: list[float] = field(default_factory=list)
    trouble: str = ""
    """Why it was not measured, if it was not."""

    def note(self, seconds: Seconds, steps: int | None = None) -> None:
        """Add a round; `steps` of a slice, None where the seconds themselves are the figure."""
        for clock, (old, new) in seconds.items():
            logs = [math.log(a / b) for a, b in zip(old, new, strict=True)]
            self.ratios[clock].append(math.exp(statistics.median(logs)))
        for figures, times in zip((self.old, self.new), seconds[self.row.clock], strict=True):
            median = statistics.median(times)
            figures.append(median if steps is None else steps / median)

    def record(self, old: str, new: str) -> dict[str, Any]:
        """Flat, for JSON; `old` and `new` name the sides."""
        row = {key: value for key, value in asdict(self.row).items() if value}
        found: dict[str, Any] = {**row, "old": old, "new": new}
        if self.trouble:
            return {**found, "verdict": "not measured", "trouble": self.trouble}
        paired = {clock: Paired.of(self.ratios[clock]) for clock in CLOCKS}
        own, wall = paired[self.row.clock], paired["wall"]
        waits = own.verdict == "equal" and wall.verdict != "equal"  # which cores do not see
        return {
            **found,
            "unit": "s" if self.row.starts else "steps/s",
            "old_figure": float(f"{statistics.median(self.old):.5g}"),
            "new_figure": float(f"{statistics.median(self.new):.5g}"),
            "ratio": round(own.ratio, 4),
            "low": round(own.low, 4),
            "high": round(own.high, 4),
            "wall_ratio": round(wall.ratio, 4),
            "wall_low": round(wall.low, 4),
            "wall_high": round(wall.high, 4),
            "verdict": f"{wall.verdict} by wall" if waits else own.verdict,
            "rounds": [round(one, 4) for one in self.ratios[self.row.clock]],
        }


class Worker(Protocol):
    """See `operant.bench.sides.Side`."""

    started: dict[str, Any]

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """The answer to a request."""

    def close(self) -> None:
        """End it."""


class _Work(NamedTuple):
    """What a slice has, and how many a round."""

    repeats: int
    steps: int
    turns: int


Open = Callable[[], Worker]
"""Starts a process of a side."""
_Sides = tuple[Worker, Worker]
"""The old and the new one."""


def measure(
    rows: Sequence[Row], old: Open, new: Open, rounds: int, seconds: float
) -> Generator[str, None, list[Measured]]:
    """Measure; yields what is being done, before it is done; returns a `Measured` for each row.

    Args:
        rows: what to measure. One that a side cannot do is left out, with the reason.
        old, new: start a process of that side.
        rounds: those that count. One before them compiles, and finds how long the work takes.
        seconds: that each side works in a round for a row, about.

    Raises:
        SideError: a side does not start, or ends.
    """
    found = [Measured(row) for row in rows]
    work: dict[str, _Work] = {}
    for number in range(rounds + 1):
        doing = f"round {number} of {rounds}" if number else "compiling"
        with ExitStack() as stack:
            sides = yield from _started(doing, found, (old, new), stack, number > 0)
            for one in found:
                row = one.row
                if row.kind == "start" or one.trouble or (row.kind == "import" and not number):
                    continue
                yield f"{doing}: {row.name}"
                if row.kind == "import":
                    one.note(_imports((old, new)))
                    continue
                try:
                    opened = [side.ask("open", row=asdict(row)) for side in sides]
                    if number:
                        one.note(_turns(sides, work[row.name]), work[row.name].steps)
                    else:
                        work[row.name] = _work(sides[0], opened[0]["size"], seconds)
                    for side in sides:
                        side.ask("close")
                except RequestError as error:
                    one.trouble = str(error)
    return found


def _started(
    doing: str,
    found: Sequence[Measured],
    openers: tuple[Open, Open],
    stack: ExitStack,
    counts: bool,
) -> Generator[str, None, _Sides]:
    """Both sides, closed by `stack`; rows about their start get a round, if it `counts`."""
    starts = [one for one in found if one.row.kind == "start"]
    seconds = {one.row.name: _no_seconds() for one in starts}
    sides: dict[int, Worker] = {}
    for k in random.sample((0, 1), 2):  # once each: at place 0 of either list
        yield f"{doing}: starting the {('old', 'new')[k]} side"
        began = time.perf_counter()
        side = sides[k] = openers[k]()
        stack.callback(side.close)
        for one in starts:
            if one.trouble:
                continue
            try:
                opened = side.ask("open", row={**asdict(one.row), "kind": "ppo"})
                seconds[one.row.name]["wall"][k].append(time.perf_counter() - began)
                seconds[one.row.name]["cpu"][k].append(opened["total_cpu"])
                side.ask("close")
            except RequestError as error:
                one.trouble = str(error)
    for one in starts:
        if counts and not one.trouble:
            one.note(seconds[one.row.name])
    return sides[0], sides[1]


def _no_seconds() -> Seconds:
    return {clock: ([], []) for clock in CLOCKS}


def _imports(openers: tuple[Open, Open]) -> Seconds:
    """What new processes of both sides took to import it."""
    seconds = _no_seconds()
    for k in _order(_FEWEST_TURNS):
        side = openers[k]()
        for clock in CLOCKS:
            seconds[clock][k].append(float(side.started[clock]))
        side.close()
    return seconds


def _order(turns: int) -> Iterator[int]:
    """Whose turn it is: ABBA or BAAB, by chance."""
    for _ in range(turns):
        first = random.randrange(2)
        yield from (first, 1 - first, 1 - first, first)


def _work(side: Worker, size: int, seconds: float) -> _Work:
    """How much a side does in a slice, and how often."""
    once = min(float(side.ask("run", count=1)["wall"]) for _ in range(3))
    length = min(_SLICE_S, seconds / (2 * _FEWEST_TURNS))
    count = max(1, round(length / once))
    turns = max(_FEWEST_TURNS, round(seconds / (2 * count * once)))
    return _Work(count, count * size, turns)


def _turns(sides: _Sides, work: _Work) -> Seconds:
    """What the slices of both sides took."""
    seconds = _no_seconds()
    for k in _order(work.turns):
        took = sides[k].ask("run", count=work.repeats)
        for clock in CLOCKS:
            seconds[clock][k].append(float(took[clock]))
    return seconds
