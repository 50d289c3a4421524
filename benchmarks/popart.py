"""PopArt where rewards differ by a thousand between tasks, beside what it is instead of.

    python benchmarks/popart.py benchmarks/results/popart_2_cores.json

Gymnasium's CartPole in two versions that take turns at random: one pays 1 a step, the other 1000
and swaps left and right; the observation says which it is. One policy learns both, with five seeds,
of which 101 and 102 were used for nothing else. How long its episodes are in either, 500 at most,
is what it has learnt.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from statistics import mean
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from operant import PPO
from operant.bench.frame import frame, write_json
from operant.toolchain.machine import commit

SEEDS = (1, 2, 3, 101, 102)
STEPS, EPISODES = 300_000, 40
REWARDS = (1.0, 1000.0)
WAYS: dict[str, dict[str, Any]] = {
    "popart": {"value_head": "popart", "normalize_reward": False},
    "rewards normalised": {"normalize_reward": True},
    "neither": {"normalize_reward": False},
}


class TwoCartPoles(gymnasium.Env[Any, Any]):
    """Which one it is is drawn when an episode begins."""

    def __init__(self) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self.action_space = self._env.action_space
        low, high = np.full(4, -np.inf, np.float32), np.full(4, np.inf, np.float32)
        self.observation_space = spaces.Dict(
            {"task": spaces.Discrete(2), "cart": spaces.Box(low, high)}
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of either."""
        super().reset(seed=seed)
        self.task = int(self.np_random.integers(2))
        cart, info = self._env.reset(seed=seed)
        return {"task": self.task, "cart": cart}, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the one that was drawn."""
        cart, _, terminated, truncated, info = self._env.step(int(action) ^ self.task)
        return {"task": self.task, "cart": cart}, REWARDS[self.task], terminated, truncated, info


class Task(NamedTuple):
    """A training: one of `WAYS`, and a seed."""

    way: str
    seed: int


def lengths(ppo: PPO) -> list[float]:
    """Mean length of greedy episodes of each version."""
    env, found = TwoCartPoles(), [[], []]  # type: ignore[var-annotated]
    for episode in range(EPISODES):
        (obs, _), over, steps = env.reset(seed=10_000 + episode), False, 0
        while not over:
            one = {"task": np.array([obs["task"]]), "cart": obs["cart"][None]}
            obs, _, terminated, truncated, _ = env.step(ppo.predict(one)[0])
            over, steps = terminated or truncated, steps + 1
        found[env.task].append(steps)
    return [mean(each) for each in found]


def trained(task: Task) -> dict[str, Any]:
    """One training and what it comes to."""
    sizes = {"num_envs": 16, "num_steps": 128, "minibatches": 8, "learning_rate": 1e-3}
    run = {"seed": task.seed, "threads": 1, "device": "cpu", "total_steps": STEPS}
    ppo = PPO(TwoCartPoles, backend="serial", **sizes, **run, **WAYS[task.way])
    small, large = lengths(ppo.learn())
    return {
        **task._asdict(),
        "steps": ppo.steps,
        "length_of_reward_1": small,
        "length_of_reward_1000": large,
        "commit": commit(),
    }


def main() -> None:
    """Train everything, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("target", help="a JSON file, or - for standard output")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, a thread each")
    given = parser.parse_args()
    tasks = [Task(way, int(seed)) for way in WAYS for seed in given.seeds.split(",")]
    rows = []
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for row in pool.imap(trained, tasks):
            rows.append(row)
            print(
                f"{row['way']:18} seed {row['seed']:3}  steps an episode: "
                f"{row['length_of_reward_1']:5.1f} at a reward of 1, "
                f"{row['length_of_reward_1000']:5.1f} at 1000",
                file=sys.stderr,
                flush=True,
            )
    write_json(given.target, frame(rows))


if __name__ == "__main__":
    main()
