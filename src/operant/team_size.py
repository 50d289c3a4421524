"""`TeamSize`: how many threads work best."""

from __future__ import annotations

import math

_TRIES = 2
_CLEARLY = 1.2


class TeamSize:
    """How many threads work best: tried out, not guessed.

    Use `now` threads for equal pieces of work and tell `took` how long each lasted. Sizes are tried
    from the largest down, each twice, until one is clearly slower; the fastest is then kept.

    Args:
        most: the largest team.
        fixed: whether that is the only one to try.
    """

    def __init__(self, most: int, fixed: bool = False) -> None:
        self.now = self.most = most
        self._best, self._best_s = most, math.inf
        self._tries: list[float] = []
        self.settled = fixed or most == 1

    def took(self, seconds: float) -> None:
        """Take note of a piece of work done by `now` threads."""
        if self.settled:
            return
        self._tries.append(seconds)
        if len(self._tries) < _TRIES:
            return
        fastest = min(self._tries)  # the first may have had to wake threads and fill caches
        self._tries = []
        if fastest < self._best_s:
            self._best, self._best_s = self.now, fastest
        self.settled = self.now == 1 or fastest > _CLEARLY * self._best_s
        self.now = self._best if self.settled else self.now // 2
