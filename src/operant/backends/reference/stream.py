"""The random numbers that functions over arrays draw one by one, in plain Python."""

from __future__ import annotations

import numpy as np

from operant.backends.reference.plain import PlainFunctions
from operant.compiler.philox import uniforms
from operant.lang.integers import Int64, to_float32
from operant.lang.words import normal

_ONE = np.float32(1.0)
_normal = PlainFunctions().bind(normal)  # type: ignore[arg-type]


class Stream:
    """What ``random`` is to ``reset`` and ``step`` of a state of arrays.

    The numbers are those of `operant.compiler.philox`, in order; every draw takes one of them,
    `normal` two. The same seed gives the same numbers on every backend.
    """

    def __init__(self, seed: int, index: int, episode: int, step: int) -> None:
        self._place = (np.uint64(seed), np.uint32(index), np.uint32(episode), np.uint32(step))
        self._numbers: list[np.float32] = []
        self._drawn = 0

    def _next(self) -> np.float32:
        if self._drawn == len(self._numbers):
            rows = uniforms(*self._place, max(16, 2 * self._drawn))
            self._numbers = [np.float32(row) for row in rows]
        self._drawn += 1
        return self._numbers[self._drawn - 1]

    def uniform(self, *limits: float) -> np.float32:
        """A float32 from 0 to 1; ``uniform(high)`` from 0 to high, ``uniform(low, high)``."""
        if not limits:
            return self._next()
        low, high = map(to_float32, (0.0, *limits) if len(limits) == 1 else limits)
        return np.float32(low + (high - low) * self._next())

    def integers(self, *limits: int) -> Int64:
        """An int from 0 to n - 1; ``integers(low, high)`` from low to high - 1."""
        low, high = (0, *limits) if len(limits) == 1 else limits
        count = high - low
        if not 1 <= count <= 1 << 24:
            raise ValueError(f"integers() chooses among 1 to 2**24 numbers, got {count}")
        return Int64(low + min(int(self._next() * np.float32(count)), count - 1))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self._next() < to_float32(probability))

    def normal(self) -> np.float32:
        """A standard normal number."""
        return np.float32(_normal(self._next(), self._next()))
