"""Kill trainings with ``kill -9`` at random moments, resume them, and compare how they end.

    python benchmarks/kills.py [--kills 50] [--seed 0]

Each engine of the CPU trains several environments, one of them with a state of arrays. A training
is killed, resumed, killed again and so on until it is done; its last checkpoint must then be that
of a training which nobody interrupted, to the bit. Prints a table; exits with 1 if anything
differs. Takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "training"))
from test_kill import ITERATIONS, VALUES, Server, assert_equal, end_of  # noqa: E402


@dataclass
class Job:
    """What is trained, and what came of it."""

    env: str
    engine: str
    num_envs: int = 16
    kills: int = 0
    trainings: int = 0
    differ: int = 0
    seconds: float = 0.0

    @property
    def values(self) -> dict[str, Any]:
        """Its configuration, by dotted name."""
        steps = self.num_envs * VALUES["ppo.num_steps"] * ITERATIONS
        own = {"env.num_envs": self.num_envs, "run.engine": self.engine, "run.device": "cpu"}
        return {**VALUES, **own, "run.total_steps": steps}

    @property
    def label(self) -> str:
        """Its name in the table."""
        return f"{self.env.rpartition(':')[2]} {self.engine}"


SNAKE = f"{ROOT / 'examples' / 'snake.py'}:Snake"
JOBS = [
    Job(env, engine, num_envs)
    for env, num_envs in (
        ("CartPole-v1", 16),
        ("Pendulum-v1", 16),
        (SNAKE, 16),
        ("Prospector-v0", 4),
    )
    for engine in ("eager", "fused")
]


def train(job: Job, kills: int, moments: random.Random) -> None:
    """Kill trainings of a job until there were so many kills, and note how they ended."""
    began = time.monotonic()
    server = Server(dict(os.environ), job.env, job.values)
    prefix = f"{job.label.replace(' ', '-').lower()}"
    try:
        if server.train(f"{prefix}-first") != 0:  # compiles
            raise SystemExit(f"{job.label} does not train")
        start = time.monotonic()
        assert server.train(f"{prefix}-whole") == 0
        span = time.monotonic() - start
        expected = end_of(f"{prefix}-whole", job.values["run.total_steps"])
        while job.kills < kills:
            name = f"{prefix}-{job.trainings}"
            job.trainings += 1
            _kill_until_done(job, server, name, kills, lambda: moments.uniform(0.0, span))
            try:
                assert_equal(end_of(name, job.values["run.total_steps"]), expected)
            except AssertionError as error:
                job.differ += 1
                print(f"{job.label}: {str(error).strip()}", file=sys.stderr)
    finally:
        server.close()
        job.seconds = time.monotonic() - began


def _kill_until_done(job: Job, server: Server, name: str, kills: int, moment: Any) -> None:
    while True:
        code = server.train(name, moment() if job.kills < kills else -1.0)
        if code == 0:
            return
        if code != -signal.SIGKILL:
            raise SystemExit(f"{job.label}: a resumed training ended with exit code {code}")
        job.kills += 1


def main() -> int:
    """Kill, print a table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    moments = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as home:
        os.environ["OPERANT_HOME"] = home
        for k, job in enumerate(JOBS):
            kills = asked.kills * (k + 1) // len(JOBS) - asked.kills * k // len(JOBS)
            if kills:
                print(f"{job.label}: {kills} kills", file=sys.stderr, flush=True)
                train(job, kills, moments)
    print(f"{'environment and engine':26}{'kills':>6}{'trainings':>11}{'differ':>8}{'seconds':>9}")
    for job in JOBS:
        print(f"{job.label:26}{job.kills:6}{job.trainings:11}{job.differ:8}{job.seconds:9.0f}")
    kills, differ = sum(job.kills for job in JOBS), sum(job.differ for job in JOBS)
    print(f"{kills} kills (seed {asked.seed}), {differ} trainings that ended differently")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
