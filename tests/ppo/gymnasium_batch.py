"""A batch of Gymnasium environments, one after the other in Python: what the batch protocol asks
of environments that operant did not compile. And a task to train on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from operant.spaces.rows import ObsLayout
from operant.vector.batch import Description, Ends, StepMemory


class Lamps(gymnasium.Env[Any, Any]):
    """Say which of three buttons is right: that depends on every leaf of the observation, and is
    worth 1. New lamps after each step; an episode has `limit` steps, and is cut short there.

    Its state is one row of ints, so that it can be saved.
    """

    def __init__(self, limit: int = 4) -> None:
        self.limit = limit
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Dict(
            {
                "clock": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "goal": spaces.Discrete(3, start=1),
                "picture": spaces.Box(0, 255, (2, 2), np.uint8),
            }
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._draws = seed, 0
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = int(action) == self._right
        self._step += 1
        return self._seen(), float(right), False, self._step == self.limit, {}

    def _seen(self) -> dict[str, Any]:
        self._draws += 1
        return self._lamps()

    def _lamps(self) -> dict[str, Any]:
        random = np.random.default_rng([self._seed, self._draws])
        left, goal, lit = random.integers((2, 3, 2)).tolist()
        self._right = (goal + left + lit) % 3
        return {
            "clock": np.array([1.0 if left else -1.0, self._step / self.limit], np.float32),
            "goal": np.int64(goal + 1),
            "picture": np.full((2, 2), 200 if lit else 20, np.uint8),
        }

    def get_state(self) -> np.ndarray:
        return np.array([self._seed, self._draws, self._step])

    def set_state(self, state: np.ndarray) -> Any:
        self._seed, self._draws, self._step = state.tolist()
        return self._lamps()


class GymnasiumBatch:
    """`num_envs` environments that `make` makes; see `operant.vector.batch.Batch`."""

    autoreset_mode = AutoresetMode.SAME_STEP
    backend = "serial"
    device = torch.device("cpu")
    mask_size = 0

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int) -> None:
        self._make, self.num_envs = make, num_envs
        self.envs = [make() for _ in range(num_envs)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self._layout = ObsLayout.of(self.single_observation_space)
        self._obs, self._final_obs = self._layout.memory(2, num_envs)
        self._returns = np.zeros(num_envs, np.float32)
        self._lengths = np.zeros(num_envs, np.int32)

    @property
    def why_not_saved(self) -> str | None:
        env = self.envs[0]
        name = type(env).__name__
        return None if hasattr(env, "get_state") else f"{name} has no get_state() and set_state()"

    def reset(self, *, seed: int | None = None) -> None:
        for k, env in enumerate(self.envs):
            obs, _ = env.reset(seed=None if seed is None else 1000 * seed + k)
            self._layout.pack(obs, self._obs[k])
        self._returns[:], self._lengths[:] = 0, 0

    def write_obs(self, out: Any) -> None:
        out[...] = self._obs

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        for k, env in enumerate(self.envs):
            obs, reward, terminated, truncated, _ = env.step(actions[k])
            out.reward[k], out.terminated[k], out.truncated[k] = reward, terminated, truncated
            if terminated or truncated:
                self._layout.pack(obs, self._final_obs[k])
                obs, _ = env.reset()
            self._layout.pack(obs, self._obs[k])
        out.obs[...] = self._obs
        self._returns += out.reward
        self._lengths += 1
        index = np.flatnonzero(out.terminated | out.truncated)
        if not len(index):
            return None
        cut = (out.truncated & ~out.terminated)[index]
        ends = Ends(index, self._returns[index], self._lengths[index], cut, self._final_obs)
        self._returns[index], self._lengths[index] = 0, 0
        return ends

    def action_masks(self) -> None:
        return None

    def live_rows(self) -> None:
        return None

    def get_state(self) -> dict[str, np.ndarray]:
        states = np.stack([env.get_state() for env in self.envs])  # type: ignore[attr-defined]
        return {"envs": states, "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if state["envs"].shape[:1] != (self.num_envs,):
            raise ValueError(f"the state is of {len(state['envs'])} environments")
        for k, env in enumerate(self.envs):
            obs = env.set_state(state["envs"][k])  # type: ignore[attr-defined]
            self._layout.pack(obs, self._obs[k])
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]

    def describe(self) -> Description:
        limit = getattr(self.envs[0], "limit", None)
        return Description(
            type(self.envs[0]).__name__, "serial", max_episode_steps=limit, own_limit=limit
        )

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> GymnasiumBatch:
        return GymnasiumBatch(self._make, num_envs)

    def close(self) -> None:
        for env in self.envs:
            env.close()
