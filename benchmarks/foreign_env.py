"""Steps per second of Gymnasium's CartPole in every way of running many, side by side.

``python benchmarks/foreign_env.py --num-envs 64 --rounds 5``: rounds are interleaved, so that what
else the machine does falls on all alike; the median round is reported, and its ratio to a plain
loop and to ``AsyncVectorEnv``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from operant.vector.foreign_batch import ForeignBatch

MAKE = partial(gymnasium.make, "CartPole-v1")
Steps = Callable[[np.ndarray], object]


def plain_loop(num_envs: int) -> tuple[Steps, Callable[[], object]]:
    """A function that steps all environments once, and one that closes them."""
    envs = [MAKE() for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=i)

    def step(actions: np.ndarray) -> None:
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step, lambda: [env.close() for env in envs]


def vector(env: Any) -> tuple[Steps, Callable[[], object]]:
    """The same for a vector environment."""
    env.reset(seed=0)
    return env.step, env.close


def contenders(num_envs: int, workers: int) -> dict[str, tuple[Steps, Callable[[], object]]]:
    """Everything that is compared, started."""
    makers = [MAKE] * num_envs
    found = {
        "plain loop": plain_loop(num_envs),
        "SyncVectorEnv": vector(SyncVectorEnv(makers)),
        "AsyncVectorEnv": vector(AsyncVectorEnv(makers)),
        "operant serial": vector(ForeignBatch(MAKE, num_envs, backend="serial")),
        f"operant processes, {workers}": vector(
            ForeignBatch(MAKE, num_envs, backend="processes", workers=workers)
        ),
    }
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError:
        return found
    peer = SubprocVecEnv(makers)
    peer.reset()
    return found | {"SB3 SubprocVecEnv": (peer.step, peer.close)}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contender, a round")
    options = parser.parse_args()
    all_of_them = contenders(options.num_envs, options.workers)
    actions = np.random.default_rng(0).integers(0, 2, (256, options.num_envs))
    rates: dict[str, list[float]] = {name: [] for name in all_of_them}
    for _ in range(options.rounds):
        for name, (step, _) in all_of_them.items():
            count, began = 0, time.perf_counter()
            while (passed := time.perf_counter() - began) < options.seconds:
                step(actions[count % len(actions)])
                count += 1
            rates[name].append(count * options.num_envs / passed)
    for _, close in all_of_them.values():
        close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"{options.num_envs} CartPoles, {os.cpu_count()} cores, median of {options.rounds}")
    print(f"{'':24}{'steps/s':>10}{'us/step':>9}{'x plain':>9}{'x async':>9}")
    for name, rate in medians.items():
        plain, other = rate / medians["plain loop"], rate / medians["AsyncVectorEnv"]
        print(f"{name:24}{rate:10,.0f}{1e6 / rate:9.2f}{plain:9.2f}{other:9.2f}")


if __name__ == "__main__":
    main()
