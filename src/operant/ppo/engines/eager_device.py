"""The `eager` engine for environments of others whose arrays are on the policy's device already.

As `EagerEngine`, with the rollout in the memory of the device: observations, rewards and flags are
copied from where the environments keep them to where an update reads them, and never to the host.
The host waits once in a step, to be told whether episodes ended.
"""

from __future__ import annotations

import numpy as np
import torch

from operant.buffers.gpu import GpuBuffer
from operant.models.distributions import masked
from operant.ppo.engines.eager import EagerEngine
from operant.training.episodes import Episodes
from operant.training.guard import check_action, check_device_rollout
from operant.training.noise import fill_uniforms
from operant.vector.batch import Ends, StepMemory


class DeviceEagerEngine(EagerEngine):
    """See `operant.ppo.job.Engine`."""

    buffer: GpuBuffer  # type: ignore[assignment]

    def _new_buffer(self, obs_dtype: torch.dtype | None) -> GpuBuffer:  # type: ignore[override]
        job, obs, dist = self.job, self.job.obs_layout, self.job.distribution
        self._carry = torch.zeros(job.env.num_envs, device=job.device)
        buffer = GpuBuffer(
            job.config.ppo.num_steps,
            job.env.num_envs,
            obs.shape,
            dist.action_shape,
            device=job.device,
            obs_dtype=obs_dtype or torch.from_numpy(np.empty(0, obs.dtype)).dtype,
            action_dtype=dist.action_dtype,
            mask_size=job.mask_size,
            rows_rest=job.env.live_rows() is not None,
        )
        if job.return_normalizer is None:
            buffer.scaled_reward = buffer.reward
        return buffer

    # collect --------------------------------------------------------------------------------
    @torch.no_grad()
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        job, b = self.job, self.buffer
        env, dist = job.env, job.distribution
        job.policy.eval()
        fill_uniforms(self._noise, job.config.run.seed, step)
        noise = torch.from_numpy(self._noise).to(job.device)
        finished: list[tuple[np.ndarray, ...]] = []
        env.write_obs(b.obs[0])
        for t in range(b.num_steps):
            head, value = job.forward(b.obs[t])
            if b.live is not None:
                b.live[t] = env.live_rows()
            if job.mask_size:
                b.action_mask[t] = env.action_masks()
                head = masked(head, b.action_mask[t])
            action, log_prob = dist.sample(head, noise[t])
            b.action[t], b.log_prob[t], b.value[t] = action, log_prob, value
            out = StepMemory(b.obs[t + 1], b.reward[t], b.terminated[t], b.truncated[t])
            try:
                ends = env.write_step(dist.to_env(action), out)
            except ValueError:
                check_action(action, iteration, t)  # is it the policy's fault?
                raise
            if ends is not None:
                finished.append(self._keep_ends(t, ends))
        b.last_value.copy_(job.value(b.obs[-1]))
        self._fill_final_values()
        if job.config.run.nan_guard and not self._looks_finite():
            check_device_rollout(b, iteration)
        return Episodes.joined(finished)

    def _keep_ends(self, t: int, ends: Ends) -> tuple[np.ndarray, ...]:
        index, returns, lengths, truncated, final_obs = ends
        kept = index if self.job.every_final else index[truncated]
        if len(kept):
            assert final_obs is not None  # SAME_STEP mode
            rows = torch.from_numpy(kept).to(self.job.device)
            self.buffer.final_obs[t].index_copy_(0, rows, torch.as_tensor(final_obs)[rows])
        return index, np.full(len(index), t), returns, lengths, truncated

    def _fill_final_values(self) -> None:
        b = self.buffer
        b.final_value.zero_()
        cut = (b.truncated & ~b.terminated).flatten().nonzero().squeeze(1)
        if len(cut):
            values = self.job.value(b.final_obs.flatten(0, 1).index_select(0, cut))
            b.final_value.view(-1).index_copy_(0, cut, values)

    def _looks_finite(self) -> bool:
        b = self.buffer
        tensors = [b.values, b.log_prob, b.reward, b.final_value]
        tensors += [b.obs] if b.obs.is_floating_point() else []
        total = torch.stack([x.sum(dtype=torch.float64) for x in tensors]).sum()
        return bool(torch.isfinite(total))

    # advantages -----------------------------------------------------------------------------
    @torch.no_grad()
    def normalize_rewards(self) -> None:
        """Write ``scaled_reward``, if asked; see `BaseEngine`."""
        b, normalizer = self.buffer, self.job.return_normalizer
        if normalizer is None:
            return
        gamma, returns = self.job.config.ppo.gamma, torch.empty_like(b.reward)
        done = b.terminated | b.truncated
        for t in range(b.num_steps):
            self._carry.mul_(gamma).add_(b.reward[t])
            returns[t] = self._carry
            self._carry.masked_fill_(done[t], 0.0)
        normalizer.update(returns if b.live is None else returns[b.live])
        torch.mul(b.reward, normalizer.scale(), out=b.scaled_reward)

    def explained_variance(self) -> float:
        """See `BaseEngine`."""
        b = self.buffer
        target, value = b.target.flatten(), b.value.flatten()
        if b.live is not None:
            counted = b.live.flatten()
            target, value = target[counted], value[counted]
        pair = torch.stack([target.var(correction=0), (target - value).var(correction=0)])
        spread, rest = pair.tolist()
        return 1 - rest / spread if spread > 0 else float("nan")

    # state ----------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """See `BaseEngine`."""
        return {"return_carry": self._carry.cpu().numpy().copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """See `Engine`."""
        super().set_state(state)
        self._carry.copy_(torch.from_numpy(self._return_carry))
