"""What the default configuration is worth where nobody tuned it: the classic five with their
shipped configurations switched off, and the four environments of `held_out.py`.

    python benchmarks/defaults.py benchmarks/results/defaults_2_cores.json
    python benchmarks/defaults.py - --only Pendulum --seeds 1,2 --set ppo.learning_rate=2.5e-4

For each environment and seed a million steps with the default, with what the default was before,
and with a tuned configuration, each evaluated over 200 episodes with the most probable actions, and
the same episodes with random actions. The ratio is (default - random) / (tuned - random), of means
over the seeds. `--set` tries another default. The default was chosen on the classic five and the
examples, with seeds 1 to 3; 101 and 102 were never looked at before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from held_out import HELD_OUT, TUNED

import operant
from operant.bench.frame import frame, write_json
from operant.ppo.config import Config
from operant.ppo.config_file import parsed_settings, shipped_config
from operant.ppo.ppo import PPO
from operant.training.evaluate import evaluate, evaluation_env

CLASSIC = (
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
)
SEEDS = (1, 2, 3, 101, 102)
STEPS = 1_000_000
EPISODES = 200
BEFORE = {
    "policy.normalize_obs": False,
    "ppo.num_steps": 128,
    "ppo.minibatches": 4,
    "ppo.learning_rate": 2.5e-4,
    "ppo.learning_rate_schedule": "constant",
    "ppo.entropy_coef": 0.0,
    "ppo.normalize_reward": False,
}
WHICH = ("before", "default", "tuned")


class Task(NamedTuple):
    """A training: the environment's name, one of `WHICH`, a seed, and changes to the default."""

    env: str
    which: str
    seed: int
    changed: dict[str, Any]


def env_of(name: str) -> str | type[operant.Env]:
    """What PPO takes for it."""
    return HELD_OUT.get(name, name)


def config_of(task: Task) -> Config:
    """The whole configuration, which keeps PPO from looking for a shipped one."""
    tuned = TUNED[task.env] if task.env in HELD_OUT else shipped_config(task.env)
    values = {"before": BEFORE, "default": task.changed, "tuned": tuned}[task.which]
    run = {"run.seed": task.seed, "run.threads": 1, "run.total_steps": STEPS, "run.device": "cpu"}
    return Config().replaced({**values, **run})


def trained(task: Task) -> dict[str, Any]:
    """Train and evaluate."""
    ppo = PPO(env_of(task.env), config_of(task)).learn(STEPS)
    found = evaluate(ppo.agent, env_of(task.env), ppo.config.env, episodes=EPISODES, seed=7)
    ppo.env.close()
    return {
        "env": task.env,
        "held_out": task.env in HELD_OUT,
        "which": task.which,
        "seed": task.seed,
        "steps": ppo.steps,
        "engine": ppo.engine.name,
        "mean_return": found.mean_return,
        "std_return": found.std_return,
    }


def random_return(name: str) -> float:
    """Mean return of actions drawn from the action space, over the evaluation's episodes."""
    batch = evaluation_env(env_of(name), Config().env, EPISODES)
    space = batch.single_action_space
    space.seed(0)
    batch.reset(seed=7)
    returns = np.full(EPISODES, np.nan)
    while np.isnan(returns).any():
        *_, info = batch.step(np.stack([space.sample() for _ in range(EPISODES)]))
        if info:
            first = info["_episode"] & np.isnan(returns)
            returns[first] = info["episode"]["r"][first]
    return float(returns.mean())


def summary(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table."""
    of = {
        which: mean(row["mean_return"] for row in rows if row["which"] == which) for which in WHICH
    }
    base = random_return(name)
    return {
        "env": name,
        "held_out": name in HELD_OUT,
        "what": "ratio",
        "random": base,
        **of,
        "ratio": (of["default"] - base) / (of["tuned"] - base),
    }


def main() -> None:
    """Train everything, print the table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("target", help="a JSON file, or - for standard output")
    parser.add_argument("--only", default="", help="environments with this in their name")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, a thread each")
    given = parser.parse_args()
    changed = parsed_settings(given.set)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    names = [name for name in (*CLASSIC, *HELD_OUT) if given.only.lower() in name.lower()]
    found: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for name in names:
            rows = pool.map(trained, [Task(name, w, s, changed) for w in WHICH for s in seeds], 1)
            line = summary(name, rows)
            found += [*rows, line]
            print(
                f"{name:26} random {line['random']:8.2f}  before {line['before']:8.2f}  "
                f"default {line['default']:8.2f}  tuned {line['tuned']:8.2f}  "
                f"ratio {line['ratio']:5.2f}",
                file=sys.stderr,
                flush=True,
            )
    write_json(given.target, frame(found))


if __name__ == "__main__":
    main()
