"""`FrameStack`: a batch whose observations are the last frames of each environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from operant.spaces.rows import ObsLayout
from operant.vector.batch import Batch, Description, Ends, StepMemory

if TYPE_CHECKING:
    import torch


class FrameStack:
    """A batch of the same environments, with observations ``[k, *shape]``: the last `k`, the newest
    last. At the beginning of an episode its first one is repeated, as Gymnasium's
    ``FrameStackObservation`` does.

    It is a `Batch`. `write_obs` and `write_step` also take memory for the newest frames alone,
    ``[num_envs, *shape]``, so that a rollout stores each frame once; `frames` is then what it
    has to know of the time before it. See `operant.buffers.frame_rollout`.

    Args:
        batch: in main memory, with Box observations; this one closes it.
        k: how many frames.

    Raises:
        ValueError, TypeError: another kind of observations, or less than one frame.
    """

    def __init__(self, batch: Batch, k: int) -> None:
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"a stack has 1 frame or more, got {k!r}")
        space = batch.single_observation_space
        if not isinstance(space, spaces.Box):
            raise TypeError(f"frames to be stacked must be of one Box, got {space}")
        if batch.device.type != "cpu":
            raise ValueError(f"frames are stacked in main memory, the batch is on {batch.device}")
        if batch.live_rows() is not None:
            raise ValueError(
                "frames are stacked where every row acts in every step, and some of this batch "
                "rest at times; stack them in the environment"
            )
        self.batch, self.k = batch, k
        self.num_envs, self.backend = batch.num_envs, batch.backend
        self.backend_reason: str = getattr(batch, "backend_reason", "")
        """Why it is run by what it is; empty where nothing was chosen."""
        self.autoreset_mode = batch.autoreset_mode
        self.single_observation_space: spaces.Space[Any] = batch_space(space, k)
        self.single_action_space = batch.single_action_space
        self.frame_layout = ObsLayout.of(space)
        """How a single frame lies in memory."""
        self.frames = np.zeros((self.num_envs, k, *self.frame_layout.shape), space.dtype)
        """The current observations."""
        self._ended = np.zeros(self.num_envs, np.bool_)

    @property
    def device(self) -> torch.device:
        """Main memory."""
        return self.batch.device

    @property
    def mask_size(self) -> int:
        """See `Batch`."""
        return self.batch.mask_size

    @property
    def why_not_saved(self) -> str | None:
        """See `Batch`."""
        return self.batch.why_not_saved

    def reset(self, *, seed: int | None = None) -> None:
        """See `Batch`."""
        self.batch.reset(seed=seed)
        self._begin()

    def _begin(self) -> None:
        """All environments show the first frames of their episodes."""
        newest = self.frame_layout.memory(self.num_envs)
        self.batch.write_obs(newest)
        self.frames[:] = newest[:, None]
        self._ended[:] = False

    def write_obs(self, out: Any) -> None:
        """See `Batch`; of memory for single frames, the newest."""
        out[...] = self.frames[:, -1] if self._is_frames(out) else self.frames

    def _is_frames(self, out: Any) -> bool:
        return bool(out.ndim == self.frames.ndim - 1)

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        """See `Batch`; where `out` has memory for single frames, final observations are such
        too."""
        if self._is_frames(out.obs):
            ends = self.batch.write_step(actions, out)
            self._push(out.obs, out)
            return ends
        newest = self.frame_layout.memory(self.num_envs)
        ends = self.batch.write_step(actions, out._replace(obs=newest))
        if ends is not None and ends.final_obs is not None:
            finals = np.concatenate([self.frames[:, 1:], ends.final_obs[:, None]], 1)
            ends = ends._replace(final_obs=finals)
        self._push(newest, out)
        out.obs[...] = self.frames
        return ends

    def _push(self, newest: Any, out: StepMemory) -> None:
        """Take in the frames after a step, some of which are the first of their episodes."""
        done = out.terminated | out.truncated
        begins = done if self.autoreset_mode == AutoresetMode.SAME_STEP else self._ended
        self.frames[:, :-1] = self.frames[:, 1:]
        self.frames[:, -1] = newest
        if begins.any():
            self.frames[begins] = newest[begins, None]
        self._ended[:] = done

    def action_masks(self) -> Any:
        """See `Batch`."""
        return self.batch.action_masks()

    def live_rows(self) -> None:
        """See `Batch`: all, always."""

    def get_state(self) -> dict[str, np.ndarray]:
        """See `Batch`: what the batch has, and ``stack/`` entries."""
        own = {f"stack/{name}": array.copy() for name, array in self._own().items()}
        return self.batch.get_state() | own

    def _own(self) -> dict[str, np.ndarray]:
        return {"frames": self.frames, "ended": self._ended}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Batch`."""
        own = self._own()
        for name, array in own.items():
            given = state.get(f"stack/{name}")
            if given is None or given.shape != array.shape or given.dtype != array.dtype:
                raise ValueError(
                    f"state entry 'stack/{name}' must be {array.dtype} of shape {array.shape}"
                )
        self.batch.set_state({k: v for k, v in state.items() if not k.startswith("stack/")})
        for name, array in own.items():
            array[...] = state[f"stack/{name}"]

    def describe(self) -> Description:
        """See `Batch`."""
        return self.batch.describe()

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> FrameStack:
        """See `Batch`."""
        return FrameStack(self.batch.for_evaluation(num_envs, max_episode_steps), self.k)

    def close(self) -> None:
        """See `Batch`."""
        self.batch.close()
