"""What several ranks cost: their exchange by size, their speed beside threads, and a model of both.

    python benchmarks/ranks.py [--quick] [--engine fused]

Prints tables. First the time of an all-gather over gloo between two processes of this machine, by
size of the vector, with the line ``latency + bytes / bandwidth`` fitted to it. Then, for each
engine, training steps a second of one process with two threads and of two ranks with one thread
each, in turns. Last, with both, what the model of docs/scaling.md predicts for other machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

SIZES = (16, 256, 4096, 16384, 65536, 262144, 1048576)
"""float32 numbers a rank hands in."""
ITERATIONS = {"fused": "12", "eager": "5"}
NUM_ENVS, NUM_STEPS, MINIBATCHES, EPOCHS = 2048, 64, 8, 4


def measure_gather(repeats: int) -> None:
    """As one of two ranks: the median time of an all-gather, by size; rank 0 prints it."""
    import torch

    from operant.training.ranks import joined

    group = joined(60.0)
    torch.set_num_threads(1)
    found = {}
    for size in SIZES:
        vector, times = torch.ones(size), []
        for _ in range(repeats):
            began = time.perf_counter()
            group.gather(vector)
            times.append(time.perf_counter() - began)
        found[size] = statistics.median(times) * 1e6
    if group.rank == 0:
        print("RESULT", json.dumps(found))


def measure_training(engine: str, threads: int, iterations: int) -> None:
    """As a rank, or alone: the median seconds of an iteration and of an update; rank 0 prints."""
    from operant import PPO, Callback

    class Times(Callback):
        rows: list[dict[str, float]] = []

        def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
            self.rows.append(dict(metrics))

    ppo = PPO(
        "CartPole-v1",
        num_envs=NUM_ENVS,
        num_steps=NUM_STEPS,
        minibatches=MINIBATCHES,
        epochs=EPOCHS,
        engine=engine,
        threads=threads,
        device="cpu",
    )
    times = Times()
    ppo.learn(NUM_ENVS * NUM_STEPS * iterations, times, progress=False)
    if ppo.shards.group.rank == 0:
        rows = times.rows[2:]
        seconds = statistics.median(NUM_ENVS * NUM_STEPS / row["sps"] for row in rows)
        update = statistics.median(row["update_seconds"] for row in rows)
        gathered = [row.get("all_gather_seconds/rank_0", 0.0) for row in rows]
        parameters = sum(p.numel() for p in ppo.policy.parameters())
        found = [seconds, update, float(np.median(gathered)), parameters]
        print("RESULT", json.dumps(found))


def run(ranks: int, *arguments: str) -> Any:
    """What rank 0 of this file prints."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [*command, __file__, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        raise SystemExit(done.stderr)
    return json.loads(lines[-1].removeprefix("RESULT"))


def fitted(times: dict[int, float]) -> tuple[float, float]:
    """Latency in us and bandwidth in GB/s of the line that is nearest, by relative error."""
    size = np.array([4.0 * n for n in times])
    found = np.array(list(times.values()))
    columns = np.stack([np.ones_like(size), size], 1) / found[:, None]
    latency, each = np.linalg.lstsq(columns, np.ones(len(found)), rcond=None)[0]
    return float(latency), float(1e-3 / each)


def predicted(
    ranks: int, compute_s: float, size: int, latency_us: float, gigabytes_s: float, updates: int
) -> float:
    """Share of the time of an iteration that is not exchange, the work of a rank fixed.

    An all-gather hands each rank the vectors of all others, which it takes in one after the other.
    """
    others = ranks - 1
    exchange = updates * (
        latency_us * 1e-6 * np.ceil(np.log2(ranks)) + others * size / gigabytes_s / 1e9
    )
    return float(compute_s / (compute_s + exchange))


def main(quick: bool, engines: list[str]) -> None:
    """Measure, fit, print."""
    times = {int(k): v for k, v in run(2, "gather", "50" if quick else "300").items()}
    latency, bandwidth = fitted(times)
    print("| numbers | us |\n| --- | --- |")
    for size, us in times.items():
        print(f"| {size:,} | {us:,.0f} |")
    print(f"\nfit: {latency:.0f} us + bytes / {bandwidth:.2f} GB/s\n")
    print("| engine | 1 process, 2 threads | 2 ranks, 1 thread | ratio | exchange | minibatch |")
    print("| --- | --- | --- | --- | --- | --- |")
    for engine in engines:
        two = measure_beside_threads(engine, 1 if quick else 3)
        print_predictions(engine, two[0] - two[2], 4 * (int(two[3]) + 5), latency, bandwidth)


def measure_beside_threads(engine: str, turns: int) -> list[float]:
    """Print a row: one process and two ranks, in turns; the medians of two ranks."""
    alone, two = [], []
    for _ in range(turns):
        alone.append(run(1, "train", engine, "2", ITERATIONS[engine]))
        two.append(run(2, "train", engine, "1", ITERATIONS[engine]))
    one_s = statistics.median(row[0] for row in alone)
    medians = [statistics.median(row[k] for row in two) for k in range(4)]
    two_s, update_s, gather_s, _ = medians
    steps, minibatch = NUM_ENVS * NUM_STEPS, 1e3 * update_s / (EPOCHS * MINIBATCHES)
    print(
        f"| {engine} | {steps / one_s / 1e3:,.0f} k steps/s | {steps / two_s / 1e3:,.0f} k steps/s "
        f"| {one_s / two_s:.2f} | {100 * gather_s / two_s:.0f} % | {minibatch:.2f} ms |",
        flush=True,
    )
    return medians


def print_predictions(
    engine: str, compute_s: float, size: int, latency: float, bandwidth: float
) -> None:
    """What the model says of machines that were not measured, on standard error."""
    updates = EPOCHS * MINIBATCHES
    for name, ranks, us, speed in (
        ("8 ranks of one such machine with 8 cores", 8, latency, bandwidth),
        ("8 machines, 100 Gbit/s, 30 us", 8, 30.0, 12.5),
    ):
        share = predicted(ranks, compute_s, size, us, speed, updates)
        print(f"prediction, {engine}, {name}: {share:.2f}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["gather"]:
        measure_gather(int(sys.argv[2]))
    elif sys.argv[1:2] == ["train"]:
        measure_training(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
        parser.add_argument("--quick", action="store_true", help="fewer repetitions")
        parser.add_argument("--engine", choices=list(ITERATIONS), help="this one alone")
        asked = parser.parse_args()
        main(asked.quick, [asked.engine] if asked.engine else list(ITERATIONS))
