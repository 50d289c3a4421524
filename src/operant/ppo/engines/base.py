"""What engines have in common: the rollout's memory, reward scaling, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from operant.buffers.advantages import discounted_returns
from operant.buffers.frame_rollout import FrameRollout
from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.figures import report, trained_tensors
from operant.ppo.job import Iteration, Job
from operant.training.shards import merged_moments, moments, take_in
from operant.vector.batch import Ends
from operant.vector.frame_stack import FrameStack

NEWEST = -1
"""Instead of a part: whoever answers now does so with the newest weights that any part had."""


class BaseEngine:
    """The parts of an `Engine` that do not depend on how it computes.

    Args:
        job: what is trained.
        obs_dtype: of observations in the rollout; the batch's own unless given.
    """

    def __init__(self, job: Job, obs_dtype: torch.dtype | None = None) -> None:
        self.job = job
        ppo, env, dist = job.config.ppo, job.env, job.distribution
        stack = env if isinstance(env, FrameStack) else None
        obs = job.obs_layout if stack is None else stack.frame_layout
        samples = ppo.num_steps * env.num_envs
        numbers = math.prod(dist.action_shape) + dist.noise_size
        size = samples * (2 * obs.nbytes + 8 * numbers + 32) * job.config.run.rollouts
        check_memory(size, f"{ppo.num_steps} steps of {env.num_envs}")
        self._obs_dtype = obs_dtype
        self.buffer = self.new_buffer()
        self.buffer.intrinsic = job.new_stream(self.buffer.reward.device)
        self._return_carry = np.zeros(env.num_envs, np.float32)
        self.parts = 1
        """Sets of rows that are answered one after the other in a step of a rollout."""
        self.before_step: Callable[[int, int], bool] = _nothing_new
        """Called before the policy answers step `t` of the rows of a part: ``(part, t)``; whether
        its weights have changed. Of rollouts that are one call of a kernel for step 0 alone; where
        there may be several parts once more, for `NEWEST`."""

    def new_buffer(self) -> RolloutBuffer:
        """Memory for another rollout of this job."""
        return self._new_buffer(self._obs_dtype)

    def split(self, parts: int) -> None:
        """Answer so many sets of rows one after the other in a step of a rollout.

        Raises:
            ValueError: this engine cannot.
        """
        if parts != self.parts:
            raise ValueError(f"the {self.job.env.backend} environments are answered together")

    def use(self, buffer: RolloutBuffer) -> None:
        """Work on another rollout of this job from now on."""
        self.buffer = buffer

    def _new_buffer(self, obs_dtype: torch.dtype | None) -> RolloutBuffer:
        job, dist = self.job, self.job.distribution
        stack = job.env if isinstance(job.env, FrameStack) else None
        obs = job.obs_layout if stack is None else stack.frame_layout
        sizes = (job.config.ppo.num_steps, job.env.num_envs, obs.shape, dist.action_shape)
        options: dict[str, Any] = {
            "obs_dtype": obs_dtype or torch.from_numpy(np.empty(0, obs.dtype)).dtype,
            "action_dtype": dist.action_dtype,
            "mask_size": job.mask_size,
            "layout": obs,
            "rows_rest": job.env.live_rows() is not None,
            "every_final": job.every_final,
        }
        return (
            RolloutBuffer(*sizes, **options)
            if stack is None
            else FrameRollout(stack, *sizes, **options)
        )

    def normalize_rewards(self) -> None:
        """Divide the rollout's rewards by the running deviation of returns, if asked."""
        arrays, normalizer = self.buffer.arrays, self.job.return_normalizer
        if normalizer is not None:
            done = arrays["terminated"] | arrays["truncated"]
            gamma = self.job.config.ppo.gamma
            returns = discounted_returns(arrays["reward"], done, self._return_carry, gamma)
            counted = self.buffer.live_samples()
            if counted is not None:
                returns = returns.reshape(-1)[counted]
            seen = torch.from_numpy(returns).to(self.job.device)
            take_in(self.job.shards, normalizer, self.by_shard(seen))
            self.buffer.reward *= normalizer.scale().cpu()

    def by_shard(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The columns of each of this rank's shards in `x` ``[T, N, ...]``; of one shard `x`."""
        shards = self.job.shards
        return [x] if shards.one else [x[:, rows] for rows in shards.rows(x.shape[1])]

    def normalize_observations(self, obs: torch.Tensor, counted: np.ndarray | None = None) -> None:
        """Let the normaliser of observations see those of the rollout, ``[T * N, ...]``, of which
        `counted` are samples; all, unless given."""
        job = self.job
        if job.obs_normalizer is None:
            return
        if counted is not None:
            obs = obs[torch.from_numpy(counted).to(job.device)]
        if job.shards.one:
            job.obs_normalizer.update(obs)
            return
        rows = obs.reshape(self.buffer.num_steps, -1, *obs.shape[1:])
        take_in(job.shards, job.obs_normalizer, self.by_shard(rows))

    def report(self, figures: np.ndarray, iteration: int) -> dict[str, float]:
        """Means over minibatches of `figures` ``[minibatches, 6]``, after the NaN guard."""
        return report(self.job, self.buffer, figures, iteration)

    # an iteration before it is asked for ----------------------------------------------------
    def expect_until(self, end: int) -> None:
        """See `Engine`."""

    def expect(self, following: Iteration | None) -> None:
        """See `Engine`. Nothing is begun: the host that computes has nothing to wait for."""

    def retract(self, broken_off: bool = False) -> None:
        """See `Engine`."""

    # the NaN guard's way back ---------------------------------------------------------------
    def keep(self) -> None:
        """Copy what an iteration changes; see `Engine`."""
        self._count_before = self.job.optimizer.count
        self._before = [tensor.clone() for tensor in trained_tensors(self.job)]

    @torch.no_grad()
    def undo(self) -> None:
        """Put the copies back; see `Engine`."""
        trained = trained_tensors(self.job)
        for tensor, good in zip(trained, self._before[: len(trained)], strict=True):
            tensor.copy_(good)
        self.job.optimizer.count = self._count_before

    def explained_variance(self) -> float:
        """Share of the targets' variance that the values explain; NaN if there is none."""
        target, value = self.buffer.arrays["target"], self.buffer.arrays["value"]
        if not self.job.shards.one:
            return self._explained_by_all()
        counted = self.buffer.live_samples()
        if counted is not None:
            target, value = target.reshape(-1)[counted], value.reshape(-1)[counted]
            if not len(target):
                return float("nan")
        spread = float(target.var())
        return 1 - float((target - value).var()) / spread if spread > 0 else float("nan")

    def _explained_by_all(self) -> float:
        """`explained_variance` over all shards."""
        target, value = self.buffer.target, self.buffer.value
        pairs = zip(self.by_shard(target), self.by_shard(target - value), strict=True)
        parts = [torch.stack([moments(x), moments(left)], 1) for x, left in pairs]
        spread, left = self.job.shards.total(parts, merged_moments)[2].tolist()
        return 1 - left / spread if spread > 0 else float("nan")

    def timings(self) -> tuple[float, float, float] | None:
        """The calls take as long as the work does."""
        return None

    # state ----------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """The running returns of the reward normalisation."""
        return {"return_carry": self._return_carry.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Engine`."""
        carry = state.get("return_carry")
        if not isinstance(carry, np.ndarray) or carry.shape != self._return_carry.shape:
            raise ValueError(f"return_carry must have shape {self._return_carry.shape}")
        self._return_carry[:] = carry


def _nothing_new(part: int, t: int) -> bool:
    """The weights are those that are trained."""
    return False


def keep_ends(buffer: RolloutBuffer, t: int, ends: Ends) -> tuple[np.ndarray, ...]:
    """Keep the final observations of episodes that were cut short at step `t`, or of all, if the
    buffer wants them; all that ended, as `Episodes.joined` takes them."""
    index, returns, lengths, truncated, final_obs = ends
    kept = index if buffer.every_final else index[truncated]
    if len(kept):
        assert final_obs is not None  # SAME_STEP mode
        buffer.store_final_obs(t, kept, final_obs[kept])
    return index, np.full(len(index), t), returns, lengths, truncated


def check_memory(size: int, what: str) -> None:
    """Raise ValueError if `size` bytes are more than the machine has: the system would hand them
    out, and kill the process when they are used."""
    import psutil

    total = psutil.virtual_memory().total  # type: ignore[no-untyped-call]
    if size > total:
        raise ValueError(
            f"a rollout of {what} environments takes {size / 2**30:.0f} GiB, this machine has "
            f"{total / 2**30:.0f}; lower ppo.num_steps or env.num_envs"
        )
