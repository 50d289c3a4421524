"""The `fused` engine on the CPU: compiled rollouts and updates that stay in a core's cache.

For multilayer perceptrons of `operant.models` on compiled environments. Parameters, optimiser and
rollout stay where they are, in PyTorch's and the buffer's memory: checkpoints, evaluation, export,
callbacks and other engines see what they always see. The kernels are in
`operant.ppo.kernels.cpu`.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from operant.backends.cpu.kernels import NumbaBackend
from operant.compiler.spec.buffers import LANES
from operant.models.actor_critic import ActorCritic
from operant.models.distributions import Categorical, Gaussian, MultiCategorical
from operant.models.encoders import OneHot
from operant.ppo.engines.base import BaseEngine, check_memory
from operant.ppo.engines.figures import FIGURES
from operant.ppo.engines.fused_scope import (
    Parts,
    category_sizes,
    check_memory_of,
    check_training_of,
)
from operant.ppo.job import Job
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import parameter_layout as p
from operant.ppo.kernels.cpu.compilation import load_functions
from operant.ppo.kernels.cpu.kernel_arguments import KernelArguments
from operant.ppo.kernels.cpu.kernel_plan import KernelPlan, aligned
from operant.ppo.kernels.cpu.shuffle import ROUNDS, shuffle_keys
from operant.toolchain.machine import usable_cores
from operant.toolchain.team_size import TeamSize
from operant.training.episodes import Episodes
from operant.training.guard import check_action, check_rollout
from operant.training.threads import Threads
from operant.vector.base import NO_LIMIT
from operant.vector.env import VecEnv

TILE = 128
"""Samples that go through the networks at once, at most: with 64 neurons a layer, 32 kB for each
layer. Between 64 and 512 an update took the same time within 10 %, for 32 to 256 neurons."""
CHUNKS = 32
"""Parts of a minibatch that threads share, at most."""
LEAST_TILE = 16
"""Games in C that a thread plays together, at least: the longest vector. Others are stepped by
`operant.compiler.spec.buffers.LANES`."""


class FusedEngine(BaseEngine):
    """See `operant.ppo.job.Engine`."""

    name = "fused"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        asked = job.config.run.threads
        self._size = self._players = TeamSize(asked or usable_cores(), asked > 0)
        if job.env.backend == "native":
            # A step of a game in C takes what it takes: threads that pay there may not in training.
            self._players = TeamSize(self._size.most, asked > 0)
        self._threads = Threads(self._size.most)
        self._arguments = KernelArguments()
        self._set_networks()
        self._set_actions()
        self._set_inputs()
        self._set_samples()
        self._set_optimizer()
        self._set_functions()

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
        """The rollout, and memory for what finishes in it and for its packed samples."""
        job, arguments, arrays, plan = self.job, self._arguments, self.buffer.arrays, self._plan
        steps, envs = self.buffer.num_steps, self.buffer.num_envs
        self._env_tile = tile = self._games_at_once(envs)
        tiles = -(-envs // tile)
        limit = job.env.describe().max_episode_steps
        finals = tile * (1 + (steps - 1) // (limit or NO_LIMIT))
        one_hot = arguments["encoding"] == n.ONE_HOT
        known = arguments["input_size"] if one_hot else plan.x_row
        row = -(-(known + plan.parts + n.DATA_ROWS + plan.mask_rows) // 16) * 16
        check_memory(steps * envs * (4 * row + 24), f"{steps} steps of {envs}")
        arguments.set(
            **arrays,
            steps=steps,
            envs=envs,
            env_tiles=tiles,
            env_lanes=1 if job.env.backend == "native" else LANES,
            seed_low=job.config.run.seed & 0xFFFFFFFF,
            seed_high=job.config.run.seed >> 32,
            episode_capacity=steps * tile,
            episode_index=np.zeros(tiles * steps * tile, np.int64),
            episode_return=np.zeros(tiles * steps * tile, np.float32),
            episode_length=np.zeros(tiles * steps * tile, np.int32),
            episode_cut=np.zeros(tiles * steps * tile, np.bool_),
            episode_counts=np.zeros(tiles, np.int64),
            final_capacity=finals,
            final_obs=np.zeros((tiles * finals, *arrays["obs"].shape[2:]), arrays["obs"].dtype),
            final_index=np.zeros(tiles * finals, np.int64),
            final_counts=np.zeros(tiles, np.int64),
            bad=np.zeros(tiles, np.int64),
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
        tiles = -(-count // ppo.minibatches) // TILE
        chunks = min(max(tiles // 2, 1), CHUNKS)
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

    def _set_functions(self) -> None:
        """The compiled functions, and where those are that others call."""
        arguments = self._arguments
        kind = "categorical" if arguments["action_kind"] == n.CATEGORICAL else "gaussian"
        same = ("forward", "backward", "encode", "store_step", "order_chunk", "finish")
        called = {name: name for name in same}
        called |= {"sample": f"sample_{kind}", "loss": f"loss_{kind}"}
        if arguments["encoding"] == n.ONE_HOT:
            called["expand_one_hot"] = "expand_one_hot"
        run = ("pack", "collect", "estimate_advantages", "train_epoch")
        self._functions = load_functions([*called.values(), *run])
        arguments.set(**{name: self._functions[made].address for name, made in called.items()})

    # collect --------------------------------------------------------------------------------
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`."""
        arguments, buffer, job = self._arguments, self.buffer, self.job
        job.policy.eval()  # for those who look at it: nothing here depends on the mode
        env = job.env
        assert isinstance(env, VecEnv)
        with env.in_use():
            compiled = self._connect_env(step)
            self._pack()
            for name in ("episode_counts", "final_counts", "bad"):
                arguments.arrays[name][:] = 0
            buffer.start(compiled.arrays["obs"][: buffer.num_envs])
            began = time.perf_counter()
            self._run("collect", self._env_tile)
            if self._players is not self._size:
                self._players.took(time.perf_counter() - began)
            compiled.state_changed()
            compiled.check()
        self._keep_finals()
        self._check_numbers()
        if job.config.run.nan_guard and self._is_bad():
            if buffer.action.dtype.is_floating_point:
                for step in range(buffer.num_steps):
                    check_action(buffer.action[step], iteration, step)
            check_rollout(buffer, iteration)
        return self._episodes()

    def _check_numbers(self) -> None:
        """Raise ValueError for an observation that the one-hot vectors do not have."""
        encode, obs = self._plan.policy.encode, self.buffer.arrays["obs"]
        if not isinstance(encode, OneHot):
            return
        low, size = np.array(encode.starts), np.array(encode.sizes)
        for seen in (obs.reshape(*obs.shape[:2], -1), self.buffer.final_obs.reshape(-1, len(low))):
            bad = ((seen < low) | (seen >= low + size)).any(-1)
            if bad.any():
                place = tuple(np.argwhere(bad)[0])
                env = place[1] if len(place) > 1 else self.buffer.final_place[place] % obs.shape[1]
                space = self.job.env.single_observation_space
                raise ValueError(
                    f"environment {env} shows {seen[place].tolist()}, which is not in {space}"
                )

    def _is_bad(self) -> bool:
        """Whether a number of the rollout is not finite: kernels looked at what steps brought."""
        ends = (self.buffer.arrays["obs"][0], self.buffer.final_obs)
        found = bool(self._arguments.arrays["bad"].any())
        return found or not all(np.isfinite(x).all() for x in ends)

    def _connect_env(self, step: int) -> NumbaBackend:
        """Show the kernels where the environments are."""
        env, arguments = self.job.env, self._arguments
        assert isinstance(env, VecEnv)
        compiled = env.compiled
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
            first_step=step,
        )
        if "action_mask" in arrays:
            arguments.set(env_action_mask=arrays["action_mask"])
        return compiled

    def _pack(self) -> None:
        """Show the kernels the parameters and statistics as they are now."""
        self._check_policy()
        self._arguments.set(parameters=self._plan.records())
        self._set_statistics()
        self._functions["pack"].ctypes(self._arguments.address)

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

    def _run(self, name: str, tile: int) -> None:
        """Let a team of threads run a function."""
        self._arguments.arrays["control"][:] = 0
        self._arguments.set(tile=tile)
        function, address = self._functions[name].ctypes, self._arguments.address
        threads = self.rollout_threads if name == "collect" else self.threads
        self._threads.map(lambda worker: function(worker, address), range(threads))

    def _keep_finals(self) -> None:
        """Hand the final observations over to the buffer, in order of their ends."""
        a = self._arguments.arrays
        chosen = _listed(a["final_counts"], _most(a["final_index"], a["final_counts"]))
        order = chosen[np.argsort(a["final_index"][chosen])]
        self.buffer.set_final_obs(a["final_index"][order], a["final_obs"][order])

    def _episodes(self) -> Episodes:
        a = self._arguments.arrays
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

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages and pack the samples."""
        self.normalize_rewards()
        self._set_statistics()  # a callback may have changed them
        self._run("estimate_advantages", self._env_tile)

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
        for keys in shuffle_keys(job.config.run.seed, iteration, ppo.epochs):
            arguments.set(keys=keys)
            began = time.perf_counter()
            self._run("train_epoch", TILE)
            self._size.took(time.perf_counter() - began)
            rows.append(results.copy())
            if ppo.target_kl and results[:, FIGURES.index("kl")].mean() > ppo.target_kl:
                break
        job.optimizer.count = int(rates[p.COUNT])
        found = self.report(np.concatenate(rows), iteration)
        if job.obs_normalizer is not None:
            job.obs_normalizer.update(self.buffer.flat("obs")[0])
        found["explained_variance"] = self.explained_variance()
        return found


def _most(array: np.ndarray, counts: np.ndarray) -> int:
    """Entries that a tile has memory for."""
    return len(array) // len(counts)


def _listed(counts: np.ndarray, most: int) -> np.ndarray:
    """Where the entries are that each tile noted: the first `counts` of its `most`."""
    return np.concatenate([np.arange(k * most, k * most + count) for k, count in enumerate(counts)])
