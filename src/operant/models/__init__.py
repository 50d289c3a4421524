"""Networks, distributions, and `PPO`, which trains them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.buffers.normalizer import RunningNormalizer
    from operant.models.action_distributions import distribution_for
    from operant.models.actor_critic import (
        ActorCritic,
        ContinuousActorCritic,
        DiscreteActorCritic,
        JointActorCritic,
        policy_for,
    )
    from operant.models.bonus import Bonus
    from operant.models.cnn import GridEncoder, ImpalaCNN, NatureCNN, SmallCNN
    from operant.models.distributions import Distribution
    from operant.models.encoders import (
        Embedding,
        EncoderOptions,
        Numbers,
        OneHot,
        TreeEncoder,
        leaf_encoder,
    )
    from operant.models.episodic_count import EpisodicCount
    from operant.models.icm import ICM
    from operant.models.joint import Joint
    from operant.models.layers import linear, mlp
    from operant.models.popart import PopArtValueHead
    from operant.models.rnd import RND
    from operant.models.tree_normalizer import TreeNormalizer
    from operant.ppo.ppo import PPO, AsyncPPO

_NAMES = {
    "operant.models.actor_critic": (
        "ActorCritic",
        "ContinuousActorCritic",
        "DiscreteActorCritic",
        "JointActorCritic",
        "policy_for",
    ),
    "operant.models.encoders": (
        "Embedding",
        "EncoderOptions",
        "Numbers",
        "OneHot",
        "TreeEncoder",
        "leaf_encoder",
    ),
    "operant.models.cnn": ("GridEncoder", "ImpalaCNN", "NatureCNN", "SmallCNN"),
    "operant.models.layers": ("linear", "mlp"),
    "operant.models.distributions": ("Distribution",),
    "operant.models.joint": ("Joint",),
    "operant.models.action_distributions": ("distribution_for",),
    "operant.buffers.normalizer": ("RunningNormalizer",),
    "operant.models.bonus": ("Bonus",),
    "operant.models.rnd": ("RND",),
    "operant.models.popart": ("PopArtValueHead",),
    "operant.models.icm": ("ICM",),
    "operant.models.episodic_count": ("EpisodicCount",),
    "operant.models.tree_normalizer": ("TreeNormalizer",),
    "operant.ppo.ppo": ("PPO", "AsyncPPO"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "ICM",
    "PPO",
    "RND",
    "ActorCritic",
    "AsyncPPO",
    "Bonus",
    "ContinuousActorCritic",
    "DiscreteActorCritic",
    "Distribution",
    "Embedding",
    "EncoderOptions",
    "EpisodicCount",
    "GridEncoder",
    "ImpalaCNN",
    "Joint",
    "JointActorCritic",
    "NatureCNN",
    "Numbers",
    "OneHot",
    "PopArtValueHead",
    "RunningNormalizer",
    "SmallCNN",
    "TreeEncoder",
    "TreeNormalizer",
    "distribution_for",
    "leaf_encoder",
    "linear",
    "mlp",
    "policy_for",
]


def __getattr__(name: str) -> Any:
    # PPO imports this package, so it is looked up when asked for.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
