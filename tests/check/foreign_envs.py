"""Environments of Gymnasium's API that do something wrong, for `check_foreign`."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env[Any, Any]):
    """A random walk, in order unless `how` says what is wrong."""

    metadata = {"render_modes": ["rgb_array"]}
    steps = 0

    def __init__(self, how: str = "") -> None:
        self.how = how
        self.observation_space = spaces.Box(-100, 100, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.render_mode = "rgb_array"
        if how == "no space":
            del self.observation_space
        if how == "no seed":
            self.reset = lambda: Walk.reset(self)  # type: ignore[method-assign]
            self.reset.__qualname__ = "Walk.reset"
        if how == "text":
            self.observation_space = spaces.Text(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.how == "hangs in reset":
            time.sleep(1e6)
        self.count = 0
        self.place = self.np_random.normal(size=2)
        if self.how == "unseeded":
            self.place = np.random.default_rng().normal(size=2)
        if self.how == "not random":
            self.place = np.zeros(2)
        if self.how == "shared" and seed is not None:
            np.random.seed(seed)
        return self._obs(), self._info()

    def _obs(self) -> Any:
        self.count += 1
        third = self.count == 3
        obs = self.place.astype(np.float32)
        if self.how == "wide":
            return self.place
        if third and self.how == "shape":
            return np.zeros(3, np.float32)
        if third and self.how in ("nan", "inf", "outside"):
            obs[1] = {"nan": np.nan, "inf": np.inf, "outside": 200}[self.how]
        return obs

    def _info(self) -> Any:
        mask = {"mask of two": [1, 1], "empty mask": [0, 0, 0], "mask": [1, 0, 1]}.get(self.how)
        return {} if mask is None else {"action_mask": np.array(mask, np.int8)}

    def step(self, action: Any) -> Any:
        assert self.how != "mask" or action != 1
        if self.count == 3 and self.how == "raises":
            raise KeyError("lost")
        if self.count == 3 and self.how == "exits":
            os._exit(7)
        if self.count == 3 and self.how == "aborts":
            os.abort()
        if self.count == 3 and self.how == "sys.exit":
            raise SystemExit(1)
        noise = np.random.normal(size=2) if self.how == "shared" else self.np_random.normal(size=2)
        self.place = 0.9 * self.place + noise * (self.how != "not random")
        if self.how == "counts":
            Walk.steps += 1
            self.place[0] = Walk.steps % 50
        reward = {"reward": None, "array": np.ones(2), "nan reward": np.nan}.get(self.how, 1.0)
        ended = self.count > 40 and self.how != "endless"
        flag = np.array([ended]) if self.how == "flag" else ended
        results = (self._obs(), reward, flag, False, self._info())
        return results[:4] if self.how == "four" else results

    def render(self) -> Any:
        if self.how == "float image":
            return np.zeros((4, 4, 3))
        return np.zeros((4, 6, 3), np.uint8)

    def get_state(self) -> Any:
        places = {"generator": self.np_random.bit_generator.state, "count": self.count}
        return places | ({} if self.how == "forgets" else {"place": self.place})

    def set_state(self, state: Any) -> None:
        self.np_random.bit_generator.state = state["generator"]
        self.count, self.place = state["count"], state.get("place", self.place)
