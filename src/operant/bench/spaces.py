"""``operant bench spaces``: samples of a Dict as rows and back, beside Gymnasium and a plain copy.

Contenders take turns: in each round everyone works for a while, and a ratio is the median of the
rounds' ratios, so what slows the machine down for a while meets everyone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import utils
from gymnasium.vector.utils import concatenate, create_empty_array

from operant.spaces import flatten, layout, unflatten

COPY = "copy"
"""The system that copies the bytes of all rows once, in one piece."""


def example_space() -> spaces.Dict:
    """A Dict of six leaves, of every kind that has a layout; 880 bytes a row."""
    return spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (16, 16, 3), np.uint8),
            "gears": spaces.MultiDiscrete([3, 4, 5]),
            "joints": spaces.Box(-1, 1, (12,), np.float32),
            "position": spaces.Box(-1, 1, (3,), np.float64),
            "switches": spaces.MultiBinary(6),
            "tool": spaces.Discrete(5, start=1),
        }
    )


@dataclass
class Contender:
    """Something done to a batch, and what it took in each round."""

    system: str
    operation: str
    """``flatten``, ``unflatten``, ``both`` or ``copy``."""
    run: Callable[[], Any]
    rounds: list[float] = field(default_factory=list)
    """Seconds for the whole batch."""

    @property
    def label(self) -> str:
        """A short name for progress displays."""
        return self.system if self.system == self.operation else f"{self.system} {self.operation}"


def contenders(num_rows: int) -> list[Contender]:
    """Everyone who takes part, with samples made beforehand.

    Ours is given the space, not its layout, and writes to memory that is there, as in the step of
    an environment; Gymnasium's functions take one sample at a time.
    """
    space = example_space()
    space.seed(0)
    samples = [space.sample() for _ in range(num_rows)]
    empty: Any = create_empty_array(space, num_rows)
    batch = concatenate(space, samples, empty)
    rows = flatten(space, batch)
    out, copied = np.empty_like(rows), np.empty_like(rows)
    flat = [utils.flatten(space, sample) for sample in samples]

    def theirs_flat() -> list[Any]:
        return [utils.flatten(space, sample) for sample in samples]

    def theirs_back(given: list[Any] = flat) -> list[Any]:
        return [utils.unflatten(space, one) for one in given]

    return [
        Contender("operant", "flatten", lambda: flatten(space, batch, out)),
        Contender("operant", "unflatten", lambda: unflatten(space, rows)),
        Contender("operant", "both", lambda: unflatten(space, flatten(space, batch, out))),
        Contender("gymnasium", "flatten", theirs_flat),
        Contender("gymnasium", "unflatten", theirs_back),
        Contender("gymnasium", "both", lambda: theirs_back(theirs_flat())),
        Contender(COPY, COPY, lambda: np.copyto(copied, rows)),
    ]


def measure(everyone: Sequence[Contender], repeats: int, seconds: float) -> Iterator[str]:
    """Fill in ``rounds`` of each contender; yields what is being done, before it is done."""
    counts = []
    for one in everyone:
        yield f"starting {one.label}"
        one.run()
        counts.append(max(1, round(seconds / min(_timed(one.run, 1) for _ in range(3)))))
    for number in range(repeats):
        for one, count in zip(everyone, counts, strict=True):
            yield f"round {number + 1} of {repeats}: {one.label}"
            one.rounds.append(_timed(one.run, count))


def _timed(run: Callable[[], Any], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        run()
    return max(time.perf_counter() - began, 1e-9) / count


def records(everyone: Sequence[Contender], num_rows: int) -> list[dict[str, Any]]:
    """One flat record each. ``speed_ratio``: how many times faster than Gymnasium, of the same
    operation; ``copy_ratio``: its time over that of the copy. Null where there is none."""
    known = layout(example_space())
    by_name = {(one.system, one.operation): one for one in everyone}
    found = []
    for one in everyone:
        peer = by_name.get(("gymnasium", one.operation)) if one.system == "operant" else None
        copy = by_name.get((COPY, COPY)) if one.system == "operant" else None
        found.append(
            {
                "system": one.system,
                "operation": one.operation,
                "rows": num_rows,
                "leaves": len(known.leaves),
                "row_bytes": known.nbytes,
                "us": round(1e6 * statistics.median(one.rounds), 3),
                "us_min": round(1e6 * min(one.rounds), 3),
                "us_max": round(1e6 * max(one.rounds), 3),
                "repeats": len(one.rounds),
                "speed_ratio": peer and round(_ratio(peer, one), 2),
                "copy_ratio": copy and round(_ratio(one, copy), 3),
            }
        )
    return found


def _ratio(one: Contender, other: Contender) -> float:
    return statistics.median(a / b for a, b in zip(one.rounds, other.rounds, strict=True))
