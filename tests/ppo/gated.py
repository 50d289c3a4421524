"""An environment whose speed a test controls: it steps only when it is let through."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

TIMEOUT_S = 60.0
"""Of waits that a broken engine would never end."""


class Gate:
    """Steps that may begin, and how many have."""

    def __init__(self, open_for: int = 0) -> None:
        self._change = threading.Condition()
        self._permits = open_for
        self.begun = 0
        """Steps that were called, the one that waits included."""
        self.done = 0

    def let(self, steps: int) -> None:
        """Let so many more through."""
        with self._change:
            self._permits += steps
            self._change.notify_all()

    def passed(self) -> None:
        """A step begins: it waits here until it is let through."""
        with self._change:
            self.begun += 1
            self._change.notify_all()
            assert self._change.wait_for(lambda: self.done < self._permits, TIMEOUT_S)
            self.done += 1

    def wait_until_begun(self, steps: int) -> None:
        """Until someone is inside step number `steps`, which was not let through."""
        with self._change:
            assert self._change.wait_for(lambda: self.begun >= steps, TIMEOUT_S)


class Gated(gymnasium.Env[Any, Any]):
    """Pays for the action 1; episodes of five steps. Raises in step `fails_at` of all."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, gate: Gate, fails_at: int = -1, nan_at: int = -1) -> None:
        self._gate, self._fails_at, self._nan_at = gate, fails_at, nan_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def _seen(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._gate.passed()
        if self._gate.done == self._fails_at:
            raise RuntimeError("the lander fell over")
        self._steps += 1
        seen = self._seen()
        if self._gate.done == self._nan_at:
            seen[0] = np.nan
        return seen, float(action), False, self._steps == 5, {}
