"""Actor-critic networks: multilayer perceptrons for any supported pair of spaces.

**The policy protocol.** PPO trains any `torch.nn.Module` whose

- ``forward(obs)`` takes observations ``[B, *obs_shape]`` (of a Dict or Tuple space a dict of such
  tensors by path: ``obs["camera"]``, ``obs["arm/0"]``) and returns ``(head, value)``: float32
  ``[B, H]`` and ``[B]``. H and the meaning of the columns are those of
  `operant.models.distribution_for` the action space: logits for Discrete and MultiDiscrete; means,
  then logarithms of standard deviations, for Box.

It may also have

- ``distribution``: another `Distribution` than the action space's own;
- ``head(obs)``, ``value(obs)``: only the one or the other, where that is cheaper than ``forward``;
- ``obs_normalizer``: a `RunningNormalizer` it uses in ``forward``; PPO updates it with the
  observations of a rollout, after having trained on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from operant.buffers.normalizer import RunningNormalizer
from operant.models.distributions import Distribution, distribution_for
from operant.spaces.rows import ObsLayout

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


class ActorCritic(nn.Module):
    """An actor and a critic, with trunks of their own or a shared one.

    Box observations are flattened; Discrete and MultiDiscrete ones become one-hot vectors, in
    which only numbers that the space has may occur. Of Dict and Tuple spaces the leaves are encoded
    so, one after the other; bytes among them are scaled to 0 to 1.
    Weights are orthogonal (gain sqrt 2; 0.01 for the actor's head, 1 for the critic's), biases 0.

    Args:
        observation_space, action_space: of one environment.
        hidden: sizes of the hidden layers; may be empty.
        activation: ``"tanh"``, ``"relu"`` or ``"silu"``.
        shared: one trunk for both heads.
        normalize_obs: whether observations pass a `RunningNormalizer`.
        distribution: how the head is read.
        outputs: columns the actor network produces; by default all of the head.

    Raises:
        ValueError: a space or option that is not supported.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        *,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        normalize_obs: bool = False,
        distribution: Distribution | None = None,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        if any(size < 1 for size in hidden):
            raise ValueError(f"hidden layers must have at least one unit, got {tuple(hidden)}")
        self.distribution = distribution or distribution_for(action_space)
        self.encode, size = encoder(observation_space)
        self.obs_normalizer: RunningNormalizer | None = None
        if normalize_obs:
            if not isinstance(observation_space, spaces.Box):
                raise ValueError(
                    f"only Box observations can be normalised, not {observation_space}"
                )
            self.obs_normalizer = RunningNormalizer((size,))
        act = ACTIVATIONS[activation]
        width = hidden[-1] if hidden else size
        outputs = self.distribution.head_size if outputs is None else outputs
        self.actor = mlp(size, hidden, act)
        self.critic = None if shared else mlp(size, hidden, act)
        self.actor_head = linear(width, outputs, 0.01)
        self.critic_head = linear(width, 1, 1.0)

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Head ``[B, H]`` and value ``[B]`` of observations ``[B, *obs_shape]``, or of a dict of
        them."""
        x = self._inputs(obs)
        features = self.actor(x)
        value = self.critic_head(features if self.critic is None else self.critic(x)).squeeze(-1)
        return self._head(self.actor_head(features)), value

    def head(self, obs: Any) -> Tensor:
        """Head ``[B, H]`` of observations, without the critic."""
        return self._head(self.actor_head(self.actor(self._inputs(obs))))

    def value(self, obs: Any) -> Tensor:
        """Value ``[B]`` of observations, without the actor."""
        trunk = self.actor if self.critic is None else self.critic
        value: Tensor = self.critic_head(trunk(self._inputs(obs))).squeeze(-1)
        return value

    def _inputs(self, obs: Any) -> Tensor:
        x: Tensor = self.encode(obs)
        return x if self.obs_normalizer is None else self.obs_normalizer(x)

    def _head(self, outputs: Tensor) -> Tensor:
        return outputs


class DiscreteActorCritic(ActorCritic):
    """For Discrete, MultiDiscrete and MultiBinary actions: the head holds logits.

    Args:
        observation_space, action_space: of one environment.
        options: see `ActorCritic`.

    Raises:
        ValueError: a space or option that is not supported.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        **options: object,
    ) -> None:
        if isinstance(action_space, spaces.Box):
            raise ValueError(f"DiscreteActorCritic needs discrete actions, got {action_space}")
        super().__init__(observation_space, action_space, **options)  # type: ignore[arg-type]


