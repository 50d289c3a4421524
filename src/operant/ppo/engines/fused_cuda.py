"""The `fused` engine on the card: rollouts and updates whose activations never leave the chip.

For multilayer perceptrons of `operant.models` on environments of the ``cuda`` backend. Parameters,
optimiser and rollout stay where they are, in PyTorch's memory: checkpoints, evaluation, export,
callbacks and other engines see what they always see. The kernels are in
`operant.ppo.kernels.triton`; for bf16 on Hopper cards, those of the rollout and of the update in
`operant.ppo.kernels.hopper`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.compiler.spec.rules import traced
from operant.models.actor_critic import ActorCritic, OneHot
from operant.models.distributions import Categorical, Gaussian, MultiCategorical
from operant.ppo.engines.ahead import AheadEngine
from operant.ppo.engines.base import FIGURES
from operant.ppo.engines.device import RECENT
from operant.ppo.engines.fused_scope import (
    Parts,
    check_memory_of,
    check_training_of,
    why_not_bf16,
    widest_layer,
)
from operant.ppo.engines.graph import GraphEngine
from operant.ppo.guard import check_device_rollout
from operant.ppo.job import Episodes
from operant.ppo.kernels.hopper.hopper_rollout import HopperRollout
from operant.ppo.kernels.hopper.hopper_update import PANEL, HopperUpdate, update_source
from operant.ppo.kernels.hopper.hopper_update import UpdatePlan as Plan
from operant.ppo.kernels.hopper.rollout_source import launch_shape, rollout_source
from operant.ppo.kernels.triton.adam import State, adam_step, adding_programs
from operant.ppo.kernels.triton.copies import Copies
from operant.ppo.kernels.triton.episodes import last_episodes
from operant.ppo.kernels.triton.layers import NUMBERS
from operant.ppo.kernels.triton.moments import SPLIT, advantage_moments
from operant.ppo.kernels.triton.networks import LEAST, Network, Networks, addresses
from operant.ppo.kernels.triton.rollout_launch import rollout_kernel, rollout_options
from operant.ppo.kernels.triton.rollout_source import Acting
from operant.ppo.kernels.triton.rows import pack_rows, row_words
from operant.ppo.kernels.triton.samples import Columns, pack_samples
from operant.ppo.kernels.triton.update import CATEGORICAL as CHOICES
from operant.ppo.kernels.triton.update import (
    GAUSSIAN,
    GAUSSIAN_BY_STATE,
    SUMS,
    launch_options,
    train_tiles,
)
from operant.ppo.kernels.triton.update import UpdateArrays as Arrays
from operant.ppo.kernels.triton.weights import pack_weights
from operant.toolchain.gpus import is_hopper
from operant.vector.gpu_env import Results
from operant.vector.gpu_numbers import TritonVecEnv
from operant.version import __version__

PROGRAMS = 2
"""Programs of an update for each of the card's processors and networks."""


