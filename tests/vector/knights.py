"""An environment of PettingZoo's whose agents leave one by one; worker processes import it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Knights(ParallelEnv[str, Any, Any]):
    """Knights lose strength by luck and by choice, and leave when it is gone; the last is cut
    after 9 steps. One may come late. `how` says what goes wrong in the fourth step."""

    metadata = {"name": "knights_v0"}

    def __init__(self, how: str = "", squire: bool = False, leaf: bool = False) -> None:
        self.how, self.squire, self.leaf = how, squire, leaf
        self.possible_agents = ["ann", "bob", "cid", *(["squire"] if squire else [])]
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        size = 3 if self.how == "spaces" and agent == "cid" else 2
        box = spaces.Box(-9, 9, (size,), np.float32)
        if not self.leaf:
            return box
        return spaces.Dict({"observation": box, "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def _seen(self, who: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        obs: dict[str, Any] = {a: np.array([self._strength[a], self._t], np.float32) for a in who}
        masks = {a: np.array([k != self._t % 3 for k in range(3)], np.int8) for a in who}
        if self.leaf:
            return {a: {"observation": obs[a], "action_mask": masks[a]} for a in who}, {
                a: {} for a in who
            }
        return obs, {a: {"action_mask": masks[a]} for a in who}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._t = 0
        self.agents = ["ann", "bob", "cid"]
        self._strength = {a: 2 + self._random.random() for a in self.possible_agents}
        return self._seen(self.agents) if self.how != "one" else self._seen(self.agents)[0]

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        assert all(action != self._t % 3 for action in actions.values()), "forbidden"
        self._t += 1
        if self.how == "four":
            return {}, {}, False, {}
        acting = list(self.agents)
        for a in acting:
            self._strength[a] -= 0.3 * float(actions[a]) * self._random.random()
        if self.squire and self._t == 3:
            self.agents = [*self.agents, "squire"]
        obs, info = self._seen(self.agents)
        reward = {a: self._strength[a] for a in acting}
        terminated = {a: self._strength[a] < 1 for a in acting}
        truncated = dict.fromkeys(acting, self._t >= 9)
        self.agents = [
            a for a in self.agents if not (terminated.get(a) or truncated.get(a) or self._t >= 9)
        ]
        if self._t == 4:
            if self.how == "exit":
                os._exit(3)
            if self.how == "raise":
                raise RuntimeError("the dragon came")
            reward["bob"] = np.nan if self.how == "nan" else reward.get("bob", 0)
            if self.how == "shape":
                obs["bob"] = np.zeros(5, np.float32)
            if self.how == "stranger":
                self.agents.append("dragon")
            if self.how == "left":
                self.agents.remove("bob")
            if self.how == "missing":
                del terminated["bob"]
            if self.how == "flag":
                truncated["bob"] = "no"
            if self.how == "number":
                reward["bob"] = "much"
            if self.how == "unseen":
                obs["bob"] = np.array([0, np.nan], np.float32)
            if self.how == "list":
                reward = list(reward.values())  # type: ignore[assignment]
            if self.how == "quit":
                raise SystemExit(5)
        if self.how == "unseen at last" and self._t == 9:
            obs = dict.fromkeys(obs, np.full(2, np.nan, np.float32))
        return obs, reward, terminated, truncated, info