class ContinuousActorCritic(ActorCritic):
    """For Box actions: means from the network; deviations the same in all states, unless asked.

    Args:
        observation_space, action_space: of one environment.
        log_std: logarithm of the standard deviations at the start.
        state_dependent_std: whether the network produces the deviations too.
        squash: tanh onto the bounds instead of clipping at them.
        options: see `ActorCritic`.

    Raises:
        ValueError: a space or option that is not supported.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        *,
        log_std: float = 0.0,
        state_dependent_std: bool = False,
        squash: bool = False,
        **options: object,
    ) -> None:
        if not isinstance(action_space, spaces.Box):
            raise ValueError(f"ContinuousActorCritic needs Box actions, got {action_space}")
        distribution = distribution_for(action_space, squash)
        size = distribution.head_size // 2
        super().__init__(
            observation_space,
            action_space,
            distribution=distribution,
            outputs=2 * size if state_dependent_std else size,
            **options,  # type: ignore[arg-type]
        )
        self.log_std: nn.Parameter | None = None
        if state_dependent_std:
            with torch.no_grad():
                self.actor_head.bias[size:] = log_std
        else:
            self.log_std = nn.Parameter(torch.full((size,), float(log_std)))

    def _head(self, outputs: Tensor) -> Tensor:
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std.expand_as(outputs)], -1)


def encoder(space: spaces.Space[object]) -> tuple[Callable[[Any], Tensor], int]:
    """A function from observations to float32 features ``[B, size]``, and that size.

    Raises:
        ValueError: a space without one.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        leaves = Leaves(ObsLayout.of(space))
        return leaves, leaves.size
    if math.prod(space.shape or ()) == 0:
        raise ValueError(f"the observation space {space} has nothing to see")
    if isinstance(space, spaces.Box):
        return flatten if space.shape else column, math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return OneHot([int(space.n)], [int(space.start)]), int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.flatten().tolist()
        return OneHot(sizes, space.start.flatten().tolist()), sum(sizes)
    raise ValueError(
        f"no encoding for the observation space {space}; known are Box, Discrete and "
        "MultiDiscrete, and Dict and Tuple of them"
    )


def flatten(obs: Tensor) -> Tensor:
    """Observations ``[B, ...]`` as float32 ``[B, numbers]``."""
    return obs.flatten(1).float()


def column(obs: Tensor) -> Tensor:
    """Numbers ``[B]`` as float32 ``[B, 1]``."""
    return obs.unsqueeze(1).float()


def scaled(obs: Tensor) -> Tensor:
    """Bytes ``[B, ...]`` as float32 ``[B, numbers]`` from 0 to 1."""
    return obs.reshape(len(obs), -1).float() / 255


class Leaves:
    """The leaves of a tree observation, each encoded by itself, to features side by side."""

    def __init__(self, layout: ObsLayout) -> None:
        self.encoders: dict[str, Callable[[Tensor], Tensor]] = {}
        """By path, in the order of the features."""
        self.size = 0
        for leaf in layout.leaves:
            encode, size = encoder(leaf.space)
            is_bytes = isinstance(leaf.space, spaces.Box) and leaf.dtype == "uint8"
            self.encoders[leaf.path] = scaled if is_bytes else encode
            self.size += size

    def __call__(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The features, float32 ``[B, size]``, of leaves ``[B, ...]`` by path."""
        return torch.cat([encode(obs[path]) for path, encode in self.encoders.items()], -1)


class OneHot:
    """Integers ``[B, ...]`` to concatenated one-hot vectors, one for each integer."""

    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        self.sizes, self.starts = sizes, starts

    def __call__(self, obs: Tensor) -> Tensor:
        """The vectors, float32 ``[B, sum of sizes]``."""
        columns = obs.long().reshape(len(obs), len(self.sizes)).unbind(-1)
        parts = zip(columns, self.sizes, self.starts, strict=True)
        return torch.cat([functional.one_hot(x - low, n) for x, n, low in parts], -1).float()


def mlp(size: int, hidden: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers, each followed by the activation."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [linear(size, width, math.sqrt(2)), activation()]
        size = width
    return nn.Sequential(*layers)


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def policy_for(
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    *,
    log_std: float = 0.0,
    squash: bool = False,
    **options: object,
) -> ActorCritic:
    """The network for a pair of spaces: continuous for Box actions, else discrete.

    Args:
        observation_space, action_space: of one environment.
        log_std, squash: see `ContinuousActorCritic`; `log_std` does nothing for other actions.
        options: see `ActorCritic`.

    Raises:
        ValueError: a space or option that is not supported.
    """
    if isinstance(action_space, spaces.Box):
        return ContinuousActorCritic(
            observation_space,
            action_space,
            log_std=log_std,
            squash=squash,
            **options,  # type: ignore[arg-type]
        )
    if squash:
        raise ValueError(f"squash is for Box actions, not {action_space}")
    return DiscreteActorCritic(observation_space, action_space, **options)
