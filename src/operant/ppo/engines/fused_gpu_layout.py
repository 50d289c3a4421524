"""What the fused kernels on a GPU are told of a job: its networks, its actions, its samples."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.models.actor_critic import ActorCritic
from operant.models.distributions import Categorical, Gaussian, MultiCategorical
from operant.models.encoders import OneHot
from operant.ppo.engines.fused_scope import category_sizes, why_not_bf16, widest_layer
from operant.ppo.job import Job
from operant.ppo.kernels.hopper.hopper_update import PANEL, UpdatePlan, update_source
from operant.ppo.kernels.triton.layers import NUMBERS
from operant.ppo.kernels.triton.networks import LEAST, Network, Networks
from operant.ppo.kernels.triton.rollout_source import Acting
from operant.ppo.kernels.triton.rows import row_words
from operant.ppo.kernels.triton.samples import Columns
from operant.ppo.kernels.triton.update import (
    CATEGORICAL,
    GAUSSIAN,
    GAUSSIAN_BY_STATE,
    launch_options,
)
from operant.toolchain.gpus import is_hopper
from operant.vector.gpu_env import CudaVecEnv

PROGRAMS = 2
"""Programs of an update for each of the GPU's processors and networks."""
Launch = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Constants of a network, constants of its job, and options of the launch."""


class FusedLayout:
    """Facts about a job that do not change while it is trained."""

    def __init__(self, job: Job) -> None:
        assert isinstance(job.env, CudaVecEnv)
        self.job, self.env, self.device = job, job.env, job.env.device
        self.samples = job.config.ppo.num_steps * job.env.num_envs

    @property
    def policy(self) -> ActorCritic:
        """The policy that is trained."""
        policy = self.job.policy
        assert isinstance(policy, ActorCritic)
        return policy

    @property
    def precision(self) -> str:
        """Of the networks: by default bf16 if they are narrow enough for its kernels, else tf32."""
        asked = self.job.config.run.precision
        if asked != "auto":
            return asked
        return "tf32" if why_not_bf16(self.policy) else "bf16"

    @cached_property
    def hopper(self) -> bool:
        """Whether its kernels are those in CUDA C++ for Hopper."""
        return self.precision == "bf16" and is_hopper(self.device)

    @cached_property
    def networks(self) -> Networks:
        """Where the policy's weights are put for the kernels."""
        policy = self.policy
        least = PANEL * (1 + (widest_layer(policy) > PANEL)) if self.hopper else LEAST
        return Networks(policy, self.job.optimizer.parameters, least)

    # samples --------------------------------------------------------------------------------
    @cached_property
    def columns(self) -> Columns:
        """What is in a sample."""
        actions = int(np.prod(self.job.distribution.action_shape))
        numbers = self.env.buffers["obs"][0].numel()
        return Columns.of(actions, self.job.mask_size, numbers, self.job.config.ppo.value_clip)

    def sample_words(self) -> int:
        """32-bit words of a sample, as the update's kernel wants it."""
        columns = self.columns
        return row_words(self.networks.actor.ones, columns) if self.hopper else columns.row

    def bytes_per_sample(self) -> int:
        """Memory of a sample, packed for the update."""
        return 4 * self.sample_words()

    # what kernels know when they are compiled -----------------------------------------------
    def constants(self) -> dict[str, Any]:
        """What kernels know of the job when they are compiled."""
        dist, ppo, normalizer = self.job.distribution, self.job.config.ppo, self.job.obs_normalizer
        outputs = self.policy.actor_head.out_features
        kind, parts = CATEGORICAL, max(1, self.columns.actions)
        if isinstance(dist, Gaussian):
            kind = GAUSSIAN_BY_STATE if outputs == dist.head_size else GAUSSIAN
        activation = type(self.policy.actor[1]).__name__.lower()
        return {
            "OUTPUTS": outputs,
            "DISTRIBUTION": kind,
            "PARTS": parts,
            "ONE_HOT": isinstance(self.policy.encode, OneHot),
            "LIMIT": 0.0 if normalizer is None else float(normalizer.clip),
            "ACTIVATION": NUMBERS[activation],
            "QUICK": self.precision == "bf16" and self.device.type == "cuda",
            "PRECISION": "tf32" if self.precision == "tf32" else "ieee",
            "NORMALIZE": ppo.normalize_advantage,
            "VALUE_CLIP": float(ppo.value_clip),
            "VALUE_COEF": float(ppo.value_coef),
            "ENTROPY_COEF": float(ppo.entropy_coef),
            "MINIBATCHES": ppo.minibatches,
            **self.columns.constants(),
        }

    def network_launches(self) -> list[Launch]:
        """Arguments of the launches of a minibatch: one for each network."""
        nets, constants = self.networks, self.constants()
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

    def hopper_plan(self) -> UpdatePlan:
        """The update's kernel for Hopper."""
        choices = [] if isinstance(self.job.distribution, Gaussian) else self.category_sizes()[0]
        outputs = self.policy.actor_head.out_features
        return update_source(self.networks, outputs, choices, self.constants(), self.samples)

    def programs(self) -> int:
        """Programs that share a minibatch."""
        if self.device.type == "cpu":
            return 3
        count = self.processors()
        if not self.hopper:
            return PROGRAMS * count
        plan = self.hopper_plan()
        return max(1, count * plan.blocks // plan.networks)

    def processors(self) -> int:
        """Of the GPU."""
        return _processors(self.device)

    # actions and observations ---------------------------------------------------------------
    def acting(self) -> Acting:
        """How the rollout's kernel chooses actions."""
        dist = self.job.distribution
        sizes: list[int] = []
        starts: list[int] = []
        numbers = 0
        if isinstance(dist, Gaussian):
            numbers = len(dist.low)
        else:
            sizes, starts = self.category_sizes()
        outputs = self.policy.actor_head.out_features
        return Acting(
            networks=self.networks,
            outputs=outputs,
            sizes=tuple(sizes),
            starts=tuple(starts),
            numbers=numbers,
            by_state=numbers > 0 and outputs == dist.head_size,
            one_hot=isinstance(self.policy.encode, OneHot),
        )

    def bounds(self) -> Tensor:
        """Lowest, then highest continuous actions, float32; ``[1]`` if there are none."""
        dist, bounds = self.job.distribution, np.zeros(1, np.float32)
        if isinstance(dist, Gaussian):
            bounds = np.concatenate([dist.low, dist.high])
        return torch.from_numpy(bounds).to(self.device)

    def category_sizes(self) -> tuple[list[int], list[int]]:
        """How many actions each choice has, and what they are numbered from."""
        dist = self.job.distribution
        assert isinstance(dist, Categorical | MultiCategorical)
        return category_sizes(dist)

    def head_columns(self, net: Network) -> tuple[Tensor, Tensor]:
        """Which choice each column of the head belongs to, and that choice's first column."""
        dist = self.job.distribution
        parts, firsts = np.full(net.head, -1, np.int32), np.zeros(net.head, np.int32)
        if isinstance(dist, Gaussian):
            parts[: dist.head_size // 2] = np.arange(dist.head_size // 2)
        else:
            sizes, _ = self.category_sizes()
            begin = np.cumsum([0, *sizes])
            for k, size in enumerate(sizes):
                parts[begin[k] : begin[k] + size], firsts[begin[k] : begin[k] + size] = k, begin[k]
        return torch.from_numpy(parts).to(self.device), torch.from_numpy(firsts).to(self.device)

    def one_hot(self, inputs: int) -> Tensor:
        """Number of the observation, and its value, that each input stands for; int32
        ``[inputs, 2]``, -1 where it stands for none."""
        encode = self.policy.encode
        found = np.full((inputs, 2), -1, np.int32)
        if isinstance(encode, OneHot):
            at = 0
            for k, (size, start) in enumerate(zip(encode.sizes, encode.starts, strict=True)):
                found[at : at + size, 0], found[at : at + size, 1] = k, start + np.arange(size)
                at += size
        return torch.from_numpy(found).to(self.device)


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
