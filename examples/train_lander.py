"""Train the environment of `lander.py` from Python.

A random pilot flies away, and one who has crashed keeps away from the ground: hovering costs 0.01 a
step, so nobody finds out that a soft landing is worth 10. A callback makes height expensive while
training; the evaluation is on the environment as it is.
"""

from lander import Lander

from operant.models import PPO
from operant.ppo.callbacks import Callback
from operant.ppo.evaluate import evaluate


class HeightCosts(Callback):
    def on_rollout(self, ppo, buffer):
        height = buffer.obs[:-1, :, 0]  # [steps, environments]
        buffer.reward -= 0.004 * height

    def on_update(self, ppo, metrics):
        if ppo.iteration % 10 == 0:
            print(f"{metrics['steps']:>8.0f} steps   return {metrics['mean_return']:6.2f}")


def main(total_steps: int = 400_000) -> float:
    ppo = PPO(Lander, num_envs=64, normalize_obs=True, entropy_coef=0.02, learning_rate=1e-3)
    ppo.learn(total_steps, callbacks=[HeightCosts()])
    found = evaluate(ppo.agent, Lander, ppo.config.env, episodes=100)
    print(f"return {found.mean_return:.2f} +- {found.std_return:.2f} (a soft landing is worth 10)")
    return found.mean_return


if __name__ == "__main__":
    main()
