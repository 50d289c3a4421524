"""Rollouts of the fused CPU engine: of environments that kernels step, and of any others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from operant.backends.cpu.kernels import NumbaBackend
from operant.buffers.rollout import RolloutBuffer
from operant.compiler.spec.buffers import LANES
from operant.models.encoders import OneHot
from operant.ppo.engines.base import keep_ends
from operant.ppo.engines.kernel_team import KernelTeam
from operant.ppo.job import Job
from operant.toolchain.team_size import TeamSize
from operant.training.episodes import Episodes
from operant.training.guard import check_action, check_rollout
from operant.vector.base import NO_LIMIT
from operant.vector.env import VecEnv


class Rollout(Protocol):
    """Plays environments with the policy that the kernels were told of."""

    functions: tuple[str, ...]
    """Kernels that are run."""
    called: tuple[str, ...]
    """Kernels that those call, besides what every rollout needs."""

    buffer: RolloutBuffer
    """Where it is stored; the arguments have its arrays."""

    def collect(self, iteration: int, before_step: Callable[[int], object]) -> Episodes:
        """Fill the buffer from step ``first_step`` of the arguments on; see `Engine.collect`.

        `before_step` is called before the policy answers a step, if kernels do not play all of them
        in one go; not for the first."""


class CompiledRollout:
    """Of compiled environments, in one call: a thread takes some through all steps.

    Args:
        job, buffer: what is played, and where it is stored.
        kernels: whose arguments are set.
        tile: environments that a thread takes at once.
        players: how many threads play.
        measured: whether `players` is to be told how long they took.
    """

    functions: tuple[str, ...] = ("collect",)
    called: tuple[str, ...] = ("store_step",)

    def __init__(
        self,
        job: Job,
        buffer: RolloutBuffer,
        kernels: KernelTeam,
        tile: int,
        players: TeamSize,
        measured: bool,
    ) -> None:
        self._job, self.buffer, self._kernels = job, buffer, kernels
        self._tile, self._players, self._measured = tile, players, measured
        steps, obs, tiles = buffer.num_steps, buffer.arrays["obs"], -(-buffer.num_envs // tile)
        limit = job.env.describe().max_episode_steps
        # Episodes may be over in a step; those that are cut short last as long as the limit says.
        shortest = 1 if job.every_final else limit or NO_LIMIT
        finals = tile * (1 + (steps - 1) // shortest)
        kernels.arguments.set(
            env_lanes=1 if job.env.backend == "native" else LANES,
            episode_capacity=steps * tile,
            episode_index=np.zeros(tiles * steps * tile, np.int64),
            episode_return=np.zeros(tiles * steps * tile, np.float32),
            episode_length=np.zeros(tiles * steps * tile, np.int32),
            episode_cut=np.zeros(tiles * steps * tile, np.bool_),
            episode_counts=np.zeros(tiles, np.int64),
            final_capacity=finals,
            every_final=job.every_final,
            final_obs=np.zeros((tiles * finals, *obs.shape[2:]), obs.dtype),
            final_index=np.zeros(tiles * finals, np.int64),
            final_counts=np.zeros(tiles, np.int64),
            bad=np.zeros(tiles, np.int64),
        )

    def collect(self, iteration: int, before_step: Callable[[int], object]) -> Episodes:
        """See `Rollout`."""
        arrays, buffer, env = self._kernels.arguments.arrays, self.buffer, self._job.env
        assert isinstance(env, VecEnv)
        with env.in_use():
            compiled = self._connect_env(env)
            for name in ("episode_counts", "final_counts", "bad"):
                arrays[name][:] = 0
            buffer.start(compiled.arrays["obs"][: buffer.num_envs])
            began = time.perf_counter()
            self._kernels.run("collect", self._tile, self._players.now)
            if self._measured:
                self._players.took(time.perf_counter() - began)
            compiled.state_changed()
            compiled.check()
        self._keep_finals()
        check_numbers(self._job, buffer)
        if self._job.config.run.nan_guard and self._is_bad():
            if buffer.action.dtype.is_floating_point:
                for t in range(buffer.num_steps):
                    check_action(buffer.action[t], iteration, t)
            check_rollout(buffer, iteration)
        return self._episodes()

    def _connect_env(self, env: VecEnv) -> NumbaBackend:
        """Show the kernels where the environments are."""
        arguments, compiled = self._kernels.arguments, env.compiled
        assert compiled is not None
        arrays = compiled.arrays
        actions = [action.ctypes.data for action in compiled.actions]
        named = ("obs", "final_obs", "reward", "terminated", "truncated", "finished")
        arguments.set(
            env_step=compiled.step_address,
            env_arguments=arrays["table"],
            env_actions=np.array(actions, np.int64),
            env_report_return=arrays["report_return"],
            env_report_length=arrays["report_length"],
            **{f"env_{name}": arrays[name] for name in named},
            now_us=time.perf_counter_ns() // 1000,
        )
        if "action_mask" in arrays:
            arguments.set(env_action_mask=arrays["action_mask"])
        return compiled

    def _is_bad(self) -> bool:
        """Whether a number of the rollout is not finite: kernels looked at what steps brought."""
        ends = (self.buffer.arrays["obs"][0], self.buffer.final_obs)
        found = bool(self._kernels.arguments.arrays["bad"].any())
        return found or not all(np.isfinite(x).all() for x in ends)

    def _keep_finals(self) -> None:
        """Hand the final observations over to the buffer, in order of their ends."""
        a = self._kernels.arguments.arrays
        chosen = _listed(a["final_counts"], _most(a["final_index"], a["final_counts"]))
        order = chosen[np.argsort(a["final_index"][chosen])]
        self.buffer.set_final_obs(a["final_index"][order], a["final_obs"][order])

    def _episodes(self) -> Episodes:
        a = self._kernels.arguments.arrays
        chosen = _listed(a["episode_counts"], _most(a["episode_index"], a["episode_counts"]))
        order = chosen[np.argsort(a["episode_index"][chosen])]
        place = a["episode_index"][order]
        return Episodes(
            place % self.buffer.num_envs,
            place // self.buffer.num_envs,
            a["episode_return"][order],
            a["episode_length"][order],
            a["episode_cut"][order],
        )


class SteppedRollout:
    """Of any batch in main memory: it steps the environments, a kernel is the policy.

    A team of threads shares the environments of a step if there are several tiles of them; while
    the environments step, none of it runs.

    Args:
        job, buffer: what is played, and where it is stored.
        kernels: whose arguments are set.
        tile: environments that a thread takes at once.
        players: how many threads are the policy.
    """

    functions: tuple[str, ...] = ("act", "value_finals")
    called: tuple[str, ...] = ()

    def __init__(
        self, job: Job, buffer: RolloutBuffer, kernels: KernelTeam, tile: int, players: TeamSize
    ) -> None:
        self._job, self.buffer, self._kernels = job, buffer, kernels
        self._tile, self._players = tile, players
        self._tiles = -(-buffer.num_envs // tile)
        arguments, parts = kernels.arguments, int(np.prod(job.distribution.action_shape))
        # Where the sampling kernels leave the actions of compiled environments; nobody reads them.
        self._unread = np.zeros((parts, buffer.num_envs), np.float32)
        arguments.set(
            env_actions=np.array([row.ctypes.data for row in self._unread], np.int64),
            env_action_mask=np.ones((buffer.num_envs, job.mask_size), np.bool_),
            final_capacity=0,
            every_final=0,
            final_counts=np.zeros(1, np.int64),
            final_index=buffer.final_place,
            final_obs=buffer.final_obs,
        )

    def collect(self, iteration: int, before_step: Callable[[int], object]) -> Episodes:
        """See `Rollout`."""
        env, buffer, dist = self._job.env, self.buffer, self._job.distribution
        mask = self._kernels.arguments.arrays["env_action_mask"]
        finished: list[tuple[np.ndarray, ...]] = []
        seconds = 0.0
        env.write_obs(buffer.start())
        for t in range(buffer.num_steps):
            if t > 0:
                before_step(t)
            if self._job.mask_size:
                mask[...] = env.action_masks()
            seconds += self._act(t)
            action = buffer.action[t]
            try:
                ends = env.write_step(dist.to_env(action).numpy(), buffer.step_memory(t))
            except (ValueError, RuntimeError):
                if action.is_floating_point():
                    check_action(action, iteration, t)  # is it the policy's fault?
                raise
            if ends is not None:
                finished.append(keep_ends(buffer, t, ends))
        seconds += self._act(buffer.num_steps)
        self._players.took(seconds)
        check_numbers(self._job, buffer)
        self._value_finals()
        if self._job.config.run.nan_guard:
            check_rollout(buffer, iteration)
        return Episodes.joined(finished)

    def _act(self, t: int) -> float:
        """Answer step `t`; the seconds that it took."""
        began = time.perf_counter()
        self._kernels.arguments.set(act_step=t)
        self._kernels.run("act", self._tile, min(self._players.now, self._tiles))
        return time.perf_counter() - began

    def _value_finals(self) -> None:
        place, arguments = self.buffer.final_place, self._kernels.arguments
        if len(place):
            arguments.set(final_index=place, final_obs=self.buffer.final_obs)
            arguments.arrays["final_counts"][0] = len(place)
            self._kernels.run("value_finals", self._tile, 1)


def check_numbers(job: Job, buffer: RolloutBuffer) -> None:
    """Raise ValueError for an observation that the one-hot vectors do not have."""
    encode, obs = job.policy.encode, buffer.arrays["obs"]
    if not isinstance(encode, OneHot):
        return
    low, size = np.array(encode.starts), np.array(encode.sizes)
    for seen in (obs.reshape(*obs.shape[:2], -1), buffer.final_obs.reshape(-1, len(low))):
        bad = ((seen < low) | (seen >= low + size)).any(-1)
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            env = place[1] if len(place) > 1 else buffer.final_place[place] % obs.shape[1]
            space = job.env.single_observation_space
            raise ValueError(
                f"environment {env} shows {seen[place].tolist()}, which is not in {space}"
            )


def obs_dtype(job: Job) -> torch.dtype:
    """What kernels read observations of a batch as, whose own are converted as they are stored:
    int64 where they are numbers to choose by, or large whole ones; else float32."""
    whole = isinstance(job.policy.encode, OneHot) or job.obs_layout.dtype == np.int64
    return torch.int64 if whole else torch.float32


def _most(array: np.ndarray, counts: np.ndarray) -> int:
    """Entries that a tile has memory for."""
    return len(array) // len(counts)


def _listed(counts: np.ndarray, most: int) -> np.ndarray:
    """Where the entries are that each tile noted: the first `counts` of its `most`."""
    return np.concatenate([np.arange(k * most, k * most + count) for k, count in enumerate(counts)])
