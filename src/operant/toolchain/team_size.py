"""`TeamSize`: how many threads work best."""

from __future__ import annotations

import math

_TRIES = 2
_CLEARLY = 1.2
_AGAIN_S = 20.0
_AGAIN_SHARE = 20


class TeamSize:
    """How many threads work best: tried out, not guessed.

    Use `now` threads for equal pieces of work and tell `took` how long each lasted. Sizes are tried
    from the largest down, each twice, until one is clearly slower; the fastest is then kept. As a
    machine's other load comes and goes, that is repeated: after 20 s, or 20 times as long as the
    trial took.

    Args:
        most: the largest team.
        fixed: whether that is the only one to try.
    """

    def __init__(self, most: int, fixed: bool = False) -> None:
        self.most, self._fixed = most, fixed or most == 1
        self._start()

    def _start(self) -> None:
        self.now = self._best = self.most
        self._best_s = math.inf
        self._tries: list[float] = []
        self._trial_s = self._since_s = 0.0
        self.settled = self._fixed
        """Whether the trial is over."""

    def took(self, seconds: float) -> None:
        """Take note of a piece of work done by `now` threads."""
        if self._fixed:
            return
        if self.settled:
            self._since_s += seconds
            if self._since_s > max(_AGAIN_S, _AGAIN_SHARE * self._trial_s):
                self._start()
            return
        self._trial_s += seconds
        self._tries.append(seconds)
        if len(self._tries) < _TRIES:
            return
        fastest = min(self._tries)  # the first may have had to wake threads and fill caches
        self._tries = []
        if fastest < self._best_s:
            self._best, self._best_s = self.now, fastest
        self.settled = self.now == 1 or fastest > _CLEARLY * self._best_s
        self.now = self._best if self.settled else self.now // 2
