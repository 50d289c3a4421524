"""The `eager` engine: PyTorch as written. The readable reference; every device, env and policy.

Time-major ``[T, N]``. Environments run on the CPU; on a GPU only the networks do. Compiled
environments on a GPU have an `eager` of their own (`gpu_builders`), those of others as well
(`eager_device`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from operant.buffers.frame_rollout import FrameRollout
from operant.models.distributions import masked
from operant.ppo.engines.base import BaseEngine, keep_ends
from operant.ppo.engines.double_buffered import DoubleBuffered, steps_in_parts
from operant.ppo.engines.figures import DATA, FIGURES
from operant.ppo.job import Job
from operant.ppo.loss import Loss, normalized, ppo_loss
from operant.toolchain.machine import usable_cores
from operant.training.episodes import Episodes
from operant.training.guard import check_action, check_rollout
from operant.training.noise import fill_uniforms, shuffled
from operant.training.threads import Threads, keep_freed_memory

SLICE = 4096
"""Samples that go through the networks at once on a CPU, so that activations stay in its caches."""
IMAGE_SLICE = 256
"""The same for networks with convolutions, whose activations are many times larger: a gradient of
`SmallCNN` on 10 x 10 x 4 took one core of a 2-core Xeon 16 us a sample so, 25 with `SLICE`."""


class EagerEngine(BaseEngine):
    """See `operant.ppo.job.Engine`."""

    name = "eager"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        steps, envs = job.config.ppo.num_steps, job.env.num_envs
        self._noise = np.empty((steps, envs, job.distribution.noise_size), np.float32)
        on_cpu = job.device.type == "cpu"
        self._slice = slice_for(job.policy) if on_cpu else 0
        if on_cpu:
            keep_freed_memory()
        one = not on_cpu or depends_on_order(job.policy)
        self.threads = 1 if one else job.config.run.threads or usable_cores()
        """Threads that train."""
        self._threads = Threads(self.threads)
        self._halves: DoubleBuffered | None = None
        self._bonus_target: Tensor | None = None
        if not on_cpu and steps_in_parts(job.env) and not isinstance(self.buffer, FrameRollout):
            self._halves = DoubleBuffered(job, steps)
            self.parts = self._halves.parts

    # collect --------------------------------------------------------------------------------
    @torch.inference_mode()
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        job, buffer, device = self.job, self.buffer, self.job.device
        job.policy.eval()
        fill_uniforms(self._noise, job.config.run.seed, step)
        episodes = (
            self._play(iteration)
            if self._halves is None
            else self._halves.collect(self._noise, buffer, self.before_step)
        )
        buffer.last_value[:] = job.value(buffer.obs[-1].to(device))
        buffer.fill_final_values(lambda final_obs: job.value(final_obs.to(device)))
        if job.config.run.nan_guard:
            check_rollout(buffer, iteration)
        return episodes

    def _play(self, iteration: int) -> Episodes:
        """Step all environments together, with what the policy answers."""
        buffer, job = self.buffer, self.job
        env, dist, device = job.env, job.distribution, job.device
        noise = torch.from_numpy(self._noise)
        finished: list[tuple[np.ndarray, ...]] = []
        rows_rest = buffer.live is not None
        env.write_obs(buffer.start())
        for t in range(buffer.num_steps):
            self.before_step(0, t)
            head, value = job.forward(buffer.obs[t].to(device))
            if rows_rest:
                buffer.arrays["live"][t] = env.live_rows()
            if job.mask_size:
                allowed = env.action_masks()
                buffer.arrays["action_mask"][t] = allowed
                head = masked(head, buffer.action_mask[t].to(device))
            action, log_prob = dist.sample(head, noise[t].to(device))
            buffer.action[t] = action
            buffer.log_prob[t] = log_prob
            buffer.value[t] = value
            try:
                ends = env.write_step(dist.to_env(action).cpu().numpy(), buffer.step_memory(t))
            except ValueError:
                check_action(action, iteration, t)  # is it the policy's fault?
                raise
            if ends is not None:
                finished.append(keep_ends(buffer, t, ends))
        return Episodes.joined(finished)

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages."""
        self.normalize_rewards()
        ppo = self.job.config.ppo
        self.buffer.compute_advantages(ppo.gamma, ppo.gae_lambda)
        self._scale_values()
        self._add_stream()

    @torch.no_grad()
    def _scale_values(self) -> None:
        """Let values follow the scale of their targets, if the policy does that; of several tasks
        the advantages as well, or those of the largest would be all that counts."""
        job, buffer, scale = self.job, self.buffer, self.job.value_scale
        if scale is None:
            return
        obs, target = buffer.flat("obs", "target")
        task = None if scale.tasks == 1 else job.task_of(obs)
        target, device = target.to(job.device), job.device
        task = None if task is None else task.to(device)
        counted = buffer.live_samples()
        if counted is None:
            scale.update(target, task)
        elif len(counted):
            index = torch.from_numpy(counted).to(device)
            scale.update(target[index], None if task is None else task[index])
        if task is not None:
            buffer.advantage /= (
                scale.deviation()[task].view(buffer.advantage.shape).to(buffer.advantage)
            )

    @torch.no_grad()
    def _add_stream(self) -> None:
        """Add the advantages of bonuses that have values of their own."""
        job, buffer = self.job, self.buffer
        if buffer.intrinsic is None:
            return
        for t in range(buffer.num_steps + 1):
            found = job.intrinsic_value(buffer.obs[t].to(job.device))
            buffer.intrinsic.value[t] = found
        goes_on = None if buffer.live is None else torch.as_tensor(job.env.live_rows())
        buffer.intrinsic.add_to(buffer.advantage, buffer.live, goes_on)

    # update ---------------------------------------------------------------------------------
    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Epochs over shuffled minibatches; see `Engine`."""
        job, ppo = self.job, self.job.config.ppo
        job.policy.train()
        data = [tensor.to(job.device) for tensor in self.buffer.flat(*DATA)]
        stream = self.buffer.intrinsic
        self._bonus_target = None if stream is None else stream.target.flatten().to(job.device)
        counted = self.buffer.live_samples()
        if counted is not None and not len(counted):  # every row rested through the rollout
            return dict.fromkeys((*FIGURES, "explained_variance"), float("nan")) | {"epochs": 0.0}
        rows: list[Tensor] = []
        for epoch in range(ppo.epochs):
            minibatches = self._minibatches(iteration, epoch, counted)
            rows += [self._train_on(index, data, learning_rate, clip) for index in minibatches]
            if ppo.target_kl:
                kl = torch.stack(rows[-len(minibatches) :])[:, 3].mean().item()
                if kl > ppo.target_kl:
                    break
        figures = torch.stack(rows).cpu().numpy()  # the only read, unless there is a target
        found = self.report(figures, iteration)
        found["epochs"] = epoch + 1.0
        if job.obs_normalizer is not None:
            seen = data[0] if counted is None else data[0][torch.from_numpy(counted).to(job.device)]
            job.obs_normalizer.update(seen)
        found["explained_variance"] = self.explained_variance()
        return found

    def _minibatches(
        self, iteration: int, epoch: int, counted: np.ndarray | None
    ) -> tuple[Tensor, ...]:
        """Shuffled samples in parts of about the same size; of those `counted`, if given."""
        count = len(self.buffer) if counted is None else len(counted)
        order = shuffled(count, self.job.config.run.seed, iteration, epoch)
        order = order if counted is None else counted[order]
        parts = min(self.job.config.ppo.minibatches, count)
        return torch.from_numpy(order).to(self.job.device).tensor_split(parts)

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
        obs, action, mask, old_log_prob, target, old_value = samples
        job, bonus_target = self.job, self._bonus_target
        if bonus_target is None:
            head, value = job.forward(obs)
        else:
            head, value, bonus_value = job.streams(obs)
        if mask.shape[1]:
            head = masked(head, mask)
        log_prob, entropy = job.distribution.evaluate(head, action)
        value, target, old_value = job.scaled(obs, value, target, old_value)
        loss = ppo_loss(
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
        if bonus_target is None:
            return loss
        error = (bonus_value - bonus_target.index_select(0, index)).square().mean()
        return loss._replace(total=loss.total + ppo.value_coef * 0.5 * error)


def slice_for(policy: nn.Module) -> int:
    """Samples that go through a policy at once on a CPU."""
    has_convolutions = any(isinstance(m, nn.modules.conv._ConvNd) for m in policy.modules())
    return IMAGE_SLICE if has_convolutions else SLICE


def depends_on_order(policy: nn.Module) -> bool:
    """Whether a policy has modules whose results depend on the order of the slices: dropout draws
    from one generator, batch normalisation keeps running statistics."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return any(isinstance(module, kinds) for module in policy.modules())
