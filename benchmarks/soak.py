"""Batches of foreign environments made, stepped, killed, restarted and closed for a long time.

    python benchmarks/soak.py [--minutes 30]

One batch with worker processes lives all the while; others come and go. Memory, open files,
threads and processes of this process, and the memory of the long-lived workers, are noted after a
warm-up and at the end; exits with 1 if they grew.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil

from operant.backends.foreign.errors import ForeignEnvError
from operant.vector.async_pool import AsyncEnvPool
from operant.vector.foreign_batch import ForeignBatch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "backends" / "foreign"))
from faulty import DIE, RAISE, Faulty

MAKE = partial(gymnasium.make, "CartPole-v1")
_SLACK_MIB = 8.0
"""What memory may differ by: allocators keep some, by chance more or less."""


@dataclass(frozen=True)
class Reading:
    """What this process and the long-lived workers hold."""

    rss_mib: float
    workers_mib: float
    files: int
    threads: int
    processes: int
    shared: int

    @classmethod
    def now(cls, batch: ForeignBatch) -> Reading:
        """Taken now."""
        gc.collect()
        this = psutil.Process()
        workers = [psutil.Process(w.process.pid) for w in batch._executor._workers]  # type: ignore[attr-defined]
        rss = sum(worker.memory_info().rss for worker in workers)
        shared = len(list(Path("/dev/shm").iterdir())) if Path("/dev/shm").is_dir() else 0
        return cls(
            this.memory_info().rss / 2**20,
            rss / 2**20,
            this.num_fds(),
            this.num_threads(),
            len(this.children(recursive=True)),
            shared,
        )

    def grew(self, first: Reading) -> list[str]:
        """What is more than it was, in words."""
        found = []
        for name, slack in (
            ("rss_mib", _SLACK_MIB),
            ("workers_mib", _SLACK_MIB),
            ("files", 0),
            ("threads", 0),
            ("processes", 0),
        ):
            before, after = getattr(first, name), getattr(self, name)
            if after > before + slack:
                found.append(f"{name} grew from {before:.0f} to {after:.0f}")
        return found


def cycle(number: int, chance: random.Random) -> int:
    """Make a batch of some kind, use it, close it; how many environment steps."""
    kinds: list[dict[str, Any]] = [
        {"backend": "processes", "workers": 2},
        {"backend": "processes", "workers": 2, "context": "forkserver"},
        {"backend": "threads", "workers": 2},
        {"backend": "serial"},
    ]
    options = kinds[number % len(kinds)]
    what = number // len(kinds) % 4
    steps = chance.randrange(20, 200)
    if what == 0:
        return _faults(options)
    if what == 1:
        return _pool(options, steps)
    batch = ForeignBatch(MAKE, 8, **options)
    batch.reset(seed=number)
    for _ in range(steps):
        batch.step(np.zeros(8, np.int64))
    if what == 2:
        batch.close()
    return 8 * steps  # or dropped, and closed by the collector


def _faults(options: dict[str, Any]) -> int:
    batch = ForeignBatch(Faulty, 4, on_worker_death="restart", **options)
    batch.reset()
    for action in (RAISE, DIE) if options["backend"] == "processes" else (RAISE,):
        try:
            batch.step(np.array([0, 0, action, 0]))
        except ForeignEnvError:
            batch.reset()
    batch.step(np.zeros(4, np.int64))
    batch.close()
    return 12


def _pool(options: dict[str, Any], steps: int) -> int:
    pool = AsyncEnvPool(MAKE, 8, 4, **options)
    pool.reset(seed=0)
    for _ in range(steps):
        *_, info = pool.recv()
        pool.send(np.zeros(4, np.int64), info["env_id"])
    pool.close()
    return 4 * steps


def pid_of(batch: ForeignBatch, worker: int) -> int:
    """The process of a worker."""
    return batch._executor._workers[worker].process.pid  # type: ignore[attr-defined, no-any-return]


def main() -> int:
    """Soak, print first and last readings; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    lasting = ForeignBatch(MAKE, 8, backend="processes", workers=2, on_worker_death="restart")
    lasting.reset(seed=0)
    began, cycles, steps, deaths = time.monotonic(), 0, 0, 0
    first = None
    readings = []
    while (passed := (time.monotonic() - began) / 60) < asked.minutes or first is None:
        steps += cycle(cycles, chance)
        for _ in range(500):
            lasting.step(np.ones(8, np.int64))
        steps += 8 * 500
        cycles += 1
        if cycles % 32 == 0:  # a multiple of what `cycle` goes through
            if cycles % 96 == 0:
                # Not in a variable: that would keep its memory and open files.
                os.kill(pid_of(lasting, cycles // 96 % 2), signal.SIGKILL)
                lasting.step(np.ones(8, np.int64))
                deaths += 1
            readings.append(Reading.now(lasting))
            first = readings[-1] if first is None and passed > asked.minutes / 10 else first
            print(f"{passed:5.1f} min, {cycles} cycles: {readings[-1]}", flush=True)
    last = Reading.now(lasting)
    lasting.close()
    print(f"{cycles} batches, {steps:,} steps, {deaths} of the lasting workers killed")
    print(f"first {first}\nlast  {last}")
    grown = last.grew(first)
    print("; ".join(grown) or "flat")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
