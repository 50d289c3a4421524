"""`GpuBuffer`: a rollout on the GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operant.buffers.advantages import gae_torch
from operant.buffers.value_stream import ValueStream


class GpuBuffer:
    """Memory for ``num_steps`` steps of ``num_envs`` environments on a GPU, time-major, allocated
    once and at fixed addresses, so that a CUDA graph can write to it.

    Tensors as in `RolloutBuffer`, and:

    - ``action_mask`` ``[T + 1, N, mask_size]``, as ``obs``: of the observations' own states.
    - ``final_obs`` ``[T, N, *obs_shape]``: the last observation where an episode ended; else old.
    - ``report`` float32 ``[T, N, 4]``: return, length (the bits of an int32) and seconds of an
      episode where it ended; else old.
    - ``scaled_reward`` float32 ``[T, N]``: the rewards that advantages are computed from; may be
      set to ``reward`` itself.

    Nothing but `live_samples` waits for the GPU. The buffer owns its memory; views change with the
    next rollout.

    Args:
        num_steps, num_envs: T and N.
        obs_shape, action_shape: of one environment.
        device: the GPU.
        obs_dtype, action_dtype: of the tensors.
        mask_size: numbers of an action mask; 0 where there is none.
        rows_rest: whether some rows are no samples at times; see `RolloutBuffer`.

    Raises:
        ValueError: less than one step or environment.
    """

    intrinsic: ValueStream | None = None
    """Bonuses with values of their own, where there are such."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...] = (),
        *,
        device: torch.device,
        obs_dtype: torch.dtype = torch.float32,
        action_dtype: torch.dtype = torch.int64,
        mask_size: int = 0,
        rows_rest: bool = False,
    ) -> None:
        if num_steps < 1 or num_envs < 1:
            raise ValueError(
                f"num_steps and num_envs must be at least 1, got {num_steps} and {num_envs}"
            )
        self.num_steps, self.num_envs, self.device = num_steps, num_envs, device

        def zeros(
            *shape: int, dtype: torch.dtype = torch.float32, steps: int = num_steps
        ) -> Tensor:
            return torch.zeros((steps, num_envs, *shape), dtype=dtype, device=device)

        self.obs = zeros(*obs_shape, dtype=obs_dtype, steps=num_steps + 1)
        self.action = zeros(*action_shape, dtype=action_dtype)
        self.log_prob, self.reward, self.scaled_reward = zeros(), zeros(), zeros()
        self.terminated, self.truncated = zeros(dtype=torch.bool), zeros(dtype=torch.bool)
        self.action_mask = zeros(mask_size, dtype=torch.bool, steps=num_steps + 1)
        self.live = zeros(dtype=torch.bool) if rows_rest else None
        self.final_obs = zeros(*obs_shape, dtype=obs_dtype)
        self.report = zeros(4)
        self.advantage, self.target = zeros(), zeros()
        self._values = zeros(steps=num_steps + 1)
        self.value, self.last_value = self._values[:-1], self._values[-1]
        # One row more than steps: where the values of final observations go that there are not.
        self._final_values = zeros(steps=num_steps + 1)
        self.final_value = self._final_values[:-1]

    def __len__(self) -> int:
        return self.num_steps * self.num_envs

    @property
    def nbytes(self) -> int:
        """The memory it holds, in bytes; views and tensors that are one are counted once."""
        tensors = [kept for kept in vars(self).values() if isinstance(kept, Tensor)]
        memory = {storage._cdata: storage for storage in (t.untyped_storage() for t in tensors)}
        return sum(storage.nbytes() for storage in memory.values())

    @property
    def values(self) -> Tensor:
        """``value`` and ``last_value`` together: float32 ``[T + 1, N]``; a view."""
        return self._values

    def live_samples(self) -> np.ndarray | None:
        """See `RolloutBuffer`; waits for the GPU, if rows rest."""
        return None if self.live is None else np.flatnonzero(self.live.cpu().numpy())

    def flat(self, *names: str) -> list[Tensor]:
        """Views ``[T * N, ...]`` of the named tensors ``[T, N, ...]`` (of ``obs`` and
        ``action_mask`` without their last step); sample ``t * N + i`` is step t of environment i.
        """
        return [getattr(self, name)[: self.num_steps].flatten(0, 1) for name in names]

    def next_obs(self) -> Tensor:
        """What followed each action, ``[T, N, *obs_shape]``; see `RolloutBuffer.next_obs`."""
        done = self.terminated | self.truncated
        shape = (*done.shape, *[1] * (self.obs.ndim - 2))
        return torch.where(done.view(shape), self.final_obs, self.obs[1:])

    def final_places(self, most: int) -> tuple[Tensor, Tensor]:
        """Steps at which episodes were truncated, int64 ``[most, N]``, and which of these there
        are, bool ``[most, N]``: at most `most` of an environment, the latest first."""
        cut = self.truncated & ~self.terminated
        times = torch.arange(self.num_steps, device=self.device).unsqueeze(1)
        found = torch.where(cut, times, -1)
        if most == 1:
            latest = found.amax(0, keepdim=True)
        else:
            latest = found.topk(most, 0).values
        return latest.clamp(min=0), latest >= 0

    def final_observations(self, places: Tensor, there: Tensor) -> Tensor:
        """The final observations at `places`, ``[most, N, *obs_shape]``; where there is none, some
        other observation."""
        lanes = torch.arange(self.num_envs, device=self.device)
        shape = (*there.shape, *[1] * (self.obs.ndim - 2))
        return torch.where(there.view(shape), self.final_obs[places, lanes], self.obs[0])

    def set_final_values(self, places: Tensor, there: Tensor, values: Tensor) -> None:
        """Write ``final_value`` of the observations at `places`, all ``[most, N]``; else 0."""
        self._final_values.zero_()
        self._final_values.scatter_(0, torch.where(there, places, self.num_steps), values)

    def compute_advantages(self, gamma: float, gae_lambda: float) -> None:
        """Write ``advantage`` and ``target`` from ``scaled_reward``; see `gae_triton`."""
        inputs = (
            self.scaled_reward,
            self.value,
            self.terminated,
            self.truncated,
            self.final_value,
            self.last_value,
        )
        if runs_kernels(self.device):
            from operant.buffers.triton_scans import gae_triton

            gae_triton(*inputs, gamma, gae_lambda, (self.advantage, self.target))
        else:
            advantage, target = gae_torch(*inputs, gamma, gae_lambda)
            self.advantage.copy_(advantage)
            self.target.copy_(target)


def runs_kernels(device: torch.device) -> bool:
    """Whether Triton's kernels run on tensors of `device`."""
    from operant.toolchain.gpus import interpreted

    return device.type == "cuda" or interpreted()
