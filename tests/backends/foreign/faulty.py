"""Environments for worker processes, which import this file."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, DIE, HANG = range(4)


class Faulty(gymnasium.Env[Any, Any]):
    """Sees how many steps it has made; an action says what goes wrong."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1e6, (1,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if action == RAISE:
            raise KeyError("lost")
        if action == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        while action == HANG:
            time.sleep(60)
        return np.full(1, self.count, np.float32), 1.0, False, False, {}


class Shelves(gymnasium.Env[Any, Any]):
    """Sees random numbers in a Dict, some of them moved by actions that are a Dict too."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "place": spaces.Box(-1e3, 1e3, (3,), np.float64),
                "inner": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiBinary(4))),
            }
        )
        self.action_space = spaces.Dict(
            {"push": spaces.Box(-1, 1, (3,), np.float32), "which": spaces.Discrete(3)}
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=3)
        return self._obs(), {}

    def _obs(self) -> dict[str, Any]:
        bits = self.np_random.integers(0, 2, 4).astype(np.int8)
        return {"place": self.place, "inner": (int(self.np_random.integers(2, 7)), bits)}

    def step(self, action: Any) -> Any:
        self.place = self.place + action["push"] * (1 + action["which"])
        reward = float(self.place.sum())
        return self._obs(), reward, bool(self.np_random.random() < 0.1), False, {}

    def get_state(self) -> np.ndarray:
        return self.place

    def set_state(self, state: np.ndarray) -> None:
        self.place = state
