"""Actor-critic networks for any pair of spaces: encoders by leaf, then multilayer perceptrons.

**The policy protocol.** PPO trains any `torch.nn.Module` whose

- ``forward(obs)`` takes observations ``[B, *obs_shape]`` (of a Dict or Tuple space a dict of such
  tensors by path: ``obs["camera"]``, ``obs["arm/0"]``) and returns ``(head, value)``: float32
  ``[B, H]`` and ``[B]``. H and the meaning of the columns are those of
  `operant.models.distribution_for` the action space: logits for Discrete and MultiDiscrete; means,
  then logarithms of standard deviations, for Box; of a Dict or Tuple those of one leaf after those
  of another.

It may also have

- ``distribution``: another `Distribution` than the action space's own;
- ``streams(obs)``, which returns ``(head, value, intrinsic value)``, and ``intrinsic_value(obs)``:
  needed for ``intrinsic.separate_value``;
- ``head(obs)``, ``value(obs)``: only the one or the other, where that is cheaper than ``forward``;
- ``obs_normalizer``: a `RunningNormalizer`, or a `TreeNormalizer` for Dict and Tuple observations,
  that it uses in ``forward``; PPO calls its ``update`` with the observations of a rollout, after
  having trained on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer
from operant.models.action_distributions import distribution_for
from operant.models.distributions import Distribution, Gaussian
from operant.models.encoders import EncoderOptions, encoder, numeric
from operant.models.joint import Joint
from operant.models.layers import ACTIVATIONS, linear, mlp
from operant.models.names import VALUE_HEADS
from operant.models.popart import PopArtValueHead, task_space
from operant.models.tree_normalizer import TreeNormalizer
from operant.spaces.rows import ObsLayout


class ActorCritic(nn.Module):
    """An actor and a critic, with trunks of their own or a shared one.

    Observations are encoded by their space, see `operant.models.encoders`: images by a CNN,
    Discrete and MultiDiscrete ones as one-hot vectors, other Boxes flattened; the leaves of Dict
    and Tuple spaces each so, side by side. Actor and critic share what encodes, if it has weights.
    Weights are orthogonal (gain sqrt 2; 0.01 for the actor's head, 1 for the critic's), biases 0.

    Args:
        observation_space, action_space: of one environment.
        hidden: sizes of the hidden layers; may be empty.
        activation: ``"tanh"``, ``"relu"`` or ``"silu"``.
        shared: one trunk of hidden layers for both heads.
        normalize_obs: whether numbers pass a `RunningNormalizer`; images, grids of codes, choices
            and bits never do.
        image, channels, embedding: see `EncoderOptions`.
        distribution: how the head is read.
        outputs: columns the actor network produces; by default all of the head.
        value_head: ``"linear"``, or ``"popart"``: a `PopArtValueHead`, with statistics of each
            task if the observations are a Dict with a Discrete leaf ``task``.

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
        image: str = "auto",
        channels: str = "auto",
        embedding: int = 32,
        distribution: Distribution | None = None,
        outputs: int | None = None,
        value_head: str = "linear",
    ) -> None:
        super().__init__()
        if value_head not in VALUE_HEADS:
            raise ValueError(
                f"value_head must be one of {', '.join(VALUE_HEADS)}, got {value_head!r}"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        if any(size < 1 for size in hidden):
            raise ValueError(f"hidden layers must have at least one unit, got {tuple(hidden)}")
        self.distribution = distribution or distribution_for(action_space)
        options = EncoderOptions(image, channels, embedding)
        self.encode, size = encoder(observation_space, options, normalized=normalize_obs)
        self.obs_normalizer = (
            _normalizer(observation_space, options, size) if normalize_obs else None
        )
        act = ACTIVATIONS[activation]
        width = hidden[-1] if hidden else size
        outputs = self.distribution.head_size if outputs is None else outputs
        self.actor = mlp(size, hidden, act)
        self.critic = None if shared else mlp(size, hidden, act)
        self.actor_head = linear(width, outputs, 0.01)
        self.intrinsic_head: nn.Linear | None = None
        """Of the value of bonuses, if that is apart; see `add_intrinsic_head`."""
        task = task_space(observation_space) if value_head == "popart" else None
        # A plain number: what NumPy's would be in an exported graph, nobody could read.
        self._first_task = None if task is None else int(task.start)
        self.critic_head = (
            linear(width, 1, 1.0)
            if value_head == "linear"
            else PopArtValueHead(width, 1 if task is None else int(task.n))
        )

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Head ``[B, H]`` and value ``[B]`` of observations ``[B, *obs_shape]``, or of a dict of
        them."""
        x = self._inputs(obs)
        features = self.actor(x)
        value = self._value(features if self.critic is None else self.critic(x), obs)
        return self._head(self.actor_head(features)), value

    def head(self, obs: Any) -> Tensor:
        """Head ``[B, H]`` of observations, without the critic."""
        return self._head(self.actor_head(self.actor(self._inputs(obs))))

    def value(self, obs: Any) -> Tensor:
        """Value ``[B]`` of observations, without the actor."""
        trunk = self.actor if self.critic is None else self.critic
        return self._value(trunk(self._inputs(obs)), obs)

    def streams(self, obs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, and the value ``[B]`` of what bonuses will come."""
        assert self.intrinsic_head is not None
        x = self._inputs(obs)
        features = self.actor(x)
        seen = features if self.critic is None else self.critic(x)
        head, value = self._head(self.actor_head(features)), self._value(seen, obs)
        return head, value, self.intrinsic_head(seen).squeeze(-1)

    def intrinsic_value(self, obs: Any) -> Tensor:
        """The last of `streams` alone."""
        assert self.intrinsic_head is not None
        trunk = self.actor if self.critic is None else self.critic
        value: Tensor = self.intrinsic_head(trunk(self._inputs(obs))).squeeze(-1)
        return value

    def add_intrinsic_head(self) -> None:
        """Give it a value of bonuses beside that of rewards, by a layer after the same trunk."""
        layer = linear(self.actor_head.in_features, 1, 1.0)
        self.intrinsic_head = layer.to(self.actor_head.weight.device)

    def _value(self, features: Tensor, obs: Any) -> Tensor:
        if self._first_task is None:
            value: Tensor = self.critic_head(features)
        else:
            value = self.critic_head(features, obs["task"].long() - self._first_task)
        return value.squeeze(-1)

    def _inputs(self, obs: Any) -> Tensor:
        if isinstance(self.obs_normalizer, TreeNormalizer):
            return self.encode(self.obs_normalizer(obs))
        x = self.encode(obs)
        return x if self.obs_normalizer is None else self.obs_normalizer(x)

    def _head(self, outputs: Tensor) -> Tensor:
        return outputs


class DiscreteActorCritic(ActorCritic):
    """For Discrete, MultiDiscrete and MultiBinary actions, and Boxes of integers: the head holds
    logits.

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
        if isinstance(distribution_for(action_space), Gaussian | Joint):
            raise ValueError(f"DiscreteActorCritic needs discrete actions, got {action_space}")
        super().__init__(observation_space, action_space, **options)  # type: ignore[arg-type]


class ContinuousActorCritic(ActorCritic):
    """For Box actions of floats: means from the network; deviations the same in all states, unless
    asked.

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
        distribution = distribution_for(action_space, squash)
        if not isinstance(distribution, Gaussian):
            raise ValueError(
                f"ContinuousActorCritic needs Box actions of floats, got {action_space}"
            )
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


class JointActorCritic(ActorCritic):
    """For Dict and Tuple actions: logits and means of the leaves from the network, one leaf after
    the other; deviations the same in all states.

    Args:
        observation_space, action_space: of one environment.
        log_std: logarithm of the standard deviations at the start.
        squash: Box leaves: tanh onto the bounds instead of clipping at them.
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
        squash: bool = False,
        **options: object,
    ) -> None:
        distribution = distribution_for(action_space, squash)
        if not isinstance(distribution, Joint):
            raise ValueError(f"JointActorCritic needs Dict or Tuple actions, got {action_space}")
        sizes, deviations = [], []
        for part in distribution.parts:
            means = part.head_size // 2 if isinstance(part, Gaussian) else 0
            sizes.append(means or part.head_size)
            deviations.append(means)
        super().__init__(
            observation_space,
            action_space,
            distribution=distribution,
            outputs=sum(sizes),
            **options,  # type: ignore[arg-type]
        )
        self._sizes, self._deviations = sizes, deviations
        self.log_std: nn.Parameter | None = None
        if any(deviations):
            self.log_std = nn.Parameter(torch.full((sum(deviations),), float(log_std)))

    def _head(self, outputs: Tensor) -> Tensor:
        if self.log_std is None:
            return outputs
        columns = []
        log_stds = torch.split(self.log_std, self._deviations)
        for part, log_std in zip(torch.split(outputs, self._sizes, -1), log_stds, strict=True):
            columns.append(part)
            if len(log_std):
                columns.append(log_std.expand_as(part))
        return torch.cat(columns, -1)


def normalizable(
    observation_space: spaces.Space[Any], options: EncoderOptions | None = None
) -> bool:
    """Whether an observation has numbers that can be normalised."""
    if isinstance(observation_space, spaces.Dict | spaces.Tuple):
        leaves = ObsLayout.of(observation_space).leaves
        return any(numeric(leaf.space, options) for leaf in leaves)
    return numeric(observation_space, options)


def _normalizer(
    space: spaces.Space[Any], options: EncoderOptions, size: int
) -> RunningNormalizer | TreeNormalizer:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return TreeNormalizer(ObsLayout.of(space), options)
    if not numeric(space, options):
        what = "images are not" if isinstance(space, spaces.Box) else f"not {space}"
        raise ValueError(f"only Box observations can be normalised, {what}")
    return RunningNormalizer((size,))


def policy_for(
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    *,
    log_std: float = 0.0,
    squash: bool = False,
    **options: object,
) -> ActorCritic:
    """The network for a pair of spaces: `ContinuousActorCritic` for Box actions of floats,
    `JointActorCritic` for Dict and Tuple ones, else `DiscreteActorCritic`.

    Args:
        observation_space, action_space: of one environment.
        log_std, squash: see `ContinuousActorCritic`; `log_std` does nothing without Box actions.
        options: see `ActorCritic`.

    Raises:
        ValueError: a space or option that is not supported.
    """
    is_tree = isinstance(action_space, spaces.Dict | spaces.Tuple)
    if not is_tree and not isinstance(distribution_for(action_space, squash), Gaussian):
        return DiscreteActorCritic(observation_space, action_space, **options)
    kind = JointActorCritic if is_tree else ContinuousActorCritic
    return kind(
        observation_space,
        action_space,
        log_std=log_std,
        squash=squash,
        **options,  # type: ignore[arg-type]
    )
