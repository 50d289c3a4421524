"""A bonus of one's own: pay for observations that a network cannot yet copy.

python examples/own_bonus.py
"""

from __future__ import annotations

import torch

from operant import PPO
from operant.models import Bonus


class Copies(Bonus):
    name = "copies"

    def build(self, setting):
        (size,) = setting.observation_space.shape
        self.network = torch.nn.Sequential(
            torch.nn.Linear(size, 2), torch.nn.Tanh(), torch.nn.Linear(2, size)
        )

    def reward(self, obs, action, next_obs):
        return (self.network(next_obs) - next_obs).square().mean(-1)

    def loss(self, batch):
        return self.reward(None, None, batch.next_obs)


if __name__ == "__main__":
    ppo = PPO("MountainCar-v0", seed=1, intrinsic=Copies(), **{"intrinsic.coef": 0.1})
    print(f"mean return {ppo.learn(200_000).mean_return:.0f}")
