"""SparseMountainCar-v0: the mountain car with nothing to learn from before the flag."""

from __future__ import annotations

from operant.envs.classic.mountain_car import MountainCar
from operant.lang import where


class SparseMountainCar(MountainCar):
    """As `MountainCar`, with another reward: 1 at the flag, 0 for every other step.

    The time limit is MountainCar's, 200 steps, in which random actions hardly ever reach the flag.
    """

    env_id = "SparseMountainCar-v0"
    max_episode_steps = 200
    reward_threshold = 0.9
    training = {  # plain PPO sees no reward and learns nothing: docs/exploration.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 64,
        "ppo.epochs": 8,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 1e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.01,
        "run.total_steps": 500_000,
        "intrinsic.kind": "rnd",
    }

    @staticmethod
    def step(
        state: MountainCar.State, action: int, params: MountainCar.Params
    ) -> tuple[MountainCar.State, float, bool]:
        """MountainCar's step, paid at the flag alone."""
        after, _, terminated = MountainCar.step(state, action, params)
        return after, where(terminated, 1.0, 0.0), terminated
