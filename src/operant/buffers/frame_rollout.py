"""`FrameRollout`: a rollout of observations that are stacks of frames, each frame stored once."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from operant.buffers.rollout import RolloutBuffer


class FrameStacks:
    """Stacks of the last `k` frames, put together when they are asked for; indexed as the tensor
    ``[T + 1, N, k, *shape]`` that they would fill, and gathered from as its first T steps,
    flattened.

    A stack has frames of one episode: what would come before its first is that one again.

    Args:
        frames: ``[k - 1 + T + 1, N, *shape]``: those of `k` - 1 steps before the rollout, in which
            the first of an episode is repeated already, then its own.
        terminated, truncated: bool ``[T, N]``; after such a step an episode begins.

    All are views: what is put together is what they hold then.
    """

    def __init__(self, frames: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        self._parts = (frames, terminated, truncated)
        self._steps, self._envs = terminated.shape
        self._k = len(frames) - self._steps

    def at(self, t: Tensor, env: Tensor) -> Tensor:
        """The observations ``[B, k, *shape]`` of steps `t` of environments `env`, int64 ``[B]``; a
        copy."""
        frames, terminated, truncated = self._parts
        k, done = self._k, terminated | truncated
        begins = torch.cat([done.new_zeros(k, self._envs), done]).flatten()
        row = (t + k - 1) * self._envs + env
        age, same = torch.zeros_like(t), torch.ones_like(t, dtype=torch.bool)
        for step in range(k - 1):
            same = same & ~begins[row - step * self._envs]
            age += same
        back = torch.arange(k - 1, -1, -1, device=t.device).minimum(age[:, None])
        rows = row[:, None] - back * self._envs
        found = frames.flatten(0, 1).index_select(0, rows.flatten())
        return found.view(len(t), k, *frames.shape[2:])

    def __getitem__(self, index: Any) -> Tensor:
        """Of step `index` ``[N, k, *shape]``, an int; or of samples, int64 ``[B]``."""
        if isinstance(index, Tensor):
            return self.index_select(0, index)
        env = torch.arange(self._envs, device=self._parts[0].device)
        t = index + (self._steps + 1 if index < 0 else 0)
        return self.at(torch.full_like(env, t), env)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Samples ``t * N + env``, int64 ``[B]``."""
        assert dim == 0
        return self.at(index // self._envs, index % self._envs)

    def __len__(self) -> int:
        return self._steps * self._envs

    def reshape(self, *shape: int) -> Tensor:
        """All samples put together, as `Tensor.reshape`; for a normaliser."""
        device = self._parts[0].device
        return self.index_select(0, torch.arange(len(self), device=device)).reshape(*shape)

    def to(self, device: torch.device) -> FrameStacks:
        """The same on a device; on that where they are, these."""
        moved = [part.to(device) for part in self._parts]
        return FrameStacks(*moved)


class History(Protocol):
    """What a rollout of stacks has to know of the time before it: `operant.vector.frame_stack`."""

    frames: np.ndarray
    """``[N, k, *shape]``: the current observations."""


class FrameRollout(RolloutBuffer):
    """As `RolloutBuffer`, with observations ``[k, *shape]`` of which only new frames are stored.

    ``obs`` are `FrameStacks`; ``arrays["obs"]``, `step_memory` and final observations hold single
    frames, ``[..., *shape]``.

    Args:
        history: asked for the frames before the rollout when it starts.
        num_steps, num_envs, obs_shape, options: see `RolloutBuffer`; `obs_shape` is that of a
            frame.
    """

    obs: Any

    def __init__(
        self,
        history: History,
        num_steps: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        self._history, self._k = history, history.frames.shape[1]
        super().__init__(num_steps, num_envs, obs_shape, action_shape, **options)
        self.obs = FrameStacks(self._frames, self.terminated, self.truncated)

    def _new(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if name != "obs":
            super()._new(name, shape, dtype)
            return
        self._frames = torch.zeros((self._k - 1 + shape[0], *shape[1:]), dtype=dtype)
        self.arrays[name] = self._frames.numpy()[self._k - 1 :]

    @property
    def frames(self) -> np.ndarray:
        """All frames, ``[k - 1 + T + 1, N, *shape]``, those before the rollout first; a view."""
        return self._frames.numpy()

    def start(self, obs: np.ndarray | None = None) -> np.ndarray:
        """Begin a rollout; see `RolloutBuffer.start`. `obs` and the memory are of single frames."""
        before = np.moveaxis(self._history.frames[:, :-1], 1, 0)
        self._frames.numpy()[: self._k - 1] = before
        return super().start(obs)

    def final_stacks(self) -> Tensor:
        """The final observations kept so far, ``[K, k, *shape]``; a copy."""
        place = torch.from_numpy(self.final_place)
        before = self.obs.at(place // self.num_envs, place % self.num_envs)
        return torch.cat([before[:, 1:], torch.from_numpy(self.final_obs)[:, None]], 1)

    def _following(self) -> Tensor:
        sample = torch.arange(len(self))
        stacks: Tensor = self.obs.at(sample // self.num_envs + 1, sample % self.num_envs)
        return stacks.view(self.num_steps, self.num_envs, *stacks.shape[1:])

    def _final_inputs(self) -> Tensor:
        return self.final_stacks()

    def flat(self, *names: str) -> list[Any]:
        """See `RolloutBuffer.flat`; of ``obs`` the stacks, to gather from."""
        others = iter(super().flat(*(name for name in names if name != "obs")))
        return [self.obs if name == "obs" else next(others) for name in names]
