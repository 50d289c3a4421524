"""What an engine is given, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer
from operant.buffers.rollout import RolloutBuffer
from operant.buffers.value_stream import ValueStream
from operant.models.distributions import Distribution
from operant.models.outputs import head_of, value_of
from operant.models.popart import PopArtValueHead, popart_head, task_space
from operant.ppo.config import Config
from operant.spaces.rows import ObsLayout
from operant.training.adam import Adam
from operant.training.episodes import Episodes
from operant.training.shards import Shards
from operant.vector.batch import Batch


@dataclass(frozen=True)
class Job:
    """A policy to train, on environments, in a certain way. The trainer owns everything in it."""

    config: Config
    env: Batch
    policy: nn.Module
    distribution: Distribution
    optimizer: Adam
    device: torch.device
    obs_normalizer: Any
    """A `RunningNormalizer` or a `TreeNormalizer`, which take in observations as the rollout has
    them; None: not normalised. Fused engines know the former alone."""
    return_normalizer: RunningNormalizer | None
    every_final: bool = False
    """Whether the rollout must have the final observations of all episodes that ended, for
    `RolloutBuffer.next_obs`."""
    shards: Shards = field(default_factory=Shards)
    """What sums are made of. `env` has the environments of this rank's."""

    @property
    def first_row(self) -> int:
        """Where the rows of `env` stand among those of all ranks."""
        return self.shards.group.rank * self.env.num_envs

    @property
    def most_threads(self) -> int:
        """Threads that a rank may train with on a CPU."""
        return self.config.run.threads or self.shards.group.cores()

    @property
    def mask_size(self) -> int:
        """Entries of the environment's action mask; 0 where it has none."""
        return self.env.mask_size

    @property
    def two_streams(self) -> bool:
        """Whether bonuses have values of their own."""
        return self.config.intrinsic.separate_value

    @cached_property
    def value_scale(self) -> PopArtValueHead | None:
        """What knows the scale of the targets, if the policy has such a head."""
        return popart_head(self.policy)

    def task_of(self, obs: Any) -> Tensor | None:
        """Which task samples are of, int64 ``[B]``, where `value_scale` knows several; `obs` as in
        the rollout."""
        space = task_space(self.obs_layout.space)
        if space is None or self.value_scale is None or self.value_scale.tasks == 1:
            return None
        task: Tensor = self.obs_layout.split(obs)["task"].long() - int(space.start)
        return task

    def new_stream(self, device: torch.device) -> ValueStream | None:
        """Memory for bonuses with values of their own; None where they have none."""
        if not self.two_streams:
            return None
        ppo = self.config.ppo
        sizes = (ppo.num_steps, self.env.num_envs)
        return ValueStream(*sizes, self.config.intrinsic.gamma, ppo.gae_lambda, device)

    @cached_property
    def obs_layout(self) -> ObsLayout:
        """How observations lie in the rollout's memory."""
        return ObsLayout.of(self.env.single_observation_space)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Head ``[B, H]`` and value ``[B]`` of observations as the rollout has them,
        ``[B, *obs_layout.shape]``, on the policy's device."""
        result: tuple[Tensor, Tensor] = self.policy(self.obs_layout.split(obs))
        return result

    def streams(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Head, value, and value of bonuses; see `forward`."""
        found: tuple[Tensor, Tensor, Tensor] = self.policy.streams(self.obs_layout.split(obs))  # type: ignore[operator]
        return found

    def intrinsic_value(self, obs: Tensor) -> Tensor:
        """Value ``[B]`` of bonuses; see `forward`."""
        found: Tensor = self.policy.intrinsic_value(self.obs_layout.split(obs))  # type: ignore[operator]
        return found

    def scaled(
        self, obs: Any, value: Tensor, target: Tensor, old_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values and targets ``[B]`` as they are learnt: normalised, if the policy does that."""
        scale = self.value_scale
        if scale is None:
            return value, target, old_value
        task = self.task_of(obs)
        first, second, third = (scale.normalized(x, task) for x in (value, target, old_value))
        return first, second, third

    def head(self, obs: Tensor) -> Tensor:
        """Head ``[B, H]``, see `forward`."""
        return head_of(self.policy, self.obs_layout.split(obs))

    def value(self, obs: Tensor) -> Tensor:
        """Value ``[B]``, see `forward`."""
        return value_of(self.policy, self.obs_layout.split(obs))


class Iteration(NamedTuple):
    """What `Engine.collect` and `Engine.update` are asked for in an iteration."""

    number: int
    step: int
    learning_rate: float
    clip: float


class Engine(Protocol):
    """One way of executing the loop ``collect -> advantages -> update``."""

    name: str
    buffer: Any
    """A `RolloutBuffer`, or a `GpuBuffer` on a GPU."""

    @property
    def threads(self) -> int:
        """Threads that train on a CPU."""

    def __init__(self, job: Job) -> None: ...

    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer with rollout number `iteration`, which begins at step `step` of each
        environment since the start of the run; the episodes that finished in it. The policy is in
        evaluation mode afterwards."""

    def advantages(self) -> None:
        """Turn the buffer's rewards and values into advantages and targets."""

    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Train on the buffer; figures about it, means over all minibatches, and the share of the
        targets' variance that the values explain. The policy is in training mode afterwards."""

    def expect_until(self, end: int) -> None:
        """Told before an iteration: those from number `end` on will not be asked for, so that an
        engine with a policy of its own to act with may collect the others meanwhile."""

    def expect(self, following: Iteration | None) -> None:
        """Told before an update what will be asked for next, if nobody looks at environments,
        policy or buffer until that has ended: the engine may begin with it after the update."""

    def retract(self, broken_off: bool = False) -> None:
        """Put everything back to where it was before an iteration that began by itself, if one did
        and was not asked for yet, or, if `broken_off`, has not ended yet."""

    def keep(self) -> None:
        """Remember, before `collect`, what an iteration changes in the policy and the optimiser. An
        engine with the NaN guard may leave the copying to `collect`."""

    def undo(self) -> None:
        """Put back what `keep` remembered, into the tensors that the policy has now."""

    def timings(self) -> tuple[float, float, float] | None:
        """Seconds that collecting, advantages and update took in the last iteration, where these
        parts run on a clock of their own; None: as long as the calls did."""

    def state(self) -> dict[str, np.ndarray]:
        """What the engine itself remembers from one iteration to the next, as copies."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from there.

        Raises:
            ValueError: a missing entry or a wrong shape.
        """


class HostEngine(Engine, Protocol):
    """One whose rollouts are in main memory, and may take turns; see `BaseEngine`."""

    job: Job
    buffer: RolloutBuffer
    parts: int
    before_step: Callable[[int, int], bool]

    def new_buffer(self) -> RolloutBuffer:
        """Memory for another rollout."""

    def split(self, parts: int) -> None:
        """Answer so many sets of rows one after the other."""

    def use(self, buffer: RolloutBuffer) -> None:
        """Work on another rollout from now on."""
