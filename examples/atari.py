"""Train on Atari's Pong from pixels: `pip install ".[atari]"` first.

Its shipped configuration has the usual preprocessing: four grey frames of 84 x 84 at once, every
fourth frame, rewards clipped to -1 .. 1. Ten million steps take hours on a laptop.
"""

import sys

from operant.models import PPO


def main(env: str = "ALE/Pong-v5", total_steps: int = 10_000_000, **options) -> PPO:
    ppo = PPO(env, **options)
    print(f"{ppo.env.single_observation_space.shape}, engine {ppo.engine.name} on {ppo.device}")
    return ppo.learn(total_steps)


if __name__ == "__main__":
    main(*sys.argv[1:2])
