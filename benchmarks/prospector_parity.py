"""Prospector, 200 seeds and whole seasons: plain Python and compiled code, to the bit.

    python benchmarks/prospector_parity.py [benchmarks/results/prospector_parity.json]

Each seed is a batch of one environment, played for a season by masked random actions (every tenth
action is any action, allowed or not). Observations, rewards, flags and masks are compared

- between the backends ``reference`` and ``cpu``, step by step,
- between batches of one and one batch of 200 environments (with the same 200 streams),
- between one worker and two.

Exits with 1 if anything differs. Takes some minutes, nearly all of it in plain Python.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import operant
from operant.bench.frame import frame, write_json
from operant.envs.prospector.belt import N_ACTIONS
from operant.envs.prospector.prospector import SEASON

SEEDS = 200


def choose(masks: np.ndarray, seeds: np.ndarray, step: int) -> np.ndarray:
    """Actions that depend on the seed, the step and the mask alone: each lane has its own."""
    actions = np.empty(len(masks), np.int64)
    for lane, seed in enumerate(seeds.tolist()):
        generator = np.random.default_rng([seed, step])
        any_action = generator.integers(N_ACTIONS)
        allowed = np.flatnonzero(masks[lane])
        choice = allowed[generator.integers(len(allowed))]
        actions[lane] = any_action if step % 10 == 9 else choice
    return actions


def play(seeds: np.ndarray, backend: str, workers: int = 1) -> tuple[dict[str, np.ndarray], float]:
    """A season of each seed: all that is handed out, ``[step, seed, ...]``, and steps a second."""
    batch = operant.make("Prospector-v0", len(seeds), backend=backend, workers=workers)
    obs, _ = batch.reset(seed=seeds.tolist())
    found: dict[str, list[np.ndarray]] = {
        "obs": [obs], "reward": [], "terminated": [], "truncated": [],
        "mask": [batch.action_masks()],
    }  # fmt: skip
    spent = 0.0
    for step in range(SEASON):
        actions = choose(found["mask"][-1], seeds, step)
        start = time.perf_counter()
        results = batch.step(actions)
        spent += time.perf_counter() - start
        for name, array in zip(
            ("obs", "reward", "terminated", "truncated"), results[:4], strict=True
        ):
            found[name].append(array)
        found["mask"].append(batch.action_masks())
    batch.close()
    stacked = {name: np.stack(arrays) for name, arrays in found.items()}
    return stacked, SEASON * len(seeds) / spent


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, int]:
    """How many numbers differ, in the bits, by name."""
    return {name: int((_bits(array) != _bits(other[name])).sum()) for name, array in one.items()}


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.int32) if array.dtype == np.float32 else array


def single(seeds: np.ndarray, backend: str) -> tuple[dict[str, np.ndarray], float]:
    """As `play`, but every seed in a batch of its own."""
    plays = [play(seeds[k : k + 1], backend) for k in range(len(seeds))]
    joined = {name: np.concatenate([one[name] for one, _ in plays], axis=1) for name in plays[0][0]}
    return joined, float(np.mean([rate for _, rate in plays]))


def main() -> int:
    """Run everything, print a line each, write JSON if a path is given."""
    seeds = np.arange(SEEDS)
    native, native_sps = play(seeds, "cpu")
    rows: list[dict[str, Any]] = []

    def compare(what: str, other: dict[str, np.ndarray], sps: float) -> None:
        found = differences(native, other)
        row = {"compared": what, "seeds": SEEDS, "steps": SEASON * SEEDS, "sps": round(sps)}
        rows.append({**row, "differences": found, "equal": not any(found.values())})
        ended = int(native["terminated"].any(axis=0).sum())
        print(f"{what}: {sum(found.values())} differences in {row['steps']} steps, "
              f"{ended} seasons ended, {sps:,.0f} steps/s", flush=True)  # fmt: skip

    compare("cpu, 2 workers", *play(seeds, "cpu", 2))
    compare("cpu, batches of one", *single(seeds, "cpu"))
    compare("reference", *play(seeds, "reference"))
    rows.append({"compared": "cpu", "sps": round(native_sps), "seeds": SEEDS})
    if len(sys.argv) > 1:
        write_json(sys.argv[1], frame(rows))
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
