"""The `fused` engine on the CPU: compiled rollouts and updates that stay in a core's cache.

For multilayer perceptrons of `operant.models`. Compiled environments are stepped by the kernels,
others by their batch, see `fused_cpu_rollout`. Parameters, optimiser and rollout stay where they
are, in PyTorch's and the buffer's memory: checkpoints, evaluation, export, callbacks and other
engines see what they always see. The kernels are in `operant.ppo.kernels.cpu`.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from operant.buffers.rollout import RolloutBuffer
from operant.models.actor_critic import ActorCritic
from operant.models.distributions import Categorical, Gaussian, MultiCategorical
from operant.models.encoders import OneHot
from operant.ppo.engines.base import BaseEngine, check_memory
from operant.ppo.engines.figures import FIGURES
from operant.ppo.engines.fused_cpu_rollout import (
    CompiledRollout,
    Rollout,
    SteppedRollout,
    obs_dtype,
)
from operant.ppo.engines.fused_cpu_shards import ShardedUpdate, chunks_of
from operant.ppo.engines.fused_scope import (
    Parts,
    category_sizes,
    check_memory_of,
    check_training_of,
)
from operant.ppo.engines.kernel_team import KernelTeam
from operant.ppo.job import Job
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import parameter_layout as p
from operant.ppo.kernels.cpu.kernel_plan import KernelPlan, aligned
from operant.ppo.kernels.cpu.shuffle import ROUNDS, shuffle_keys
from operant.toolchain.team_size import TeamSize
from operant.training.episodes import Episodes
from operant.vector.batch import compiled_batch

TILE = 128
"""Samples that go through the networks at once, at most: with 64 neurons a layer, 32 kB for each
layer. Between 64 and 512 an update took the same time within 10 %, for 32 to 256 neurons."""
LEAST_TILE = 16
"""Games in C that a thread plays together, at least: the longest vector. Others are stepped by
`operant.compiler.spec.buffers.LANES`."""


class FusedEngine(BaseEngine):
    """See `operant.ppo.job.Engine`."""

    name = "fused"

    def __init__(self, job: Job) -> None:
        stepped = compiled_batch(job.env) is None
        super().__init__(job, obs_dtype(job) if stepped else None)
        asked = job.config.run.threads
        self._size = self._players = TeamSize(job.most_threads, asked > 0)
        own_size = stepped or job.env.backend == "native"
        if own_size:
            # A step of a game in C takes what it takes: threads that pay there may not in training.
            # Nor do those pay for a policy's single step that pay in training.
            self._players = TeamSize(self._size.most, asked > 0)
        self._kernels = KernelTeam(self._size.most)
        self._arguments = self._kernels.arguments
        self._env_tile = self._games_at_once(self.buffer.num_envs)
        self._set_networks()
        self._set_actions()
        self._set_inputs()
        self._set_samples()
        self._set_optimizer()
        common = (job, self.buffer, self._kernels, self._env_tile, self._players)
        self._rollout: Rollout = (
            SteppedRollout(*common) if stepped else CompiledRollout(*common, own_size)
        )
        shards = None if job.shards.one else ShardedUpdate(job, self.buffer, self._kernels, TILE)
        self._shards = shards
        self._load_functions()

    def use(self, buffer: RolloutBuffer) -> None:
        """See `BaseEngine`."""
        super().use(buffer)
        self._arguments.set(**buffer.arrays)
        self._rollout.buffer = buffer

    @property
    def threads(self) -> int:
        """Threads that train, as far as is known by now."""
        return self._size.now

    @property
    def rollout_threads(self) -> int:
        """Threads that play, as far as is known by now."""
        return self._players.now

    # What kernels are told -------------------------------------------------------------------
    def _set_networks(self) -> None:
        """The networks, and scratch memory for every thread."""
        job, policy, dist = self.job, self.job.policy, self.job.distribution
        assert isinstance(policy, ActorCritic)
        parts, noise_blocks = int(np.prod(dist.action_shape)), -(-dist.noise_size // 4)
        mask_rows = -(-job.mask_size // n.MASK_BITS)
        self._plan = plan = KernelPlan(policy, TILE, parts, noise_blocks, mask_rows)
        plan.sort_parameters(job.optimizer.parameters)
        self._arguments.set(
            tile=TILE,
            nets=len(plan.nets),
            actor=plan.nets[0],
            critic=plan.nets[-1],
            value_row=policy.actor_head.out_features if policy.critic is None else 0,
            actor_outputs=policy.actor_head.out_features,
            activation=plan.activation,
            parameters=plan.records(),
            parameter_tensors=len(plan.parameters),
            weights=aligned(plan.weights.size, np.float32),
            log_std=plan.log_std,
            d_log_std=plan.d_log_std,
            scratch=aligned(plan.scratch.size * self._size.most, np.float32),
            scratch_size=plan.scratch.size,
            scratch_x=plan.x,
            scratch_noise=plan.noise,
            scratch_action=plan.action,
            scratch_data=plan.data,
            scratch_work=plan.work,
            scratch_options=plan.options,
            x_row=plan.x_row,
            parts=parts,
            noise_blocks=noise_blocks,
            mask_size=job.mask_size,
            mask_rows=mask_rows,
        )

    def _set_actions(self) -> None:
        """What the actor's outputs mean."""
        dist, arguments = self.job.distribution, self._arguments
        if isinstance(dist, Gaussian):
            by_state = self._plan.policy.actor_head.out_features == dist.head_size
            arguments.set(action_kind=n.GAUSSIAN_BY_STATE if by_state else n.GAUSSIAN)
            arguments.set(lows=dist.low.copy(), highs=dist.high.copy())
        else:
            assert isinstance(dist, Categorical | MultiCategorical)
            sizes, starts = category_sizes(dist)
            arguments.set(action_kind=n.CATEGORICAL, sizes=np.array(sizes), starts=np.array(starts))

    def _set_inputs(self) -> None:
        """How observations become inputs."""
        arguments, normalizer = self._arguments, self.job.obs_normalizer
        encode = self._plan.policy.encode
        numbers = self.buffer.arrays["obs"][0, 0].size
        words = numbers * self.buffer.obs.element_size() // 4
        arguments.set(input_size=numbers, obs_words=words, encoding=n.PLAIN, one_hot_parts=0)
        if isinstance(encode, OneHot):
            sizes, starts = np.array(encode.sizes), np.array(encode.starts)
            arguments.set(encoding=n.ONE_HOT, one_hot_parts=len(sizes))
            arguments.set(one_hot_sizes=sizes, one_hot_starts=starts)
        elif self.buffer.obs.dtype != torch.float32:
            arguments.set(encoding=n.WHOLE)
        arguments.set(normalize=normalizer is not None)
        if normalizer is not None:
            arguments.set(obs_limit=np.array([normalizer.clip], np.float32))

    def _set_samples(self) -> None:
        """The rollout, and memory for its packed samples."""
        job, arguments, arrays, plan = self.job, self._arguments, self.buffer.arrays, self._plan
        steps, envs = self.buffer.num_steps, self.buffer.num_envs
        one_hot = arguments["encoding"] == n.ONE_HOT
        known = arguments["input_size"] if one_hot else plan.x_row
        row = -(-(known + plan.parts + n.DATA_ROWS + plan.mask_rows) // 16) * 16
        check_memory(steps * envs * (4 * row + 24), f"{steps} steps of {envs}")
        arguments.set(
            **arrays,
            steps=steps,
            envs=envs,
            first_step=0,
            first_row=job.first_row,
            shards=1,
            env_tiles=-(-envs // self._env_tile),
            seed_low=job.config.run.seed & 0xFFFFFFFF,
            seed_high=job.config.run.seed >> 32,
            samples=aligned(steps * envs * row, np.float32),
            sample_row=row,
            sample_data=known,
            traces=np.zeros(envs, np.float32),
            discounts=np.array([job.config.ppo.gamma, job.config.ppo.gae_lambda], np.float32),
        )

    def _games_at_once(self, envs: int) -> int:
        """Environments in a tile. What they play does not depend on it."""
        most = 64 if envs < 1024 else TILE
        if self.job.env.backend != "native":
            return most
        return min(most, -(-envs // (LEAST_TILE * self._size.most)) * LEAST_TILE)

    def _set_optimizer(self) -> None:
        """Minibatches, gradients and Adam's memory."""
        job, arguments, plan, ppo = self.job, self._arguments, self._plan, self.job.config.ppo
        adam, count = job.optimizer, len(self.buffer)
        chunks = chunks_of(count, ppo.minibatches, TILE)
        options = np.zeros(n.OPTIONS, np.float32)
        options[n.VALUE_CLIP], options[n.VALUE_COEF] = ppo.value_clip, ppo.value_coef
        options[n.ENTROPY_COEF] = ppo.entropy_coef
        options[n.NORMALIZE_ADVANTAGE] = ppo.normalize_advantage
        rates = np.zeros(8)
        rates[p.BETA1], rates[p.BETA2] = adam.betas
        rates[p.EPSILON], rates[p.MAX_NORM] = adam.eps, ppo.max_grad_norm
        rates[p.GUARD] = job.config.run.nan_guard
        arguments.set(
            minibatches=ppo.minibatches,
            chunks=chunks,
            order=np.zeros(count, np.int32),
            keys=np.zeros(2 * ROUNDS, np.uint64),
            moments=np.zeros(n.MOMENTS * ppo.minibatches * chunks),
            gradients=aligned(plan.gradient.size * chunks, np.float32),
            gradient_size=plan.gradient.size,
            metric_sums=np.zeros(n.METRIC_COUNT * chunks),
            results=np.zeros((ppo.minibatches, n.METRIC_COUNT + 1)),
            flat=adam.gradient.numpy(),
            exp_avg=adam.exp_avg.numpy(),
            exp_avg_sq=adam.exp_avg_sq.numpy(),
            flat_size=adam.gradient.numel(),
            rates=rates,
            option_values=options,
            control=aligned(n.LINE * (4 + 2 * ppo.minibatches), np.int64),
        )

    def _load_functions(self) -> None:
        """The compiled functions, and where those are that others call."""
        arguments, rollout = self._arguments, self._rollout
        kind = "categorical" if arguments["action_kind"] == n.CATEGORICAL else "gaussian"
        same = ("forward", "backward", "encode", "order_chunk", "finish", *rollout.called)
        called = {name: name for name in same}
        called |= {"sample": f"sample_{kind}", "loss": f"loss_{kind}"}
        if arguments["encoding"] == n.ONE_HOT:
            called["expand_one_hot"] = "expand_one_hot"
        train = ("train_epoch",) if self._shards is None else self._shards.functions
        run = ("pack", "estimate_advantages", *train, *rollout.functions)
        self._kernels.load([*called.values(), *run])
        functions = self._kernels.functions
        arguments.set(**{name: functions[made].address for name, made in called.items()})

    # collect --------------------------------------------------------------------------------
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        self.job.policy.eval()  # for those who look at it: nothing here depends on the mode
        self._arguments.set(first_step=step)
        self.before_step(0, 0)
        self._pack()
        return self._rollout.collect(iteration, self._renewed)

    def _renewed(self, t: int) -> None:
        """Show the kernels other weights, if there are such for step `t`."""
        if self.before_step(0, t):
            self._pack()

    def _pack(self) -> None:
        """Show the kernels the parameters and statistics as they are now."""
        self._check_policy()
        self._arguments.set(parameters=self._plan.records())
        self._set_statistics()
        self._kernels.call("pack")

    def _set_statistics(self) -> None:
        normalizer = self.job.obs_normalizer
        if normalizer is not None:
            mean, scale = normalizer.mean.to(torch.float32), normalizer.scale()
            self._arguments.set(obs_mean=mean.numpy(), obs_scale=scale.numpy())

    def _check_policy(self) -> None:
        """Raise ValueError if the policy is no longer what the kernels were told."""
        shapes = {id(layout.parameter): layout.shape for layout in self._plan.parameters}
        policy = Parts.of(self.job.policy)
        check_memory_of(policy, shapes, torch.device("cpu"))
        check_training_of(policy)

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages and pack the samples."""
        self.normalize_rewards()
        self._set_statistics()  # a callback may have changed them
        self._kernels.run("estimate_advantages", self._env_tile, self.threads)

    # update ---------------------------------------------------------------------------------
    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Epochs over shuffled minibatches; see `Engine`."""
        job, ppo, arguments = self.job, self.job.config.ppo, self._arguments
        rates, results = arguments.arrays["rates"], arguments.arrays["results"]
        job.policy.train()
        rates[p.RATE], rates[p.COUNT] = learning_rate, job.optimizer.count
        arguments.arrays["option_values"][n.CLIP] = clip
        self._pack()
        rows = []
        every = shuffle_keys(job.config.run.seed, iteration, ppo.epochs)
        for epoch in range(ppo.epochs):
            began = time.perf_counter()
            if self._shards is not None:
                self._shards.train(iteration, epoch, self.threads)
            else:
                arguments.set(keys=every[epoch])
                # More threads than chunks would only wait for each minibatch's end.
                self._kernels.run("train_epoch", TILE, min(self.threads, arguments["chunks"]))
            self._size.took(time.perf_counter() - began)
            rows.append(results.copy())
            if ppo.target_kl and results[:, FIGURES.index("kl")].mean() > ppo.target_kl:
                break
        job.optimizer.count = int(rates[p.COUNT])
        found = self.report(np.concatenate(rows), iteration)
        self.normalize_observations(self.buffer.flat("obs")[0])
        found["explained_variance"] = self.explained_variance()
        return found
