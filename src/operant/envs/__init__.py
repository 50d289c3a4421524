"""The environments, one a file, and their vector classes.

``operant.envs.CartPole`` holds the rules; ``operant.envs.CartPoleVecEnv(num_envs, workers=1)`` runs
a batch. Both are loaded when first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operant.envs.registry import env_ids, get_env, register

if TYPE_CHECKING:
    from operant.envs.acrobot import Acrobot
    from operant.envs.cartpole import CartPole
    from operant.envs.env import Env
    from operant.envs.mountain_car import MountainCar
    from operant.envs.mountain_car_continuous import MountainCarContinuous
    from operant.envs.pendulum import Pendulum
    from operant.envs.prospector import Prospector
    from operant.vector.classic import (
        AcrobotVecEnv,
        CartPoleVecEnv,
        MountainCarContinuousVecEnv,
        MountainCarVecEnv,
        PendulumVecEnv,
    )

_MODULES = {
    "Env": "operant.envs.env",
    "CartPole": "operant.envs.cartpole",
    "MountainCar": "operant.envs.mountain_car",
    "MountainCarContinuous": "operant.envs.mountain_car_continuous",
    "Pendulum": "operant.envs.pendulum",
    "Acrobot": "operant.envs.acrobot",
    "Prospector": "operant.envs.prospector",
    "CartPoleVecEnv": "operant.vector.classic",
    "MountainCarVecEnv": "operant.vector.classic",
    "MountainCarContinuousVecEnv": "operant.vector.classic",
    "PendulumVecEnv": "operant.vector.classic",
    "AcrobotVecEnv": "operant.vector.classic",
}

__all__ = [
    "Acrobot",
    "AcrobotVecEnv",
    "CartPole",
    "CartPoleVecEnv",
    "Env",
    "MountainCar",
    "MountainCarContinuous",
    "MountainCarContinuousVecEnv",
    "MountainCarVecEnv",
    "Pendulum",
    "PendulumVecEnv",
    "Prospector",
    "env_ids",
    "get_env",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
