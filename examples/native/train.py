"""Train the snake of `snake.c` from Python. Build it first; the line is at the top of that file."""

from pathlib import Path

from operant import Callback
from operant.models import PPO
from operant.training.evaluate import evaluate
from operant.vector.native import load


class Report(Callback):
    def on_update(self, ppo, metrics):
        if ppo.iteration % 10 == 0:
            print(f"{metrics['steps']:>8.0f} steps   return {metrics['mean_return']:6.2f}")


LIBRARY = Path(__file__).with_name("libsnake.so")


def main(library: Path = LIBRARY, total_steps: int = 500_000, seed: int = 0) -> float:
    snake = load(library)
    ppo = PPO(snake, seed=seed)
    ppo.learn(total_steps, callbacks=[Report()])
    found = evaluate(ppo.agent, snake, ppo.config.env, episodes=100)
    print(f"return {found.mean_return:.1f} +- {found.std_return:.1f} (an apple is worth 1)")
    return found.mean_return


if __name__ == "__main__":
    main()
