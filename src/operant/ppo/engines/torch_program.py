"""PPO on a GPU by PyTorch's operations: any policy, any environment of the ``cuda`` backend.

Run directly it is what `eager` means on a GPU; captured it is the `graph` engine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operant.ppo.engines.figures import DATA
from operant.ppo.engines.gpu_memory import RECENT, GpuMemory
from operant.ppo.engines.gpu_program import (
    begin_epoch,
    begin_update,
    end_epoch,
    estimate_advantages,
    explain_variance,
    step_results,
)
from operant.ppo.engines.torch_policy import TorchPolicy
from operant.ppo.job import Job
from operant.ppo.kernels.triton.episodes import last_episodes
from operant.ppo.kernels.triton.noise import fill_uniforms_triton
from operant.ppo.kernels.triton.order import fill_orders

VALUE_ROWS = 1 << 20
"""Observations whose values are computed at once."""


def torch_bytes_per_sample(job: Job) -> int:
    """What is not in the buffer: random numbers, and activations of a minibatch, roughly."""
    ppo = job.config.ppo
    widest = max((p.shape[0] for p in job.policy.parameters() if p.ndim > 1), default=1)
    numbers = 4 * job.distribution.noise_size + 4 * ppo.epochs
    return numbers + 16 * widest // ppo.minibatches


class TorchProgram:
    """See `GpuProgram`.

    Args:
        memory: with `torch_bytes_per_sample` to spare.
        preferred_precision: where the configuration leaves it open.
    """

    restarts = False
    checks_whole_rollout = True
    fixed_addresses = False

    def __init__(self, memory: GpuMemory, preferred_precision: str) -> None:
        self.memory, job = memory, memory.job
        self.policy = TorchPolicy(memory, preferred_precision)
        self.functions = self.policy.functions
        """What is called for each step and minibatch; may be compiled ones."""
        limit, steps = memory.env.max_episode_steps, job.config.ppo.num_steps
        self._finals = 0 if limit is None else 1 + (steps - 1) // limit
        self.noise = memory.zeros(steps, memory.env.num_envs, job.distribution.noise_size)
        self.orders = memory.zeros(job.config.ppo.epochs, len(memory.buffer), dtype=torch.int32)

    @property
    def precision(self) -> str:
        """See `GpuProgram`."""
        return self.policy.precision

    def connect(self) -> None:
        """See `GpuProgram`. PyTorch looks for tensors whenever it is called."""

    def check_policy(self) -> None:
        """See `GpuProgram`. Any will do."""

    def set_mode(self, training: bool) -> None:
        """See `GpuProgram`."""
        self.memory.job.policy.train(training)

    def restart(self) -> None:
        """See `GpuProgram`. A rollout does all that itself."""

    # collect --------------------------------------------------------------------------------
    @torch.no_grad()
    def collect(self) -> None:
        """See `GpuProgram`."""
        memory, job, buffer, env = self.memory, self.memory.job, self.memory.buffer, self.memory.env
        memory.step.send()
        fill_uniforms_triton(self.noise, job.config.run.seed, memory.step.gpu)
        self.policy.round_weights()
        own = env.buffers
        buffer.obs[0].copy_(own["obs"])
        buffer.action_mask[0].copy_(own["action_mask"])
        for t in range(buffer.num_steps):
            action = self.functions.act(
                buffer.obs[t],
                buffer.action_mask[t],
                self.noise[t],
                buffer.action[t],
                buffer.log_prob[t],
            )
            env.step_into(action, step_results(memory, t))
        env.take_over(step_results(memory, buffer.num_steps - 1))
        for rows, values in self._value_parts():
            values.copy_(self.functions.value(rows))
        if self._finals:
            self._collect_final_values()
        last_episodes(buffer.terminated, buffer.truncated, buffer.report, RECENT, memory.recent)
        if job.config.run.nan_guard:
            memory.checks[0] = self._sum_of_all()

    def _collect_final_values(self) -> None:
        """Values of the last observations of truncated episodes."""
        buffer = self.memory.buffer
        index, there = buffer.final_places(self._finals)
        seen = buffer.final_observations(index, there).flatten(0, 1)
        parts = torch.split(seen, VALUE_ROWS)
        final = torch.cat([self.functions.value(part) for part in parts])
        buffer.set_final_values(index, there, final.view_as(index))

    def _value_parts(self) -> list[tuple[Tensor, Tensor]]:
        """The observations of a rollout, the last ones too, and where their values go, in parts."""
        buffer = self.memory.buffer
        obs, values = buffer.obs.flatten(0, 1), buffer.values.flatten()
        parts = (torch.split(x, VALUE_ROWS) for x in (obs, values))
        return list(zip(*parts, strict=True))

    def _sum_of_all(self) -> Tensor:
        """A number that is not finite if one of the rollout is not. Only a hint: the sum of good
        numbers may overflow."""
        b = self.memory.buffer
        tensors = [b.values, b.log_prob, b.reward, b.final_value]
        tensors += [b.obs] if b.obs.is_floating_point() else []
        return torch.stack([x.sum(dtype=torch.float64) for x in tensors]).sum()

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """See `GpuProgram`."""
        estimate_advantages(self.memory)
        self._scale_values()
        self._add_stream()

    @torch.no_grad()
    def _scale_values(self) -> None:
        """Let values follow the scale of their targets, if the policy does that."""
        scale = self.memory.job.value_scale
        if scale is not None:
            scale.update(self.memory.buffer.target.flatten())

    @torch.no_grad()
    def _add_stream(self) -> None:
        """Add the advantages of bonuses that have values of their own."""
        buffer = self.memory.buffer
        if buffer.intrinsic is None:
            return
        obs, values = buffer.obs.flatten(0, 1), buffer.intrinsic.value.flatten()
        parts = (torch.split(x, VALUE_ROWS) for x in (obs, values))
        for rows, found in zip(*parts, strict=True):
            found.copy_(self.policy.intrinsic_value(rows))
        buffer.intrinsic.add_to(buffer.advantage)

    # update ---------------------------------------------------------------------------------
    def update(self) -> None:
        """See `GpuProgram`."""
        memory, ppo = self.memory, self.memory.job.config.ppo
        begin_update(memory)
        explain_variance(memory)
        memory.rates.send()
        memory.keys.send()
        fill_orders(self.orders, memory.keys.gpu)
        data = memory.buffer.flat(*DATA)
        if memory.buffer.intrinsic is not None:
            data.append(memory.buffer.intrinsic.target.flatten())
        row = 0
        for epoch in range(ppo.epochs):
            begin_epoch(memory)
            for index in self.orders[epoch].tensor_split(ppo.minibatches):
                self._train_on(index, data, memory.figures[row])
                row += 1
            end_epoch(memory, row)
        if memory.job.obs_normalizer is not None:
            memory.job.obs_normalizer.update(data[0])

    def _train_on(self, index: Tensor, data: list[Tensor], figures: Tensor) -> None:
        """One optimiser step on the samples `index` ``[B]``; writes `figures`, float64 ``[6]``."""
        total, some = self.functions.loss(index, *data)
        parameters = self.memory.job.optimizer.parameters
        pieces = torch.autograd.grad(total, parameters, materialize_grads=True)
        with torch.no_grad():
            self.functions.apply(list(pieces), some, figures)
