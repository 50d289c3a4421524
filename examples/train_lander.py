"""Train the environment of `lander.py` from Python; a callback watches and stops early."""

from lander import Lander

from operant import Callback
from operant.models import PPO
from operant.training.evaluate import evaluate

GOOD = 8.0  # a soft landing is worth 10, less 0.02 for each step in the air


class UntilItLands(Callback):
    watches_only = True

    def on_update(self, ppo, metrics):
        if ppo.iteration % 20 == 0:
            print(f"{metrics['steps']:>8.0f} steps   return {metrics['mean_return']:6.2f}")
        if metrics["mean_return"] > GOOD:
            ppo.stop()


def main(total_steps: int = 1_000_000, seed: int = 0) -> float:
    ppo = PPO(Lander, seed=seed)
    ppo.learn(total_steps, callbacks=[UntilItLands()])
    found = evaluate(ppo.agent, Lander, ppo.config.env, episodes=100)
    print(f"return {found.mean_return:.2f} +- {found.std_return:.2f} (a soft landing is worth 10)")
    return found.mean_return


if __name__ == "__main__":
    main()
