"""The environments, one a file, and their vector classes.

``operant.envs.CartPole`` holds the rules; ``operant.envs.CartPoleVecEnv(num_envs, workers=1)`` runs
a batch. Both are loaded when first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operant.vector.registry import env_ids, get_env, register

if TYPE_CHECKING:
    from operant.envs.classic.acrobot import Acrobot
    from operant.envs.classic.cartpole import CartPole
    from operant.envs.classic.mountain_car import MountainCar
    from operant.envs.classic.mountain_car_continuous import MountainCarContinuous
    from operant.envs.classic.pendulum import Pendulum
    from operant.envs.classic.vec_envs import (
        AcrobotVecEnv,
        CartPoleVecEnv,
        MountainCarContinuousVecEnv,
        MountainCarVecEnv,
        PendulumVecEnv,
    )
    from operant.envs.prospector.prospector import Prospector
    from operant.lang.env import Env

_MODULES = {
    "Env": "operant.lang.env",
    "CartPole": "operant.envs.classic.cartpole",
    "MountainCar": "operant.envs.classic.mountain_car",
    "MountainCarContinuous": "operant.envs.classic.mountain_car_continuous",
    "Pendulum": "operant.envs.classic.pendulum",
    "Acrobot": "operant.envs.classic.acrobot",
    "Prospector": "operant.envs.prospector.prospector",
    "CartPoleVecEnv": "operant.envs.classic.vec_envs",
    "MountainCarVecEnv": "operant.envs.classic.vec_envs",
    "MountainCarContinuousVecEnv": "operant.envs.classic.vec_envs",
    "PendulumVecEnv": "operant.envs.classic.vec_envs",
    "AcrobotVecEnv": "operant.envs.classic.vec_envs",
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
