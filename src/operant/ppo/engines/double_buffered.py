"""`DoubleBuffered`: one half of the environments steps while the policy answers the other half.

For a policy on a GPU and environments that run beside this process. Each half has a stream of its
own, on which its observations go to the GPU, the policy answers them and the actions come back, in
this order, through memory that is not paged; the host waits for a half's actions alone, before it
lets that half step. What an environment is given depends on its own past and the noise of its row,
so that no timing changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor

from operant.buffers.rollout import RolloutBuffer
from operant.models.distributions import masked
from operant.ppo.engines.base import keep_ends
from operant.ppo.engines.host_transfers import HostMirror
from operant.ppo.engines.side_streams import SideStreams
from operant.ppo.job import Job
from operant.training.episodes import Episodes
from operant.vector.batch import Batch, Ends, StepMemory


class StepsInParts(Batch, Protocol):
    """A batch that can step some of its rows while others wait; see
    `operant.vector.foreign_batch.ForeignBatch`."""

    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """Two sets of rows, in order, that both keep all workers busy."""

    def begin_rows(self, actions: Any, rows: np.ndarray) -> None:
        """Begin to step some rows."""

    def first_done(self, sets: Sequence[np.ndarray]) -> int:
        """Wait until all rows of one of these sets are done; which one."""

    def finish_rows(self, rows: np.ndarray, out: StepMemory) -> Ends | None:
        """Wait for rows that were begun, and write what came of them to their rows of `out`."""


def steps_in_parts(env: Batch) -> TypeGuard[StepsInParts]:
    """Whether halves of a batch can step beside each other, and beside this process."""
    return env.backend in ("processes", "threads") and can_step_parts(env)


def can_step_parts(env: Batch) -> TypeGuard[StepsInParts]:
    """Whether a batch can step some rows while others wait, at whatever speed."""
    return hasattr(env, "begin_rows") and env.live_rows() is None


class Half:
    """Some rows, and what travels for them between host and GPU."""

    def __init__(self, side: int, rows: np.ndarray, job: Job, steps: int) -> None:
        self.side, self.rows, self._job = side, rows, job
        device, dist, count = job.device, job.distribution, len(rows)
        layout = job.obs_layout
        obs_dtype = torch.from_numpy(np.empty(0, layout.dtype)).dtype
        self.obs = HostMirror((count, *layout.shape), obs_dtype, device)
        self.mask = HostMirror((count, job.mask_size), torch.bool, device)
        self.taken: HostMirror | None = None
        """The actions as environments take them."""
        self.kept: dict[str, Tensor] = {
            "action": torch.zeros(
                (steps, count, *dist.action_shape), dtype=dist.action_dtype, device=device
            ),
            "log_prob": torch.zeros((steps, count), device=device),
            "value": torch.zeros((steps, count), device=device),
        }
        """What the rollout holds of the policy; it leaves the GPU once."""
        self._arrived = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def answer(self, t: int, noise: Tensor) -> None:
        """Launch what answers the observations that the host has put into ``obs``; `noise`
        ``[n, noise_size]`` is on the GPU."""
        dist = self._job.distribution
        self.obs.send()
        head, value = self._job.forward(self.obs.gpu)
        if self._job.mask_size:
            self.mask.send()
            head = masked(head, self.mask.gpu)
        action, log_prob = dist.sample(head, noise)
        for name, found in (("action", action), ("log_prob", log_prob), ("value", value)):
            self.kept[name][t] = found
        taken = dist.to_env(action)
        if self.taken is None:
            self.taken = HostMirror(tuple(taken.shape), taken.dtype, taken.device)
        self.taken.gpu.copy_(taken)
        self.taken.fetch()
        if self._arrived is not None:
            self._arrived.record(torch.cuda.current_stream(self._job.device))

    def actions(self) -> np.ndarray:
        """The actions, once they have arrived: the host waits here, and nowhere else."""
        if self._arrived is not None:
            self._arrived.synchronize()
        assert self.taken is not None
        return self.taken.host


class DoubleBuffered:
    """Collects rollouts; see the top of this file.

    Args:
        job: with a batch that `steps_in_parts`.
        num_steps: of a rollout.
    """

    def __init__(self, job: Job, num_steps: int) -> None:
        assert steps_in_parts(job.env)
        self._job, self._env = job, job.env
        self._streams = SideStreams(job.device)
        self._halves = [
            Half(side, rows, job, num_steps)
            for side, rows in enumerate(job.env.halves())
            if len(rows)
        ]

    @property
    def parts(self) -> int:
        """How many halves there are."""
        return len(self._halves)

    def collect(
        self,
        noise: np.ndarray,
        buffer: RolloutBuffer,
        before_step: Callable[[int, int], bool],
    ) -> Episodes:
        """Fill the buffer but for values at its ends; the episodes that finished.

        Args:
            noise: float32 ``[T, N, noise_size]``.
            buffer: where the rollout is stored.
            before_step: see `BaseEngine`; a half is a part.
        """
        device = self._job.device
        drawn = [torch.from_numpy(noise[:, half.rows]).to(device) for half in self._halves]
        finished: list[tuple[np.ndarray, ...]] = []
        self._env.write_obs(buffer.start())
        for t in range(buffer.num_steps):
            for part, (half, numbers) in enumerate(zip(self._halves, drawn, strict=True)):
                if t > 0:
                    self._finish(half, buffer, t - 1, finished)
                before_step(part, t)
                half.obs.host[...] = buffer.arrays["obs"][t, half.rows]
                if self._job.mask_size:
                    allowed = self._env.action_masks()[half.rows]
                    buffer.arrays["action_mask"][t, half.rows] = half.mask.host[...] = allowed
                with self._streams.beside(half.side):
                    half.answer(t, numbers[t])
                self._env.begin_rows(half.actions(), half.rows)
        for half in self._halves:
            self._finish(half, buffer, buffer.num_steps - 1, finished)
        self._streams.join()
        for half in self._halves:
            for name, found in half.kept.items():
                buffer.arrays[name][:, half.rows] = found.cpu().numpy()
        return in_order(Episodes.joined(finished))

    def _finish(
        self, half: Half, buffer: RolloutBuffer, t: int, finished: list[tuple[np.ndarray, ...]]
    ) -> None:
        ends = self._env.finish_rows(half.rows, buffer.step_memory(t))
        if ends is not None:
            finished.append(keep_ends(buffer, t, ends))


def in_order(episodes: Episodes) -> Episodes:
    """By their ends, those of one step by their rows."""
    order = np.lexsort((episodes.env_index, episodes.step))
    return Episodes(
        episodes.env_index[order],
        episodes.step[order],
        episodes.returns[order],
        episodes.lengths[order],
        episodes.truncated[order],
    )
