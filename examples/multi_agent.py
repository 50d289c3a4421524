"""Train the three agents of PettingZoo's `simple_spread`, who share one policy.

Each agent is a row of the batch: 8 environments are 24 rows. `pip install mpe2` first.
"""

from mpe2 import simple_spread_v3

from operant import Callback
from operant.models import PPO


def make_env():
    return simple_spread_v3.parallel_env(N=3, max_cycles=25)


class Watch(Callback):
    def on_update(self, ppo, metrics):
        if ppo.iteration % 20 == 0:
            each = [metrics[f"return/agent_{k}"] for k in range(3)]
            agents = "  ".join(f"{value:7.2f}" for value in each)
            print(f"{metrics['steps']:>9.0f} steps   return of each agent {agents}")


def main(
    total_steps: int = 600_000, num_envs: int = 8, num_steps: int = 400, seed: int = 0
) -> float:
    ppo = PPO(
        make_env,
        seed=seed,
        num_envs=num_envs,
        num_steps=num_steps,
        gamma=0.95,
        normalize_reward=True,
        device="cpu",
    )
    ppo.learn(total_steps, callbacks=[Watch()])
    reached = ppo.evaluated().greedy.mean_return
    print(f"return of an agent {reached:.2f}")
    return reached


if __name__ == "__main__":
    main()
