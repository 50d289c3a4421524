"""Train on a Gymnasium environment of your own: a class, as you have it.

    operant train examples/gymnasium_env.py:Thermostat

It keeps a room at 21 degrees; the weather changes.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.models import PPO


class Thermostat(gymnasium.Env):
    def __init__(self, insulation: float = 0.9):
        self.insulation = insulation
        self.observation_space = spaces.Dict(
            {
                "inside": spaces.Box(-50, 80, (1,), np.float32),
                "outside": spaces.Box(-50, 50, (1,), np.float32),
                "season": spaces.Discrete(4),
            }
        )
        self.action_space = spaces.Discrete(3)  # cool, nothing, heat

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.season = int(self.np_random.integers(4))
        self.outside = float(self.np_random.normal((0, 12, 25, 10)[self.season], 4))
        self.inside = float(self.np_random.uniform(10, 30))
        self.hours = 0
        return self._obs(), {}

    def step(self, action):
        self.outside += float(self.np_random.normal(0, 1))
        self.inside = self.insulation * self.inside + (1 - self.insulation) * self.outside
        self.inside += 3.0 * (int(action) - 1)
        self.hours += 1
        reward = -abs(self.inside - 21.0) / 10 - 0.02 * (action != 1)
        return self._obs(), reward, False, self.hours >= 48, {}

    def _obs(self):
        return {
            "inside": np.array([self.inside], np.float32),
            "outside": np.array([self.outside], np.float32),
            "season": self.season,
        }


def main(total_steps: int = 200_000, num_envs: int = 16) -> PPO:
    ppo = PPO(Thermostat, num_envs=num_envs, num_steps=96, device="cpu", seed=1)
    ppo.learn(total_steps)
    print(f"return {ppo.evaluated().greedy.mean_return:.2f} over {ppo.config.run.eval_episodes}")
    return ppo


if __name__ == "__main__":
    main()
