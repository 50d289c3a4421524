"""`Bonus`: an intrinsic reward, which a policy is paid beside that of its environment.

**The protocol.** A bonus is a `torch.nn.Module`; its parameters and buffers are saved with the run,
so what it remembers belongs there. Override

- ``build(setting)``: make networks and memory for the spaces; called once, before anything else;
- ``reward(obs, action, next_obs) -> [T, N]``: the bonus of each step of a rollout. No gradient is
  wanted;
- ``loss(batch) -> [B]``: what is minimised, for each of some samples; None (the default): nothing
  is trained. A dict of such has ``"loss"``, which is trained, and others that are only reported.

``obs`` and ``next_obs`` are ``[T, N, *obs_shape]`` (of a Dict or Tuple space a dict of such by
path), ``action`` is ``[T, N, *action_shape]`` as the policy's distribution has it. ``next_obs`` is
the final observation where an episode ended, never the first of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.models.distributions import Distribution
from operant.models.encoders import EncoderOptions
from operant.spaces.rows import ObsLayout
from operant.utils.hooks import refuse_unknown_hooks


@dataclass(frozen=True)
class Setting:
    """What a bonus is made for."""

    observation_space: spaces.Space[Any]
    """Of one environment."""
    distribution: Distribution
    """What the actions of a rollout are: see `operant.models.distribution_for`."""
    num_envs: int
    num_steps: int
    device: torch.device
    encoders: EncoderOptions = field(default_factory=EncoderOptions)
    """How the policy encodes observations."""
    max_episode_steps: int | None = None
    """The time limit, if there is one."""

    @cached_property
    def layout(self) -> ObsLayout:
        """How observations lie in memory."""
        return ObsLayout.of(self.observation_space)


class Transitions(NamedTuple):
    """Some samples of a rollout."""

    obs: Any
    """``[B, *obs_shape]``, or a dict of such by path."""
    action: Tensor
    """``[B, *action_shape]``."""
    next_obs: Any
    """As `obs`."""


class Rollout:
    """What environments and policy did, for a bonus to look at; tensors are made when asked for.

    Args:
        buffer: a rollout, with the final observations of all episodes.
        layout: how its observations lie in memory.
        device: where tensors are wanted.
    """

    def __init__(self, buffer: Any, layout: ObsLayout, device: torch.device) -> None:
        self.layout = layout
        self._buffer, self._device = buffer, device
        # An engine may keep observations as what its kernels read: float32 instead of float64.
        self._dtype = torch.from_numpy(np.empty(0, layout.dtype)).dtype

    @cached_property
    def obs(self) -> Tensor:
        """``[T, N, *shape]`` of `layout`."""
        seen, steps = self._buffer.obs, self._buffer.num_steps
        if not isinstance(seen, Tensor):  # stacks of frames, put together when asked for
            sample = torch.arange(len(self._buffer))
            seen = seen.index_select(0, sample).unflatten(0, (steps, -1))
        found: Tensor = seen[:steps].to(self._device, self._dtype)
        return found

    @cached_property
    def last_obs(self) -> Tensor:
        """``[N, *shape]``: what the next rollout begins with."""
        found: Tensor = self._buffer.obs[self._buffer.num_steps].to(self._device, self._dtype)
        return found

    @cached_property
    def next_obs(self) -> Tensor:
        """``[T, N, *shape]``: what followed; the final observation where an episode ended."""
        found: Tensor = self._buffer.next_obs().to(self._device, self._dtype)
        return found

    @cached_property
    def action(self) -> Tensor:
        """``[T, N, *action_shape]``."""
        found: Tensor = self._buffer.action.to(self._device)
        return found

    @cached_property
    def done(self) -> Tensor:
        """Bool ``[T, N]``: an episode ended with this step."""
        found: Tensor = (self._buffer.terminated | self._buffer.truncated).to(self._device)
        return found

    @cached_property
    def live(self) -> Tensor | None:
        """Bool ``[T, N]``: which of these are samples; None: all. In the others a row rests between
        two episodes: nothing is paid there, and nothing learnt."""
        live = self._buffer.live
        return None if live is None else live.to(self._device)

    @cached_property
    def live_next_obs(self) -> Tensor:
        """``[K, *shape]``: what followed the samples; ``[T, N, *shape]`` if all are."""
        return self.next_obs if self.live is None else self.next_obs[self.live]

    def split(self, obs: Tensor) -> Any:
        """Observations as a policy sees them: of a tree a dict of its leaves."""
        return self.layout.split(obs)

    def samples(self, index: Tensor) -> Transitions:
        """The samples ``t * N + env``, int64 ``[B]``; copies."""
        obs, action, following = (
            x.flatten(0, 1).index_select(0, index) for x in (self.obs, self.action, self.next_obs)
        )
        return Transitions(self.split(obs), action, self.split(following))


class Bonus(nn.Module):
    """See the top of this file."""

    name = "bonus"
    """Lower-case; unique in a trainer. Its figures are called ``intrinsic/NAME_FIGURE``."""
    figures: tuple[str, ...] = ("loss",)
    """What is reported: names of what `loss` returns and of `state_figures`."""
    normalized = True
    """Whether the bonus is divided by the running deviation of its discounted sums."""
    random_steps = 0
    """Steps of a random policy whose observations `observe` is given before training."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a method that is meant to be a hook and is none."""
        super().__init_subclass__(**kwargs)
        refuse_unknown_hooks(cls, Bonus)

    def build(self, setting: Setting) -> None:
        """Make networks and memory, on the CPU: they are moved to ``setting.device``."""

    def observe(self, obs: Any) -> None:
        """Take in observations ``[..., *shape]`` as they lie in memory: for statistics. Of random
        steps before training, and of each rollout's samples after its bonus was computed."""

    def reward_of(self, rollout: Rollout) -> Tensor:
        """The bonus ``[T, N]`` of a whole rollout; to be overridden, instead of `reward`, by what
        must know where episodes end."""
        obs, following = rollout.split(rollout.obs), rollout.split(rollout.next_obs)
        return self.reward(obs, rollout.action, following)

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        """The bonus ``[T, N]``, float32."""
        raise NotImplementedError

    def loss(self, batch: Transitions) -> Tensor | dict[str, Tensor] | None:
        """What is minimised: ``[B]``; see the top of this file."""
        return None

    def rolled_back(self) -> list[Tensor]:
        """What is put back when the NaN guard stops an iteration: by default all parameters and
        buffers. What belongs to the environments need not be: they are not put back."""
        return [*self.parameters(), *self.buffers()]

    def state_figures(self) -> Mapping[str, Tensor]:
        """Figures of what it remembers, one number each; those of `loss` come from there."""
        return {}


def flat(obs: Any) -> Any:
    """Observations ``[T, N, ...]``, or a dict of such, as ``[T * N, ...]``."""
    if isinstance(obs, Mapping):
        return {path: leaf.flatten(0, 1) for path, leaf in obs.items()}
    return obs.flatten(0, 1)


PART = 4096
"""Observations that go through a network at once on a CPU, so that activations stay in caches."""
IMAGE_PART = 256


def in_parts(function: Callable[..., Tensor], size: int, *inputs: Any) -> Tensor:
    """``function(*inputs)`` ``[B]``, computed `size` samples at a time on a CPU; the inputs are
    ``[B, ...]`` or dicts of such."""
    first = next(iter(inputs[0].values())) if isinstance(inputs[0], Mapping) else inputs[0]
    if first.device.type != "cpu" or len(first) <= size:
        return function(*inputs)
    starts = range(0, len(first), size)
    return torch.cat([function(*(_part(x, k, size) for x in inputs)) for k in starts])


def _part(x: Any, start: int, size: int) -> Any:
    if isinstance(x, Mapping):
        return {path: leaf[start : start + size] for path, leaf in x.items()}
    return x[start : start + size]
