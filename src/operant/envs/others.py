"""What runs of other libraries' environments start from, by id: wrappers, sizes, tuned values.

Those of our own environments are `training` of their classes. Values here were chosen with seeds 1
to 3; `benchmarks/others.py` trains them with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LANDER = {
    "run.total_steps": 1_000_000,
    "env.num_envs": 16,
    "ppo.num_steps": 512,
    "ppo.minibatches": 64,
    "ppo.epochs": 4,
    "ppo.learning_rate": 1e-3,
    "ppo.gamma": 0.999,
    "ppo.gae_lambda": 0.98,
    "ppo.entropy_coef": 0.01,
    "ppo.normalize_reward": True,
}
_MUJOCO = {
    "run.total_steps": 1_000_000,
    "env.num_envs": 8,
    "ppo.num_steps": 256,
    "ppo.minibatches": 32,
    "ppo.epochs": 10,
    "ppo.learning_rate": 3e-4,
    "ppo.gamma": 0.99,
    "ppo.gae_lambda": 0.95,
    "ppo.entropy_coef": 0.0,
    "ppo.normalize_reward": True,
    "policy.log_std": -0.5,
}
_CHEETAH = {  # rewards follow at once: what is far ahead matters less than elsewhere
    **_MUJOCO,
    "ppo.num_steps": 128,
    "ppo.minibatches": 16,
    "ppo.learning_rate": 5e-4,
    "ppo.gamma": 0.98,
    "ppo.gae_lambda": 0.92,
    "policy.log_std": -2.0,
}
_TABLES = {  # toy text: a few hundred states at most, and short episodes
    "run.total_steps": 500_000,
    "env.num_envs": 32,
    "ppo.num_steps": 64,
    "ppo.minibatches": 8,
    "ppo.epochs": 4,
    "ppo.learning_rate": 2e-3,
    "ppo.gamma": 0.99,
    "ppo.entropy_coef": 0.01,
}
_MINIGRID = {
    "env.wrappers": ("minigrid.wrappers:ImgObsWrapper",),
    "env.num_envs": 16,
    "ppo.num_steps": 128,
    "ppo.minibatches": 8,
    "ppo.epochs": 4,
    "ppo.learning_rate": 1e-3,
    "ppo.entropy_coef": 0.01,
    "intrinsic.kind": "count",
    "intrinsic.coef": 0.005,
    "intrinsic.coef_schedule": "linear",
    "intrinsic.count_form": "first",
    "run.total_steps": 500_000,
}
_ATARI = {
    "env.params": {"frameskip": 1},
    "env.wrappers": (
        "gymnasium.wrappers:AtariPreprocessing(terminal_on_life_loss=False)",
        "gymnasium.wrappers:ClipReward(min_reward=-1, max_reward=1)",
    ),
    "env.frame_stack": 4,
    "env.num_envs": 16,
    "ppo.num_steps": 128,
    "ppo.minibatches": 8,
    "ppo.epochs": 4,
    "ppo.learning_rate": 5e-4,
    "ppo.entropy_coef": 0.01,
    "policy.shared": True,
    "policy.hidden": (),
    "policy.activation": "relu",
    "policy.normalize_obs": False,
    "run.total_steps": 10_000_000,
}
_BY_ID: dict[str, Mapping[str, Any]] = {
    "LunarLander-v3": _LANDER,
    "Hopper-v5": _MUJOCO,
    "HalfCheetah-v5": _CHEETAH,
    "FrozenLake-v1": _TABLES,
    "Taxi-v3": _TABLES,
    "Taxi-v4": _TABLES,
    "CliffWalking-v1": _TABLES,
    "Blackjack-v1": _TABLES,
}
_BY_BEGINNING: dict[str, Mapping[str, Any]] = {
    "MiniGrid-": _MINIGRID,
    "BabyAI-": _MINIGRID,
    "ALE/": _ATARI,
}
SHIPPED_IDS = (
    *_BY_ID,
    *(f"MiniGrid-{name}-v0" for name in ("Empty-5x5", "DoorKey-5x5", "FourRooms")),
    "ALE/Pong-v5",
    "ALE/Breakout-v5",
)
"""Ids whose values are measured; other games of these families start from the same."""


def training_of(env_id: str) -> dict[str, Any]:
    """The values for an id of Gymnasium's, with or without the module before it, by dotted name;
    empty where there are none."""
    name = env_id.rpartition(":")[2]
    beginning = next(
        (values for start, values in _BY_BEGINNING.items() if name.startswith(start)), {}
    )
    return {**beginning, **_BY_ID.get(name, {})}
