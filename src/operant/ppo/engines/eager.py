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
from operant.ppo.engines.base import NEWEST, BaseEngine, keep_ends
from operant.ppo.engines.double_buffered import DoubleBuffered, can_step_parts, steps_in_parts
from operant.ppo.engines.figures import DATA, FIGURES
from operant.ppo.engines.first_ready import MOST_GROUPS, FirstReady
from operant.ppo.job import Job
from operant.ppo.loss import Loss, normalized, ppo_loss
from operant.training.episodes import Episodes
from operant.training.guard import check_action, check_rollout
from operant.training.noise import fill_uniforms, shuffled
from operant.training.shards import merged_moments, moments
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
        self.threads = 1 if one else job.most_threads
        """Threads that train."""
        self._threads = Threads(self.threads)
        one_shard = job.shards.local == 1
        self._rows = [slice(None)] if one_shard else job.shards.rows(envs)
        self._halves: DoubleBuffered | FirstReady | None = None
        self._bonus_target: Tensor | None = None
        if not steps_in_parts(job.env) or isinstance(self.buffer, FrameRollout):
            return
        run = job.config.run
        if run.mode == "async" and run.max_lag:  # without lag it is as synchronous training is
            self.split(min(MOST_GROUPS, job.env.describe().workers))
        elif not on_cpu:
            self._halves = DoubleBuffered(job, steps)
            self.parts = self._halves.parts

    def split(self, parts: int) -> None:
        """See `BaseEngine`."""
        if parts == self.parts:
            return
        job = self.job
        if not can_step_parts(job.env) or isinstance(self.buffer, FrameRollout):
            super().split(parts)
            return
        self._halves = FirstReady(job, job.env, job.config.ppo.num_steps, parts)
        self.parts = parts

    # collect --------------------------------------------------------------------------------
    @torch.inference_mode()
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        job, buffer, device = self.job, self.buffer, self.job.device
        job.policy.eval()
        fill_uniforms(self._noise, job.config.run.seed, step, job.first_row)
        episodes = (
            self._play(iteration)
            if self._halves is None
            else self._halves.collect(self._noise, buffer, self.before_step)
        )
        self.before_step(NEWEST, buffer.num_steps)
        last = buffer.obs[-1]
        for rows in self._rows:
            buffer.last_value[rows] = job.value(last[rows].to(device))
        buffer.fill_final_values(self._final_values)
        if job.config.run.nan_guard:
            check_rollout(buffer, iteration)
        return episodes

    def _final_values(self, final_obs: Tensor) -> Tensor:
        """Values ``[K]`` of the final observations, those of a shard together."""
        job, buffer = self.job, self.buffer
        if len(self._rows) == 1:
            return job.value(final_obs.to(job.device))
        found = torch.empty(len(final_obs))
        env = torch.from_numpy(buffer.final_place % buffer.num_envs)
        for rows in self._rows:
            own = ((env >= rows.start) & (env < rows.stop)).nonzero().flatten()
            if len(own):
                found[own] = job.value(final_obs[own])
        return found

    def _play(self, iteration: int) -> Episodes:
        """Step all environments together, with what the policy answers."""
        buffer, job = self.buffer, self.job
        env, dist = job.env, job.distribution
        noise = torch.from_numpy(self._noise)
        finished: list[tuple[np.ndarray, ...]] = []
        rows_rest = buffer.live is not None
        env.write_obs(buffer.start())
        for t in range(buffer.num_steps):
            self.before_step(0, t)
            if rows_rest:
                buffer.arrays["live"][t] = env.live_rows()
            if job.mask_size:
                buffer.arrays["action_mask"][t] = env.action_masks()
            action = self._act(t, noise[t])
            try:
                ends = env.write_step(dist.to_env(action).cpu().numpy(), buffer.step_memory(t))
            except ValueError:
                check_action(action, iteration, t)  # is it the policy's fault?
                raise
            if ends is not None:
                finished.append(keep_ends(buffer, t, ends))
        return Episodes.joined(finished)

    def _act(self, t: int, noise: Tensor) -> Tensor:
        """What the policy answers at step `t`, stored; the actions, on its device. A product of
        matrices rounds as its size has it, so a shard is answered by itself."""
        buffer, job, device = self.buffer, self.job, self.job.device
        obs, actions = buffer.obs[t], []
        for rows in self._rows:
            head, value = job.forward(obs[rows].to(device))
            if job.mask_size:
                head = masked(head, buffer.action_mask[t, rows].to(device))
            action, log_prob = job.distribution.sample(head, noise[rows].to(device))
            buffer.action[t, rows] = action
            buffer.log_prob[t, rows] = log_prob
            buffer.value[t, rows] = value
            actions.append(action)
        return actions[0] if len(actions) == 1 else torch.cat(actions)

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
            spreads = self._spreads(minibatches, data[-1])
            rows += [
                self._train_on(parts, spread, data, learning_rate, clip)
                for parts, spread in zip(minibatches, spreads, strict=True)
            ]
            if ppo.target_kl:
                kl = torch.stack(rows[-len(minibatches) :])[:, 3].mean().item()
                if kl > ppo.target_kl:
                    break
        figures = torch.stack(rows).cpu().numpy()  # the only read, unless there is a target
        found = self.report(figures, iteration)
        found["epochs"] = epoch + 1.0
        self.normalize_observations(data[0], counted)
        found["explained_variance"] = self.explained_variance()
        return found

    def _minibatches(
        self, iteration: int, epoch: int, counted: np.ndarray | None
    ) -> list[tuple[Tensor, ...]]:
        """Shuffled samples in minibatches of about the same size, each in the parts that it has of
        this rank's shards; of the samples `counted`, if given."""
        shards, seed, num_envs = self.job.shards, self.job.config.run.seed, self.buffer.num_envs
        count = (len(self.buffer) if counted is None else len(counted)) // shards.local
        parts = min(self.job.config.ppo.minibatches, count)
        by_shard = []
        for k in range(shards.local):
            order = shuffled(count, seed, iteration, epoch, shards.first + k)
            order = order if counted is None else counted[order]
            if shards.local > 1:
                step, env = np.divmod(order, num_envs // shards.local)
                order = step * num_envs + k * (num_envs // shards.local) + env
            by_shard.append(torch.from_numpy(order).to(self.job.device).tensor_split(parts))
        return list(zip(*by_shard, strict=True))

    def _spreads(
        self, minibatches: list[tuple[Tensor, ...]], advantage: Tensor
    ) -> list[Tensor | None]:
        """Mean and deviation of each minibatch's advantages over all shards, float32 ``[2]``; None
        where they are not wanted, or there is but one shard."""
        shards = self.job.shards
        if shards.one or not self.job.config.ppo.normalize_advantage:
            return [None] * len(minibatches)
        parts = [
            torch.stack([moments(advantage[parts[k]]) for parts in minibatches], 1)
            for k in range(shards.local)
        ]
        count, mean, m2 = shards.total(parts, merged_moments)
        return list(torch.stack([mean, (m2 / count).sqrt()], 1).float())

    def _train_on(
        self,
        by_shard: tuple[Tensor, ...],
        spread: Tensor | None,
        data: list[Tensor],
        learning_rate: float,
        clip: float,
    ) -> Tensor:
        """One optimiser step on the samples ``[B]`` of each shard; figures ``[6]``."""
        ppo, optimizer = self.job.config.ppo, self.job.optimizer
        total = sum(map(len, by_shard)) * self.job.shards.group.size
        slices: list[tuple[Tensor, Tensor]] = []
        lengths = []
        for index in by_shard:
            advantage = data[-1].index_select(0, index)
            if spread is not None:
                advantage = (advantage - spread[0]) / (spread[1] + 1e-8)
            elif ppo.normalize_advantage:
                advantage = normalized(advantage)
            size = self._slice or len(index)
            own = zip(torch.split(index, size), torch.split(advantage, size), strict=True)
            slices += own
            lengths.append(-(-len(index) // size))

        def gradient_of(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            loss = self._loss(*part, data, clip)
            share = len(part[0]) / total
            pieces = torch.autograd.grad(
                loss.total * share, optimizer.parameters, materialize_grads=True
            )
            return torch.cat([piece.flatten() for piece in pieces]), torch.stack(loss[1:]) * share

        found = self._threads.map(gradient_of, slices)
        gradient, figures = optimizer.gradient, self._add_up(found, lengths)
        norm = gradient.norm()
        if ppo.max_grad_norm:
            gradient.mul_((ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        if self.job.config.run.nan_guard:
            # A bad gradient moves nothing, so that the weights stay good; reported at the end.
            gradient.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step(learning_rate)
        return torch.cat([figures, norm.unsqueeze(0)])

    def _add_up(self, found: list[tuple[Tensor, Tensor]], lengths: list[int]) -> Tensor:
        """Add up gradients and figures of slices, so many of each shard: writes the optimiser's
        gradient. In the order of the slices: the sum does not depend on the threads."""
        shards, gradient = self.job.shards, self.job.optimizer.gradient
        sums = []
        left = iter(found)
        for length in lengths:
            total, figures = next(left)
            if shards.one:
                total = gradient.copy_(total)
            for _ in range(length - 1):
                some_gradient, some_figures = next(left)
                total += some_gradient
                figures += some_figures
            sums.append((total, figures))
        if shards.one:
            return sums[0][1]
        whole = shards.total([torch.cat(pair) for pair in sums])
        gradient.copy_(whole[: len(gradient)])
        return whole[len(gradient) :]

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
