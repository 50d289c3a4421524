"""Train on pictures: balls that bounce off the walls are caught at the bottom.

    operant train examples/pixels.py:Catch --set env.frame_stack=2 --total-steps 2e5

One picture does not tell which way a ball flies, two do: `env.frame_stack=2`.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.models import PPO

CELLS = 9
SCALE = 4  # pixels of a cell


class Catch(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, balls: int = 5, render_mode: str | None = None):
        self.balls, self.render_mode = balls, render_mode
        side = CELLS * SCALE
        self.observation_space = spaces.Box(0, 255, (side, side, 1), np.uint8)
        self.action_space = spaces.Discrete(3)  # left, stay, right

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.paddle, self.left = CELLS // 2, self.balls
        self._drop()
        return self._picture(), {}

    def _drop(self):
        self.x, self.y = int(self.np_random.integers(CELLS)), 0
        self.drift = int(self.np_random.choice((-1, 1)))

    def step(self, action):
        self.paddle = min(max(self.paddle + int(action) - 1, 1), CELLS - 2)
        if not 0 <= self.x + self.drift < CELLS:
            self.drift = -self.drift
        self.x, self.y = self.x + self.drift, self.y + 1
        reward = 0.0
        if self.y == CELLS - 1:
            reward = 1.0 if abs(self.x - self.paddle) <= 1 else -1.0
            self.left -= 1
            self._drop()
        return self._picture(), reward, self.left == 0, False, {}

    def _picture(self):
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[self.y, self.x] = 255
        cells[CELLS - 1, self.paddle - 1 : self.paddle + 2] = 160
        return cells.repeat(SCALE, 0).repeat(SCALE, 1)[:, :, None]

    def render(self):
        return self._picture().repeat(6, 0).repeat(6, 1).repeat(3, 2)


def main(total_steps: int = 200_000, seed: int = 0, **options) -> float:
    ppo = PPO(Catch, frame_stack=2, seed=seed, **options)
    ppo.learn(total_steps)
    reached = ppo.evaluated().greedy.mean_return
    print(f"catches {reached:.2f} more than it misses, of {Catch().balls}")
    return reached


if __name__ == "__main__":
    main()
