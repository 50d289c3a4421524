"""A vector class for each classic-control environment: ``CartPoleVecEnv(num_envs, workers=1)``."""

from __future__ import annotations

from typing import Any

from operant.envs.classic.acrobot import Acrobot
from operant.envs.classic.cartpole import CartPole
from operant.envs.classic.mountain_car import MountainCar
from operant.envs.classic.mountain_car_continuous import MountainCarContinuous
from operant.envs.classic.pendulum import Pendulum
from operant.vector.env import VecEnv


class _ClassicVecEnv(VecEnv):
    def __init__(self, num_envs: int = 1, workers: int | str = 1, **options: Any) -> None:
        super().__init__(self.env_class, num_envs, workers=workers, **options)


class CartPoleVecEnv(_ClassicVecEnv):
    """A batch of CartPole-v1; options as in `operant.VecEnv`."""

    env_class = CartPole


class MountainCarVecEnv(_ClassicVecEnv):
    """A batch of MountainCar-v0; options as in `operant.VecEnv`."""

    env_class = MountainCar


class MountainCarContinuousVecEnv(_ClassicVecEnv):
    """A batch of MountainCarContinuous-v0; options as in `operant.VecEnv`."""

    env_class = MountainCarContinuous


class PendulumVecEnv(_ClassicVecEnv):
    """A batch of Pendulum-v1; options as in `operant.VecEnv`."""

    env_class = Pendulum


class AcrobotVecEnv(_ClassicVecEnv):
    """A batch of Acrobot-v1; options as in `operant.VecEnv`."""

    env_class = Acrobot
