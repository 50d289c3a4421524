"""Prospector: how fast it steps, and what pilots and PPO score.

    python benchmarks/prospector_scores.py benchmarks/results/prospector_2_cores.json [speed scores]

*speed*: compiled code (1024 environments, two workers) and plain Python take turns. *scores*: the
random and the greedy pilot over 500 seasons, and PPO from the shipped configuration with five
seeds, each evaluated over 500 other seasons with the most probable actions. Uses the commands a
user types. Takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
from solve import operant as command

import operant
from operant.bench.frame import frame, write_json
from operant.envs.prospector.pilots import greedy_pilot, play, random_pilot
from operant.envs.prospector.prospector import SEASON

SEEDS = (1, 2, 3, 4, 5)
SEASONS = 500


def _recorded(num_envs: int, steps: int) -> list[np.ndarray]:
    """Masked random actions of so many steps from seed 0."""
    batch = operant.make("Prospector-v0", num_envs, backend="cpu", seed=0)
    batch.reset(seed=0)
    random, actions = np.random.default_rng(0), []
    for _ in range(steps):
        noise = random.random(batch.action_masks().shape)
        actions.append(np.where(batch.action_masks(), noise, -1.0).argmax(1))
        batch.step(actions[-1])
    return actions


def _rate(batch: Any, actions: list[np.ndarray]) -> float:
    """Steps a second when they are played again."""
    batch.reset(seed=0)
    began = time.perf_counter()
    for row in actions:
        batch.step(row)
    return len(actions) * batch.num_envs / (time.perf_counter() - began)


def speed(rounds: int = 9) -> list[dict[str, Any]]:
    """Compiled and plain take turns: seasons of masked random actions, recorded beforehand."""
    many, few = _recorded(1024, 4 * SEASON), _recorded(2, SEASON // 2)
    native = operant.make("Prospector-v0", 1024, backend="cpu", workers=2, copy=False)
    plain = operant.make("Prospector-v0", 2, backend="reference", copy=False)
    found: dict[str, list[float]] = {"cpu": [], "reference": []}
    _rate(native, many)  # compiles
    for _ in range(rounds):
        found["cpu"].append(_rate(native, many))
        found["reference"].append(_rate(plain, few))
    ratios = [a / b for a, b in zip(found["cpu"], found["reference"], strict=True)]
    return [
        {
            "what": "speed",
            "num_envs": {"cpu": 1024, "reference": 2},
            "workers": 2,
            "sps": {name: round(statistics.median(rates)) for name, rates in found.items()},
            "sps_min": {name: round(min(rates)) for name, rates in found.items()},
            "sps_max": {name: round(max(rates)) for name, rates in found.items()},
            "ratio": statistics.median(ratios),
        }
    ]


def scores() -> list[dict[str, Any]]:
    """Pilots, then PPO."""
    found: list[dict[str, Any]] = []
    for name, pilot in (("random", random_pilot()), ("greedy", greedy_pilot)):
        returns = play(pilot, SEASONS)
        row = {"what": "score", "pilot": name, "seasons": SEASONS}
        row |= {"mean": float(np.mean(returns)), "std": float(np.std(returns))}
        found.append(row)
        print(row, flush=True)
    for seed in SEEDS:
        options = ("--seed", str(seed), "--set", "run.eval_episodes=0")
        trained = command("train", "Prospector-v0", *options)
        tested = command("eval", trained["run_id"], "--episodes", str(SEASONS))
        row = {"what": "score", "pilot": "ppo", "seed": seed, "seasons": SEASONS}
        row |= {"mean": tested["mean_return"], "std": tested["std_return"]}
        row |= {key: trained[key] for key in ("run_id", "engine", "steps", "seconds", "sps")}
        found.append(row)
        print(row, flush=True)
    return found


def main() -> None:
    """Run the parts and write the figures."""
    parts = {"speed": speed, "scores": scores}
    found = [row for name in sys.argv[2:] or parts for row in parts[name]()]
    write_json(sys.argv[1], frame(found))
    for row in found:
        print(row)


if __name__ == "__main__":
    main()
