"""`RolloutBuffer`: what a policy and a batch of environments did, step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from operant.buffers.advantages import gae
from operant.buffers.value_stream import ValueStream
from operant.spaces.rows import ObsLayout
from operant.vector.batch import StepMemory


class RolloutBuffer:
    """Memory for ``num_steps`` steps of ``num_envs`` environments, time-major, allocated once.

    Every tensor is in main memory, and every attribute ``x`` has a NumPy view of the same memory in
    ``arrays["x"]``, so that what an environment hands out is stored with one copy and no
    conversion:

    - ``obs`` ``[T + 1, N, *obs_shape]``: ``obs[t]`` is what ``action[t]`` answers; ``obs[T]`` comes
      after the last step. Of a Dict or Tuple space a row of bytes, whose leaves are in `leaves`.
    - ``action`` ``[T, N, *action_shape]``; ``log_prob``, ``value``, ``reward`` float32 ``[T, N]``.
    - ``terminated``, ``truncated`` bool ``[T, N]``.
    - ``action_mask`` bool ``[T, N, mask_size]``: the actions that were allowed.
    - ``live`` bool ``[T, N]``: which of these are samples, see `Batch.live_rows`; None without
      `rows_rest`: all are.
    - ``final_value`` float32 ``[T, N]``: value of the final observation where ``truncated``.
    - ``last_value`` float32 ``[N]``: value of ``obs[T]``.
    - ``advantage``, ``target`` float32 ``[T, N]``, written by `compute_advantages`.

    The buffer owns its memory; views of it change with the next rollout.

    Args:
        num_steps, num_envs: T and N.
        obs_shape, action_shape: of one environment.
        obs_dtype, action_dtype: of the tensors.
        mask_size: numbers of an action mask; 0 where there is none.
        layout: where the leaves of a tree observation are in ``obs``, whose shape and dtype are
            then the layout's; None: there is one leaf.
        rows_rest: whether some rows are no samples at times.
        every_final: whether final observations are kept of all episodes that ended, for `next_obs`;
            else of the truncated ones, whose values are needed.

    Raises:
        ValueError: less than one step or environment.
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    action_mask: Tensor
    live: Tensor | None
    final_value: Tensor
    last_value: Tensor
    advantage: Tensor
    target: Tensor
    intrinsic: ValueStream | None = None
    """Bonuses with values of their own, where there are such."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...] = (),
        *,
        obs_dtype: torch.dtype = torch.float32,
        action_dtype: torch.dtype = torch.int64,
        mask_size: int = 0,
        layout: ObsLayout | None = None,
        rows_rest: bool = False,
        every_final: bool = False,
    ) -> None:
        if num_steps < 1 or num_envs < 1:
            raise ValueError(
                f"num_steps and num_envs must be at least 1, got {num_steps} and {num_envs}"
            )
        self.num_steps, self.num_envs, self._layout = num_steps, num_envs, layout
        self.every_final = every_final
        if layout is not None and layout.is_tree:
            obs_shape, obs_dtype = layout.shape, torch.uint8
        shape = (num_steps, num_envs)
        self.arrays: dict[str, np.ndarray] = {}
        self._new("obs", (num_steps + 1, num_envs, *obs_shape), obs_dtype)
        self._new("action", (*shape, *action_shape), action_dtype)
        for name in ("log_prob", "value", "reward", "final_value", "advantage", "target"):
            self._new(name, shape, torch.float32)
        for name in ("terminated", "truncated"):
            self._new(name, shape, torch.bool)
        self._new("action_mask", (*shape, mask_size), torch.bool)
        self.live = None
        if rows_rest:
            self._new("live", shape, torch.bool)
        self._new("last_value", (num_envs,), torch.float32)
        self._final_obs = np.empty((num_envs, *obs_shape), self.arrays["obs"].dtype)
        self._final_place = np.empty(num_envs, np.int64)
        self._finals = 0

    def _new(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        tensor = torch.zeros(shape, dtype=dtype)
        setattr(self, name, tensor)
        self.arrays[name] = tensor.numpy()

    def __len__(self) -> int:
        return self.num_steps * self.num_envs

    def leaves(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """Every leaf of observations ``[..., *obs_shape]`` of this buffer, by its path in the tree:
        views; a flat observation is a leaf with the path ``""``."""
        return {"": obs} if self._layout is None else self._layout.views(obs)

    def start(self, obs: np.ndarray | None = None) -> np.ndarray:
        """Begin a rollout at these observations, ``[N, *obs_shape]``; the memory where they are,
        for the caller to fill if none were given."""
        first: np.ndarray = self.arrays["obs"][0]
        if obs is not None:
            first[...] = obs
        self._finals = 0
        return first

    def step_memory(self, t: int) -> StepMemory:
        """Where what the environments answer to ``action[t]`` belongs: views."""
        a = self.arrays
        return StepMemory(a["obs"][t + 1], a["reward"][t], a["terminated"][t], a["truncated"][t])

    def store_step(
        self,
        t: int,
        obs: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Keep what the environments answered to ``action[t]``: one copy each."""
        arrays = self.arrays
        arrays["obs"][t + 1] = obs
        arrays["reward"][t] = reward
        arrays["terminated"][t] = terminated
        arrays["truncated"][t] = truncated

    def store_final_obs(self, t: int, env_index: np.ndarray, final_obs: np.ndarray) -> None:
        """Keep the final observations of episodes that ended at step `t`: of those truncated, for
        `fill_final_values`; with `every_final` of the others too.

        Args:
            t: the step.
            env_index: int ``[K]``: which environments.
            final_obs: ``[K, *obs_shape]``; copied.

        Raises:
            ValueError: another shape.
        """
        wanted = (len(env_index), *self._final_obs.shape[1:])
        if final_obs.shape != wanted:
            raise ValueError(f"final_obs must have shape {wanted}, got {final_obs.shape}")
        end = self._finals + len(env_index)
        if end > len(self._final_place):
            room = max(end, 2 * len(self._final_place))
            self._final_obs = _enlarged(self._final_obs, room)
            self._final_place = _enlarged(self._final_place, room)
        self._final_obs[self._finals : end] = final_obs
        self._final_place[self._finals : end] = env_index
        self._final_place[self._finals : end] += t * self.num_envs
        self._finals = end

    def set_final_obs(self, final_place: np.ndarray, final_obs: np.ndarray) -> None:
        """Keep the final observations ``[K, *obs_shape]`` of a whole rollout; see
        `store_final_obs`. `final_place`, int64 ``[K]``, says where they belong. For who fills in
        their values too."""
        self._final_obs, self._final_place = final_obs, final_place
        self._finals = len(final_place)

    @property
    def final_obs(self) -> np.ndarray:
        """The final observations kept so far, ``[K, *obs_shape]``; a view."""
        return self._final_obs[: self._finals]

    @property
    def final_place(self) -> np.ndarray:
        """Where they belong: int64 ``[K]``, ``t * N + env``; a view."""
        return self._final_place[: self._finals]

    def fill_final_values(self, value: Callable[[Tensor], Tensor]) -> None:
        """Compute ``final_value`` of all truncated episodes in one call of `value`; in none if
        there are no such episodes. With `every_final` those that terminated are left out: a product
        of matrices rounds as its size has it, and no value may depend on what is kept besides.

        Args:
            value: from observations ``[K, *obs_shape]`` (a view, in main memory) to values ``[K]``.

        Raises:
            ValueError: `value` returned another shape.
        """
        if not self._finals:
            return
        place, inputs = self.final_place, self._final_inputs()
        if self.every_final:
            cut = self.arrays["truncated"] & ~self.arrays["terminated"]
            wanted = np.flatnonzero(cut.reshape(-1)[place])
            place, inputs = place[wanted], inputs[torch.from_numpy(wanted)]
        if len(place):
            numbers = value(inputs).detach().cpu().numpy()
            if numbers.shape != place.shape:
                raise ValueError(
                    f"value must return one number for each of {len(place)} observations, "
                    f"got shape {numbers.shape}"
                )
            self.arrays["final_value"].reshape(-1)[place] = numbers

    def _final_inputs(self) -> Tensor:
        return torch.from_numpy(self.final_obs)

    def next_obs(self) -> Tensor:
        """What followed each action, ``[T, N, *obs_shape]``: where an episode ended its final
        observation, which the next episode's first has replaced in ``obs``; a copy.

        Raises:
            ValueError: the buffer was made without `every_final`.
        """
        if not self.every_final:
            raise ValueError(
                "final observations of all episodes are not kept here; make the buffer with "
                "every_final, or set needs_next_obs in the add-on"
            )
        following = self._following()
        if self._finals:
            place = torch.from_numpy(self.final_place)
            following.flatten(0, 1).index_copy_(0, place, self._final_inputs())
        return following

    def _following(self) -> Tensor:
        return self.obs[1:].clone()

    def compute_advantages(self, gamma: float, gae_lambda: float) -> None:
        """Write ``advantage`` and ``target``; see `operant.buffers.advantages`."""
        a = self.arrays
        gae(
            a["reward"],
            a["value"],
            a["terminated"],
            a["truncated"],
            a["final_value"],
            a["last_value"],
            gamma,
            gae_lambda,
            out=(a["advantage"], a["target"]),
        )

    def live_samples(self) -> np.ndarray | None:
        """The samples of this rollout, int64 ``[K]``, as `flat` numbers them, in order; None: all
        of them are."""
        return None if self.live is None else np.flatnonzero(self.arrays["live"])

    def flat(self, *names: str) -> list[Tensor]:
        """Views ``[T * N, ...]`` of the named tensors ``[T, N, ...]`` (of ``obs`` without its last
        step); sample ``t * N + i`` is step t of environment i."""
        return [getattr(self, name)[: self.num_steps].flatten(0, 1) for name in names]


def _enlarged(array: np.ndarray, rows: int) -> np.ndarray:
    larger = np.empty((rows, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
