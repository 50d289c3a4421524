"""`FirstReady`: groups of environments that do not wait for each other.

For rollouts that are collected beside updates. Each group steps on its own: the policy answers the
one that is done first, and a slow environment holds its group alone until the rollout ends. What an
environment is given depends on its own past, the noise of its row and the weights, so that but for
these no timing changes a result: groups are fixed, and what is computed of a whole rollout is
computed in the order of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch

from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.base import keep_ends
from operant.ppo.engines.double_buffered import Half, StepsInParts, in_order
from operant.ppo.engines.side_streams import SideStreams
from operant.ppo.job import Job
from operant.training.episodes import Episodes

MOST_GROUPS = 4
"""The policy answers each of them by itself, which takes about as long as to answer all."""


class FirstReady:
    """Collects rollouts; see the top of this file.

    Args:
        job: with a batch that steps some of its rows while others wait.
        env: this batch.
        num_steps: of a rollout.
        parts: groups of rows, of about the same size.
    """

    def __init__(self, job: Job, env: StepsInParts, num_steps: int, parts: int) -> None:
        self._job, self._env, self._steps = job, env, num_steps
        self._streams = SideStreams(job.device)
        rows = np.array_split(np.arange(env.num_envs), parts)
        self._groups = [Half(k % 2, some, job, num_steps) for k, some in enumerate(rows)]
        self.parts = parts
        """How many groups there are."""

    def collect(
        self,
        noise: np.ndarray,
        buffer: RolloutBuffer,
        before_step: Callable[[int, int], bool],
    ) -> Episodes:
        """Fill the buffer but for values at its ends; see `DoubleBuffered.collect`."""
        device = self._job.device
        drawn = [torch.from_numpy(noise[:, group.rows]).to(device) for group in self._groups]
        self._env.write_obs(buffer.start())
        under_way: dict[int, int] = {}
        """Groups that step, and at which step of the rollout they are."""

        def answer(part: int, t: int) -> None:
            before_step(part, t)
            self._answer(self._groups[part], t, drawn[part][t], buffer)
            under_way[part] = t

        try:
            finished = self._play(buffer, under_way, answer)
        except BaseException:
            for part, t in under_way.items():  # nobody else would
                with suppress(Exception):
                    self._env.finish_rows(self._groups[part].rows, buffer.step_memory(t))
            raise
        self._streams.join()
        for group in self._groups:
            for name, found in group.kept.items():
                buffer.arrays[name][:, group.rows] = found.cpu().numpy()
        order = np.argsort(buffer.final_place)
        buffer.set_final_obs(buffer.final_place[order], buffer.final_obs[order])
        return in_order(Episodes.joined(finished))

    def _play(
        self, buffer: RolloutBuffer, under_way: dict[int, int], answer: Callable[[int, int], None]
    ) -> list[tuple[np.ndarray, ...]]:
        """All groups through all steps; the episodes that ended."""
        groups, finished = self._groups, []
        for part in range(len(groups)):
            answer(part, 0)
        while under_way:
            waiting = list(under_way)
            part = waiting[self._env.first_done([groups[k].rows for k in waiting])]
            t = under_way.pop(part)
            ends = self._env.finish_rows(groups[part].rows, buffer.step_memory(t))
            if ends is not None:
                finished.append(keep_ends(buffer, t, ends))
            if t + 1 < self._steps:
                answer(part, t + 1)
        return finished

    def _answer(self, group: Half, t: int, noise: torch.Tensor, buffer: RolloutBuffer) -> None:
        """Let the rows of a group take step `t`."""
        env = self._env
        group.obs.host[...] = buffer.arrays["obs"][t, group.rows]
        if self._job.mask_size:
            allowed = env.action_masks()[group.rows]
            buffer.arrays["action_mask"][t, group.rows] = group.mask.host[...] = allowed
        with self._streams.beside(group.side):
            group.answer(t, noise)
        env.begin_rows(group.actions(), group.rows)