class FusedKernels(AheadEngine):
    """The engine without a graph: each kernel is launched when it is reached."""

    name = "fused"
    knows_addresses = True

    @property
    def precision(self) -> str:
        """Of the networks: by default bf16 if they are narrow enough for its kernels, else tf32."""
        asked = self.job.config.run.precision
        if asked != "auto":
            return asked
        return "tf32" if why_not_bf16(self._policy) else "bf16"

    def _set_up(self) -> None:
        job, ppo = self.job, self.job.config.ppo
        policy = self._policy
        self._shapes = {id(p): tuple(p.shape) for p in job.optimizer.parameters}
        self._layers = [type(layer) for layer in policy.modules()]
        nets = self._networks
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        jobs, programs = ppo.epochs * ppo.minibatches, self._programs()

        def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        full = new(nets.size)
        low = new(nets.size, dtype=dtype) if dtype == torch.bfloat16 else full
        self._step = State(
            addresses=addresses(job.optimizer.parameters, self.device),
            places=torch.from_numpy(nets.places).to(self.device),
            numbers=torch.from_numpy(nets.numbers).to(self.device),
            full=full,
            low=low,
            gradient=job.optimizer.gradient,
            squares=new(adding_programs(nets.size)),
            exp_avg=job.optimizer.exp_avg,
            exp_avg_sq=job.optimizer.exp_avg_sq,
            rate=self._rates[0:1],
            taken=self._taken,
            active=self._active,
        )
        part, first = self._head_columns(nets.actor)
        self._arrays = Arrays(
            samples=self._new_samples(),
            low=low,
            full=full,
            statistics=new(2, self._columns.numbers),
            one_hot=self._one_hot(nets.actor.inputs),
            parts=part,
            firsts=first,
            moments=new(jobs, 2),
            keys=self._keys,
            clip=self._rates[1:2],
            gradients=new(programs, nets.size),
            sums=new(programs, SUMS),
        )
        self._set_rollout()
        last, own = self._results(ppo.num_steps - 1)[:-1], self.env.buffers
        self._take_over = Copies([own[name] for name in Results._fields[:-1]], last)
        self._moment_parts = new(jobs, 2, SPLIT, dtype=torch.float64)
        self._launches = self._network_launches()
        self._hopper_update = None
        if self._hopper:
            self._hopper_update = HopperUpdate(self._hopper_plan(), self.device)
        if self.device.type == "cuda":
            self._sides = [torch.cuda.Stream(self.device) for _ in range(2)]  # type: ignore[no-untyped-call]
        self._apart: set[torch.cuda.Stream] = set()

    @cached_property
    def _hopper(self) -> bool:
        """Whether its kernels are those in CUDA C++ for Hopper."""
        return self.precision == "bf16" and is_hopper(self.device)

    @cached_property
    def _networks(self) -> Networks:
        """Where the policy's weights are put for the kernels."""
        policy = self._policy
        least = PANEL * (1 + (widest_layer(policy) > PANEL)) if self._hopper else LEAST
        return Networks(policy, self.job.optimizer.parameters, least)

    @cached_property
    def _columns(self) -> Columns:
        """What is in a sample."""
        actions = int(np.prod(self.job.distribution.action_shape))
        numbers = self.env.buffers["obs"][0].numel()
        return Columns.of(actions, self.job.mask_size, numbers, self.job.config.ppo.value_clip)

    def _sample_words(self) -> int:
        """32-bit words of a sample, as the update's kernel wants it."""
        columns = self._columns
        return row_words(self._networks.actor.ones, columns) if self._hopper else columns.row

    def _bytes_per_sample(self) -> int:
        return 4 * self._sample_words()

    def _new_samples(self) -> Tensor:
        dtype = torch.int32 if self._hopper else torch.float32
        shape = len(self.buffer), self._sample_words()
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _hopper_plan(self) -> Plan:
        choices = [] if isinstance(self.job.distribution, Gaussian) else self._choices()[0]
        outputs = self._policy.actor_head.out_features
        constants = self._constants()
        return update_source(self._networks, outputs, choices, constants, len(self.buffer))

    def _pack_samples(self) -> None:
        arrays, constants = self._arrays, self._constants()
        if not self._hopper:
            pack_samples(self.buffer, self._columns, arrays.samples)
            return
        options = {"ONES": self._networks.actor.ones}
        options |= {name: constants[name] for name in ("ONE_HOT", "LIMIT")}
        pack_rows(
            self.buffer, self._columns, arrays.statistics, arrays.one_hot, options, arrays.samples
        )

    def _set_rollout(self) -> None:
        """The kernel that plays, and its arguments."""
        dist, env = self.job.distribution, self.env
        sizes: list[int] = []
        starts: list[int] = []
        bounds, numbers = np.zeros(1, np.float32), 0
        if isinstance(dist, Gaussian):
            bounds, numbers = np.concatenate([dist.low, dist.high]), len(dist.low)
        else:
            sizes, starts = self._choices()
        outputs = self._policy.actor_head.out_features
        acting = Acting(
            networks=self._networks,
            outputs=outputs,
            sizes=tuple(sizes),
            starts=tuple(starts),
            numbers=numbers,
            by_state=numbers > 0 and outputs == dist.head_size,
            one_hot=isinstance(self._policy.encode, OneHot),
        )
        self._bounds = torch.from_numpy(bounds).to(self.device)
        self._hopper_rollout = None
        if self._hopper:
            self._hopper_rollout = self._new_hopper_rollout(acting)
            self._hints = self._hopper_rollout.hints
            return
        self._rollout = rollout_kernel(traced(env.rules), acting)
        programs = -(-env.num_envs // rollout_options(env.num_envs)["BLOCK"])
        self._hints = torch.zeros(programs, device=self.device)

    def _new_hopper_rollout(self, acting: Acting) -> HopperRollout:
        env, encode = self.env, self._policy.encode
        encoded = []
        if isinstance(encode, OneHot):
            encoded = list(zip(encode.sizes, encode.starts, strict=True))
        constants = {**self._constants(), "WIDE": self._wide()}
        shape = launch_shape(env.num_envs, acting, _processors(self.device))
        rules = traced(env.rules)
        given = (rules, acting, encoded, constants, env.num_envs, shape, __version__)
        return HopperRollout(rollout_source(*given), self.device)

    def _wide(self) -> bool:
        """Whether places in the rollout's tensors need 64 bits."""
        b = self.buffer
        return any(x.numel() >= 1 << 31 for x in (b.obs, b.report, b.action, b.action_mask))

    def _programs(self) -> int:
        """Programs that share a minibatch."""
        if self.device.type == "cpu":
            return 3
        count = _processors(self.device)
        if not self._hopper:
            return PROGRAMS * count
        plan = self._hopper_plan()
        return max(1, count * plan.blocks // plan.networks)

    def _head_columns(self, net: Network) -> tuple[Tensor, Tensor]:
        """Which choice each column of the head belongs to, and that choice's first column."""
        dist = self.job.distribution
        parts, firsts = np.full(net.head, -1, np.int32), np.zeros(net.head, np.int32)
        if isinstance(dist, Gaussian):
            parts[: dist.head_size // 2] = np.arange(dist.head_size // 2)
        else:
            sizes, _ = self._choices()
            begin = np.cumsum([0, *sizes])
            for k, size in enumerate(sizes):
                parts[begin[k] : begin[k] + size], firsts[begin[k] : begin[k] + size] = k, begin[k]
        return torch.from_numpy(parts).to(self.device), torch.from_numpy(firsts).to(self.device)

    def _choices(self) -> tuple[list[int], list[int]]:
        """How many actions each choice has, and what they are numbered from."""
        dist = self.job.distribution
        assert isinstance(dist, Categorical | MultiCategorical)
        if isinstance(dist, Categorical):
            return [dist.head_size], [dist.start]
        return dist.sizes, dist.start

    def _one_hot(self, inputs: int) -> Tensor:
        """Number of the observation, and its value, that each input stands for; int32."""
        encode = self._policy.encode
        table = np.full((inputs, 2), -1, np.int32)
        if isinstance(encode, OneHot):
            at = 0
            for k, (size, start) in enumerate(zip(encode.sizes, encode.starts, strict=True)):
                table[at : at + size, 0], table[at : at + size, 1] = k, start + np.arange(size)
                at += size
        return torch.from_numpy(table).to(self.device)

    @property
    def _policy(self) -> ActorCritic:
        policy = self.job.policy
        assert isinstance(policy, ActorCritic)
        return policy

    def _constants(self) -> dict[str, Any]:
        """What kernels know of the job when they are compiled."""
        dist, ppo, normalizer = self.job.distribution, self.job.config.ppo, self.job.obs_normalizer
        outputs = self._policy.actor_head.out_features
        kind, parts = CHOICES, max(1, self._columns.actions)
        if isinstance(dist, Gaussian):
            kind = GAUSSIAN_BY_STATE if outputs == dist.head_size else GAUSSIAN
        activation = type(self._policy.actor[1]).__name__.lower()
        return {
            "OUTPUTS": outputs,
            "DISTRIBUTION": kind,
            "PARTS": parts,
            "ONE_HOT": isinstance(self._policy.encode, OneHot),
            "LIMIT": 0.0 if normalizer is None else float(normalizer.clip),
            "ACTIVATION": NUMBERS[activation],
            "QUICK": self.precision == "bf16" and self.device.type == "cuda",
            "PRECISION": "tf32" if self.precision == "tf32" else "ieee",
            "NORMALIZE": ppo.normalize_advantage,
            "VALUE_CLIP": float(ppo.value_clip),
            "VALUE_COEF": float(ppo.value_coef),
            "ENTROPY_COEF": float(ppo.entropy_coef),
            "MINIBATCHES": ppo.minibatches,
            **self._columns.constants(),
        }

    def _network_launches(self) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Arguments of the launches of a minibatch: one for each network."""
        nets, constants = self._networks, self._constants()
        jobs = [(nets.actor, True, nets.shared)]
        if not nets.shared:
            jobs.append((nets.critic, False, True))
        return [
            (
                net.constants(),
                {**constants, "ACTOR": actor, "CRITIC": critic},
                launch_options(max(net.widths)),
            )
            for net, actor, critic in jobs
        ]

    def _rounded_weights(self) -> tuple[dict[str, Tensor], list[torch.nn.Parameter]]:  # type: ignore[override]
        return {}, []

    # collect --------------------------------------------------------------------------------
    def _ready(self) -> None:
        super()._ready()
        self._read_statistics()
        self._read_weights()

    @torch.no_grad()
    def _collect(self) -> None:
        b, env = self.buffer, self.env
        assert isinstance(env, TritonVecEnv)
        with self._beside(1):
            self._told_keys.send()
        given = self._rollout_arguments(env)
        if self._hopper_rollout is not None:
            self._hopper_rollout(given, b.num_steps)
        else:
            self._launch_rollout(given)
        with self._beside():
            last_episodes(b.terminated, b.truncated, b.report, RECENT, self._recent)
        with self._beside(1):
            self._first_step += b.num_steps
        self._take_over()
        if self.job.config.run.nan_guard:
            torch.sum(self._hints, 0, dtype=torch.float64, out=self._checks[0])
        self._meet()

    def _rollout_arguments(self, env: TritonVecEnv) -> dict[str, Any]:
        """What either kernel is told."""
        b, arrays, seed = self.buffer, self._arrays, self.job.config.run.seed
        return {
            **env.kernel_arguments(),
            "obs": b.obs,
            "reward": b.reward,
            "terminated": b.terminated,
            "truncated": b.truncated,
            "action_mask": b.action_mask,
            "action": b.action,
            "log_prob": b.log_prob,
            "value": b.values,
            "final_value": b.final_value,
            "final_obs": b.final_obs,
            "report": b.report,
            "low": arrays.low,
            "full": arrays.full,
            "statistics": arrays.statistics,
            "bounds": self._bounds,
            "first_step": self._first_step,
            "policy_low": _signed(seed),
            "policy_high": _signed(seed >> 32),
        }

    def _launch_rollout(self, given: dict[str, Any]) -> None:
        arrays, constants = self._arrays, self._constants()
        options = rollout_options(self.env.num_envs)
        self._rollout[(-(-self.env.num_envs // options["BLOCK"]),)](
            **given,
            one_hot=arrays.one_hot,
            parts=arrays.parts,
            firsts=arrays.firsts,
            hints=self._hints,
            STEPS=self.buffer.num_steps,
            WIDE=self._wide(),
            **{name: constants[name] for name in ("ACTIVATION", "QUICK", "PRECISION", "LIMIT")},
            **options,
        )

    def _check_update(self, figures: np.ndarray, iteration: int) -> None:
        if not np.isfinite(figures).all():  # values are not among what hints are about
            check_device_rollout(self.buffer, iteration)
        super()._check_update(figures, iteration)

    # update ---------------------------------------------------------------------------------
    def _advantages(self) -> None:
        with self._beside():  # what an update needs, and does not wait for advantages
            self._begin_update()
            self._read_weights()
        super()._advantages()
        self._meet()

    def _update(self) -> None:
        job, ppo = self.job, self.job.config.ppo
        arrays, step, adam = self._arrays, self._step, job.optimizer
        with self._beside():  # arithmetic, beside what waits for memory
            if ppo.normalize_advantage:
                flat, parts = self.buffer.advantage.view(-1), self._moment_parts
                advantage_moments(flat, self._keys, ppo.minibatches, parts, arrays.moments)
        with self._beside(1):
            self._told_rates.send()
            self._explain()
        self._read_statistics()
        self._pack_samples()
        self._meet()
        row = 0
        for _ in range(ppo.epochs):
            self._begin_epoch()
            for _ in range(ppo.minibatches):
                self._train_networks(row)
                adam_step(
                    step,
                    arrays.gradients,
                    arrays.sums,
                    self._figures[row],
                    eps=adam.eps,
                    betas=adam.betas,
                    max_norm=ppo.max_grad_norm,
                    guard=job.config.run.nan_guard,
                    early=self._hopper,
                )
                row += 1
            if ppo.target_kl:
                kl = self._figures[row - ppo.minibatches : row, FIGURES.index("kl")].mean()
                self._active.mul_(kl <= ppo.target_kl)
        if job.obs_normalizer is not None:
            job.obs_normalizer.update(self.buffer.flat("obs")[0])
            self._read_statistics()

    def _train_networks(self, job: int) -> None:
        """Launch the kernels of a minibatch; those of two networks side by side."""
        a, train = self._arrays, train_tiles
        if self._hopper_update is not None:
            given = (a.samples, a.low, a.full, a.moments, a.keys, a.clip, a.gradients, a.sums)
            self._hopper_update(*given, job)
            return
        first, *others = self._launches
        with self._beside():
            for launch in others:
                train(self._arrays, *launch, job)
        train(self._arrays, *first, job)
        self._meet()

    def _beside(self, side: int = 0) -> AbstractContextManager[Any]:
        """What is launched within may run at the same time as what is launched after it, until they
        `_meet`. There are two sides."""
        if self.device.type != "cuda":
            return nullcontext()
        stream = self._sides[side]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        self._apart.add(stream)
        return torch.cuda.stream(stream)

    def _meet(self) -> None:
        for stream in self._apart:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        self._apart.clear()

    def collect(self, iteration: int, step: int) -> Episodes:
        """See `Engine`."""
        episodes = super().collect(iteration, step)
        self._known = Parts.of(self._policy)
        self._check_policy(self._known)  # while the card plays
        check_training_of(self._known)
        return episodes

    def _prepare(self, part: str) -> None:
        """Set the mode that callbacks see, without the time that ``policy.train()`` takes. Layers
        of these policies do the same in either."""
        if part in ("collect", "update"):
            for layer in self._known.layers:
                vars(layer)["training"] = part == "update"

    def _check_policy(self, policy: Parts) -> None:
        """Raise ValueError unless the policy is the one that kernels were made for."""
        check_memory_of(policy, self._shapes, self._step.gradient.device)
        if not all(parameter.is_contiguous() for parameter in policy.parameters):
            raise ValueError("a parameter of the policy is no longer contiguous in memory")
        if [type(layer) for layer in policy.layers] != self._layers:
            raise ValueError("the policy's layers were replaced by others; make a new PPO")

    def _find_tensors(self) -> None:
        self._known = Parts.of(self._policy)
        self._check_policy(self._known)  # before anything is written to other memory
        super()._find_tensors()
        self._step.addresses.copy_(addresses(self.job.optimizer.parameters, self.device))

    def _read_weights(self) -> None:
        """Copy weights to where kernels read them; someone may have changed them."""
        step = self._step
        pack_weights(step.addresses, step.places, step.full, step.low)

    def _read_statistics(self) -> None:
        """The same for those of the normalisation."""
        normalizer = self.job.obs_normalizer
        if normalizer is not None:
            self._arrays.statistics[0].copy_(normalizer.mean)
            self._arrays.statistics[1].copy_(normalizer.scale())


def _signed(word: int) -> int:
    """The low 32 bits as an int32."""
    return word & 0x7FFFFFFF | -(word & 0x80000000)


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class FusedCudaEngine(FusedKernels, GraphEngine):
    """See `operant.ppo.job.Engine`."""

    parts = ("ready", *GraphEngine.parts)

    def _compile_level(self) -> str:
        return "off"
