"""A vector environment whose arrays are tensors on a device, as simulators on a GPU have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class TensorWalk(VectorEnv[Any, Any, Any]):
    """Points that go left or right, and end at the edges; the time limit is 11. Nothing of it is
    ever on the host."""

    def __init__(
        self, num_envs: int, device: str = "cpu", mode: AutoresetMode = AutoresetMode.SAME_STEP
    ) -> None:
        self.num_envs, self.device, self.autoreset_mode = num_envs, torch.device(device), mode
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(-9, 9, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._x = torch.zeros(num_envs, device=self.device)
        self._t = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self._over = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    def _seen(self) -> torch.Tensor:
        return torch.stack([self._x, self._t.float() / 10], 1)

    def _begin(self, which: torch.Tensor) -> None:
        first = (torch.arange(self.num_envs, device=self.device) % 5 - 2) / 4
        self._x = torch.where(which, first, self._x)
        self._t = torch.where(which, 0, self._t)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        which = (options or {}).get("reset_mask", torch.ones_like(self._over))
        assert which.device == self.device
        self._begin(which)
        self._over = self._over & ~which
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        assert isinstance(actions, torch.Tensor), type(actions)
        assert (actions.dtype, actions.device) == (torch.int64, self.device)
        before, self._over = self._over, torch.zeros_like(self._over)
        self._x = self._x + (actions - 1) * 0.3
        self._t = self._t + 1
        reward, info = -self._x.abs().nan_to_num(), {}
        terminated, truncated = self._x.abs() > 1, self._t >= 11
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._begin(before)
            terminated, truncated = terminated & ~before, truncated & ~before
            self._over = terminated | truncated
        elif self.autoreset_mode == AutoresetMode.SAME_STEP:
            info = {"final_obs": self._seen()}
            self._begin(terminated | truncated)
        return self._seen(), reward, terminated, truncated, info
