"""PPO on a GPU by kernels of our own: rollouts and updates whose activations never leave the chip.

For multilayer perceptrons of `operant.models` on environments of the ``cuda`` backend. Parameters,
optimiser and rollout stay where they are, in PyTorch's memory: checkpoints, evaluation, export,
callbacks and other engines see what they always see. The kernels are in
`operant.ppo.kernels.triton`; for bf16 on Hopper GPUs, those of the rollout and of the update in
`operant.ppo.kernels.hopper`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operant.ppo.engines.fused_gpu_layout import FusedLayout
from operant.ppo.engines.fused_gpu_rollout import FusedRollout
from operant.ppo.engines.fused_scope import Parts, check_memory_of, check_training_of
from operant.ppo.engines.gpu_memory import RECENT, GpuMemory
from operant.ppo.engines.gpu_program import (
    begin_epoch,
    begin_update,
    end_epoch,
    estimate_advantages,
    explain_variance,
    step_results,
)
from operant.ppo.engines.side_streams import SideStreams
from operant.ppo.kernels.hopper.hopper_update import HopperUpdate
from operant.ppo.kernels.triton.adam import State, adam_step, adding_programs
from operant.ppo.kernels.triton.copies import Copies
from operant.ppo.kernels.triton.episodes import last_episodes
from operant.ppo.kernels.triton.moments import SPLIT, advantage_moments
from operant.ppo.kernels.triton.networks import addresses
from operant.ppo.kernels.triton.rows import pack_rows
from operant.ppo.kernels.triton.samples import pack_samples
from operant.ppo.kernels.triton.update import SUMS, UpdateArrays, train_tiles
from operant.ppo.kernels.triton.weights import pack_weights
from operant.vector.gpu_env import Results


class FusedProgram:
    """See `GpuProgram`.

    An update leaves the weights and the statistics where the next rollout reads them, and a rollout
    the number of the next step: so `restart` is for rollouts before which someone may have changed
    something.
    """

    restarts = True
    checks_whole_rollout = False
    fixed_addresses = True

    def __init__(self, memory: GpuMemory, layout: FusedLayout) -> None:
        self.memory, self._layout = memory, layout
        job, ppo, nets = memory.job, memory.job.config.ppo, layout.networks
        self._shapes = {id(p): tuple(p.shape) for p in job.optimizer.parameters}
        self._layers = [type(layer) for layer in layout.policy.modules()]
        jobs, programs = ppo.epochs * ppo.minibatches, layout.programs()
        full = memory.zeros(nets.size)
        low = full
        if layout.precision == "bf16":
            low = memory.zeros(nets.size, dtype=torch.bfloat16)
        self._step = self._new_step(full, low)
        part, first = layout.head_columns(nets.actor)
        self.arrays = UpdateArrays(
            samples=self._new_samples(),
            low=low,
            full=full,
            statistics=memory.zeros(2, layout.columns.numbers),
            one_hot=layout.one_hot(nets.actor.inputs),
            parts=part,
            firsts=first,
            moments=memory.zeros(jobs, 2),
            keys=memory.keys.gpu,
            clip=memory.rates.gpu[1:2],
            gradients=memory.zeros(programs, nets.size),
            sums=memory.zeros(programs, SUMS),
        )
        self.rollout = FusedRollout(memory, layout, self.arrays)
        last, own = step_results(memory, ppo.num_steps - 1)[:-1], memory.env.buffers
        self._take_over = Copies([own[name] for name in Results._fields[:-1]], last)
        self._moment_parts = memory.zeros(jobs, 2, SPLIT, dtype=torch.float64)
        self._launches = layout.network_launches()
        self._hopper_update = None
        if layout.hopper:
            self._hopper_update = HopperUpdate(layout.hopper_plan(), memory.device)
        self._streams = SideStreams(memory.device)

    def _new_step(self, full: Tensor, low: Tensor) -> State:
        """What Adam's kernel is told."""
        memory, adam, nets = self.memory, self.memory.job.optimizer, self._layout.networks
        return State(
            addresses=addresses(adam.parameters, memory.device),
            places=torch.from_numpy(nets.places).to(memory.device),
            numbers=torch.from_numpy(nets.numbers).to(memory.device),
            full=full,
            low=low,
            gradient=adam.gradient,
            squares=memory.zeros(adding_programs(nets.size)),
            exp_avg=adam.exp_avg,
            exp_avg_sq=adam.exp_avg_sq,
            rate=memory.rates.gpu[0:1],
            taken=memory.steps_taken,
            active=memory.active,
        )

    def _new_samples(self) -> Tensor:
        dtype = torch.int32 if self._layout.hopper else torch.float32
        return self.memory.zeros(len(self.memory.buffer), self._layout.sample_words(), dtype=dtype)

    @property
    def precision(self) -> str:
        """See `GpuProgram`."""
        return self._layout.precision

    # the policy -----------------------------------------------------------------------------
    def connect(self) -> None:
        """See `GpuProgram`."""
        self._known = Parts.of(self._layout.policy)
        self._check(self._known)  # before anything is written to other memory
        parameters = self.memory.job.optimizer.parameters
        self._step.addresses.copy_(addresses(parameters, self.memory.device))

    def check_policy(self) -> None:
        """See `GpuProgram`."""
        self._known = Parts.of(self._layout.policy)
        self._check(self._known)
        check_training_of(self._known)

    def _check(self, policy: Parts) -> None:
        """Raise ValueError unless the policy is the one that kernels were made for."""
        check_memory_of(policy, self._shapes, self._step.gradient.device)
        if not all(parameter.is_contiguous() for parameter in policy.parameters):
            raise ValueError("a parameter of the policy is no longer contiguous in memory")
        if [type(layer) for layer in policy.layers] != self._layers:
            raise ValueError("the policy's layers were replaced by others; make a new PPO")

    def set_mode(self, training: bool) -> None:
        """Set the mode that callbacks see, without the time that ``policy.train()`` takes. Layers
        of these policies do the same in either."""
        for layer in self._known.layers:
            vars(layer)["training"] = training

    # collect --------------------------------------------------------------------------------
    def restart(self) -> None:
        """See `GpuProgram`."""
        self.memory.step.send()
        self._read_statistics()
        self._read_weights()

    @torch.no_grad()
    def collect(self) -> None:
        """See `GpuProgram`."""
        memory, b, streams = self.memory, self.memory.buffer, self._streams
        with streams.beside(1):
            memory.keys.send()
        self.rollout()
        with streams.beside():
            last_episodes(b.terminated, b.truncated, b.report, RECENT, memory.recent)
        with streams.beside(1):
            memory.step.gpu += b.num_steps
        self._take_over()
        if memory.job.config.run.nan_guard:
            torch.sum(self.rollout.hints, 0, dtype=torch.float64, out=memory.checks[0])
        streams.join()

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """See `GpuProgram`."""
        with self._streams.beside():  # what an update needs, and does not wait for advantages
            begin_update(self.memory)
            self._read_weights()
        estimate_advantages(self.memory)
        self._streams.join()

    # update ---------------------------------------------------------------------------------
    def update(self) -> None:
        """See `GpuProgram`."""
        memory, job, ppo = self.memory, self.memory.job, self.memory.job.config.ppo
        arrays, adam, streams = self.arrays, self.memory.job.optimizer, self._streams
        with streams.beside():  # arithmetic, beside what waits for memory
            if ppo.normalize_advantage:
                flat, parts = memory.buffer.advantage.view(-1), self._moment_parts
                advantage_moments(flat, memory.keys.gpu, ppo.minibatches, parts, arrays.moments)
        with streams.beside(1):
            memory.rates.send()
            explain_variance(memory)
        self._read_statistics()
        self._pack_samples()
        streams.join()
        row = 0
        for _ in range(ppo.epochs):
            begin_epoch(memory)
            for _ in range(ppo.minibatches):
                self._train_networks(row)
                adam_step(
                    self._step,
                    arrays.gradients,
                    arrays.sums,
                    memory.figures[row],
                    eps=adam.eps,
                    betas=adam.betas,
                    max_norm=ppo.max_grad_norm,
                    guard=job.config.run.nan_guard,
                    early=self._layout.hopper,
                )
                row += 1
            end_epoch(memory, row)
        if job.obs_normalizer is not None:
            job.obs_normalizer.update(memory.buffer.flat("obs")[0])
            self._read_statistics()

    def _pack_samples(self) -> None:
        layout, arrays, buffer = self._layout, self.arrays, self.memory.buffer
        constants = layout.constants()
        if not layout.hopper:
            pack_samples(buffer, layout.columns, arrays.samples)
            return
        options = {"ONES": layout.networks.actor.ones}
        options |= {name: constants[name] for name in ("ONE_HOT", "LIMIT")}
        pack_rows(
            buffer, layout.columns, arrays.statistics, arrays.one_hot, options, arrays.samples
        )

    def _train_networks(self, minibatch: int) -> None:
        """Launch the kernels of a minibatch; those of two networks side by side."""
        a = self.arrays
        if self._hopper_update is not None:
            given = (a.samples, a.low, a.full, a.moments, a.keys, a.clip, a.gradients, a.sums)
            self._hopper_update(*given, minibatch)
            return
        first, *others = self._launches
        with self._streams.beside():
            for launch in others:
                train_tiles(a, *launch, minibatch)
        train_tiles(a, *first, minibatch)
        self._streams.join()

    def _read_weights(self) -> None:
        """Copy weights to where kernels read them; someone may have changed them."""
        step = self._step
        pack_weights(step.addresses, step.places, step.full, step.low)

    def _read_statistics(self) -> None:
        """The same for those of the normalisation."""
        normalizer = self.memory.job.obs_normalizer
        if normalizer is not None:
            self.arrays.statistics[0].copy_(normalizer.mean)
            self.arrays.statistics[1].copy_(normalizer.scale())
