"""The `eager` engine: PyTorch as written. The readable reference; every device, env and policy.

Time-major ``[T, N]``. Environments run on the CPU; on a GPU only the networks do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from operant.buffers.advantages import discounted_returns
from operant.buffers.rollout import RolloutBuffer
from operant.ppo.guard import NonFiniteError, check_action, check_rollout
from operant.ppo.job import Episodes, Job
from operant.ppo.loss import Loss, normalized, ppo_loss
from operant.ppo.noise import fill_uniforms, shuffled
from operant.ppo.threads import Threads, keep_freed_memory, usable_cores

SLICE = 4096
"""Samples that go through the networks at once on a CPU, so that activations stay in its caches."""

_DATA = ("obs", "action", "log_prob", "target", "value", "advantage")
_FIGURES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")


class EagerEngine:
    """See `operant.ppo.job.Engine`."""

    name = "eager"

    def __init__(self, job: Job) -> None:
        self.job = job
        ppo, env, dist = job.config.ppo, job.env, job.distribution
        obs = job.env.single_observation_space
        assert obs.shape is not None
        samples = ppo.num_steps * env.num_envs
        numbers = math.prod(obs.shape) + math.prod(dist.action_shape) + dist.noise_size
        check_memory(samples * (8 * numbers + 32), f"{ppo.num_steps} steps of {env.num_envs}")
        self.buffer = RolloutBuffer(
            ppo.num_steps,
            env.num_envs,
            obs.shape,
            dist.action_shape,
            obs_dtype=torch.from_numpy(np.empty(0, obs.dtype)).dtype,
            action_dtype=dist.action_dtype,
        )
        self._noise = np.empty((ppo.num_steps, env.num_envs, dist.noise_size), np.float32)
        self._return_carry = np.zeros(env.num_envs, np.float32)
        on_cpu = job.device.type == "cpu"
        self._slice = SLICE if on_cpu else 0
        if on_cpu:
            keep_freed_memory()
        one = not on_cpu or depends_on_order(job.policy)
        self._threads = Threads(1 if one else job.config.run.threads or usable_cores())

    # collect --------------------------------------------------------------------------------
    @torch.inference_mode()
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        job, buffer = self.job, self.buffer
        env, policy, dist, device = job.env, job.policy, job.distribution, job.device
        fill_uniforms(self._noise, job.config.run.seed, step)
        noise = torch.from_numpy(self._noise)
        finished: list[tuple[np.ndarray, ...]] = []
        buffer.start(env.get_state()["obs"])
        for t in range(buffer.num_steps):
            head, value = policy(buffer.obs[t].to(device))
            action, log_prob = dist.sample(head, noise[t].to(device))
            buffer.action[t] = action
            buffer.log_prob[t] = log_prob
            buffer.value[t] = value
            try:
                results = env.step(dist.to_env(action).cpu().numpy())
            except ValueError:
                check_action(action, iteration, t)  # is it the policy's fault?
                raise
            obs, reward, terminated, truncated, info = results
            buffer.store_step(t, obs, reward, terminated, truncated)
            if info:
                finished.append(self._ends(t, truncated & ~terminated, info))
        buffer.last_value[:] = job.value(buffer.obs[-1].to(device))
        buffer.fill_final_values(lambda final_obs: job.value(final_obs.to(device)))
        if job.config.run.nan_guard:
            check_rollout(buffer, iteration)
        return Episodes.joined(finished)

    def _ends(self, t: int, cut: np.ndarray, info: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Note the episodes that ended at step `t`, and final observations of those cut short."""
        index = np.flatnonzero(info["_episode"])
        cut_index = np.flatnonzero(cut)
        if len(cut_index):
            self.buffer.store_final_obs(t, cut_index, info["final_obs"][cut_index])
        report = info["episode"]
        return index, np.full(len(index), t), report["r"][index], report["l"][index], cut[index]

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages."""
        ppo, arrays = self.job.config.ppo, self.buffer.arrays
        normalizer = self.job.return_normalizer
        if normalizer is not None:
            done = arrays["terminated"] | arrays["truncated"]
            returns = discounted_returns(arrays["reward"], done, self._return_carry, ppo.gamma)
            normalizer.update(torch.from_numpy(returns).to(self.job.device))
            self.buffer.reward *= normalizer.scale().cpu()
        self.buffer.compute_advantages(ppo.gamma, ppo.gae_lambda)

    # update ---------------------------------------------------------------------------------
    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Epochs over shuffled minibatches; see `Engine`."""
        job, ppo = self.job, self.job.config.ppo
        data = [tensor.to(job.device) for tensor in self.buffer.flat(*_DATA)]
        rows: list[Tensor] = []
        for epoch in range(ppo.epochs):
            order = shuffled(len(self.buffer), job.config.run.seed, iteration, epoch)
            minibatches = torch.from_numpy(order).to(job.device).tensor_split(ppo.minibatches)
            rows += [self._train_on(index, data, learning_rate, clip) for index in minibatches]
            if ppo.target_kl:
                kl = torch.stack(rows[-ppo.minibatches :])[:, 3].mean().item()
                if kl > ppo.target_kl:
                    break
        figures = torch.stack(rows).cpu().numpy()  # the only read, unless there is a target
        if job.config.run.nan_guard:
            self._check_update(figures, iteration)
        if job.obs_normalizer is not None:
            job.obs_normalizer.update(data[0])
        means = dict(zip((*_FIGURES, "grad_norm"), figures.mean(0).tolist(), strict=True))
        return {**means, "epochs": len(rows) / ppo.minibatches}

    def _train_on(
        self, index: Tensor, data: list[Tensor], learning_rate: float, clip: float
    ) -> Tensor:
        """One optimiser step on the samples `index` ``[B]``; figures ``[6]``, on the device."""
        ppo, optimizer = self.job.config.ppo, self.job.optimizer
        advantage = data[-1].index_select(0, index)
        if ppo.normalize_advantage:
            advantage = normalized(advantage)
        size = self._slice or len(index)
        parts = list(zip(torch.split(index, size), torch.split(advantage, size), strict=True))

        def gradient_of(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            loss = self._loss(*part, data, clip)
            share = len(part[0]) / len(index)
            pieces = torch.autograd.grad(
                loss.total * share, optimizer.parameters, materialize_grads=True
            )
            return torch.cat([piece.flatten() for piece in pieces]), torch.stack(loss[1:]) * share

        found = self._threads.map(gradient_of, parts)
        # Added in the order of the slices: the sum does not depend on the threads.
        gradient, figures = optimizer.gradient, found[0][1]
        gradient.copy_(found[0][0])
        for some_gradient, some_figures in found[1:]:
            gradient += some_gradient
            figures += some_figures
        norm = gradient.norm()
        if ppo.max_grad_norm:
            gradient.mul_((ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        if self.job.config.run.nan_guard:
            # A bad gradient moves nothing, so that the weights stay good; reported at the end.
            gradient.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step(learning_rate)
        return torch.cat([figures, norm.unsqueeze(0)])

    def _loss(self, index: Tensor, advantage: Tensor, data: list[Tensor], clip: float) -> Loss:
        ppo = self.job.config.ppo
        # index_select: three times as fast as indexing with [index].
        samples = [x.index_select(0, index) for x in data[:-1]]
        obs, action, old_log_prob, target, old_value = samples
        head, value = self.job.policy(obs)
        log_prob, entropy = self.job.distribution.evaluate(head, action)
        return ppo_loss(
            log_prob,
            entropy,
            value,
            old_log_prob,
            advantage,
            target,
            old_value,
            clip=clip,
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )

    def _check_update(self, figures: np.ndarray, iteration: int) -> None:
        """Raise `NonFiniteError` for the first minibatch whose loss or gradient was not finite."""
        bad = ~np.isfinite(figures)
        if not bad.any():
            return
        first = int(bad.any(1).nonzero()[0][0])
        if bad[first, :-1].any():
            name = _FIGURES[int(bad[first, :-1].argmax())]
            detail = f"{name} is {figures[first, _FIGURES.index(name)]} in minibatch {first}"
            raise NonFiniteError("loss", iteration, self._guilty_env(), detail)
        detail = f"its norm is {figures[first, -1]} in minibatch {first}, though the loss is finite"
        raise NonFiniteError("gradient", iteration, None, detail)

    def _guilty_env(self) -> int | None:
        """The first environment with a sample whose own loss is not finite, if there is one."""
        data = [tensor.to(self.job.device) for tensor in self.buffer.flat(*_DATA)]
        obs, action, old_log_prob, target, _, advantage = data
        for start in range(0, len(self.buffer), self.buffer.num_envs):
            index = torch.arange(start, start + self.buffer.num_envs, device=self.job.device)
            head, value = self.job.policy(obs[index])
            log_prob, entropy = self.job.distribution.evaluate(head, action[index])
            ratio = (log_prob - old_log_prob[index]).exp()
            loss = ratio * advantage[index] + entropy + (value - target[index]).square()
            bad = (~torch.isfinite(loss)).nonzero()
            if len(bad):
                return int(bad[0])
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


def depends_on_order(policy: nn.Module) -> bool:
    """Whether a policy has modules whose results depend on the order of the slices: dropout draws
    from one generator, batch normalisation keeps running statistics."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return any(isinstance(module, kinds) for module in policy.modules())
