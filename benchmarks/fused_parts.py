"""Where the time of a sample goes in the fused engine on the CPU, kernel by kernel.

    python benchmarks/fused_parts.py [hidden sizes, such as 64,64]

One thread, standard PPO on CartPole: 2048 environments x 128 steps, 4 epochs x 4 minibatches. Each
kernel is called again and again on the tile that is in the cache; parts take turns, the median
counts. What an epoch takes beyond its kernels is gathering samples and claiming work.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numba
from numba import int64, njit, uint64

from operant.compiler.runtime.intrinsics import call_address
from operant.models import PPO
from operant.ppo.config import Config
from operant.ppo.engines.fused_cpu import TILE, FusedEngine

ROUNDS, CALLS = 21, 300


def caller(arguments: int) -> Callable[..., None]:
    """A compiled loop that calls a function of so many int64."""
    kind = numba.types.UniTuple(int64, arguments)

    def call(count, entry, given):  # type: ignore[no-untyped-def]
        for _ in range(count):
            call_address(uint64(entry), given)

    compiled: Callable[..., None] = njit(numba.void(int64, int64, kind))(call)
    return compiled


def main() -> None:
    """Measure and print a table."""
    hidden = tuple(int(size) for size in (sys.argv[1] if len(sys.argv) > 1 else "64,64").split(","))
    options = {
        "num_envs": 2048,
        "hidden": hidden,
        "engine": "fused",
        "device": "cpu",
        "entropy_coef": 0.01,
    }
    ppo = PPO("CartPole-v1", Config(), threads=1, **options)
    engine = ppo.engine
    assert isinstance(engine, FusedEngine)
    wholes = whole_times(engine)
    engine._arguments.set(tile=TILE)
    args, address = engine._arguments, engine._arguments.address
    scratch, gradient = args["scratch"], args["gradients"]
    x, x_row = scratch + 4 * args["scratch_x"], args["x_row"]
    actor, critic = args["actor"], args["critic"]
    metrics, chunks = args["metric_sums"], args["chunks"]
    minibatch = len(engine.buffer) // args["minibatches"]
    env = (0, TILE, 0, 1, args["env_arguments"])
    # name: function, arguments, samples of a call
    parts = {
        "forward, actor": ("forward", (actor, x, x_row, TILE, scratch, address), TILE),
        "forward, critic": ("forward", (critic, x, x_row, TILE, scratch, address), TILE),
        "loss and its gradient": (
            "loss_categorical",
            (TILE, TILE, scratch, gradient, metrics, address),
            TILE,
        ),
        "backward, actor": ("backward", (actor, x, x_row, TILE, scratch, gradient, address), TILE),
        "backward, critic": (
            "backward",
            (critic, x, x_row, TILE, scratch, gradient, address),
            TILE,
        ),
        "order of samples": ("order_chunk", (0, 0, address), minibatch // chunks),
        "reduce, clip, Adam, pack": ("finish", (0, address), minibatch),
        "collect: sample": ("sample_categorical", (0, 0, TILE, scratch, address), TILE),
        "collect: environments": ("", env, TILE),
        "collect: store": ("store_step", (0, 0, TILE, 0, scratch, address), TILE),
    }
    found: dict[str, list[float]] = {name: [] for name in parts}
    calls = {n: caller(n) for n in {len(given) for _, given, _ in parts.values()}}
    for _ in range(ROUNDS):
        for name, (function, given, samples) in parts.items():
            entry = engine._kernels.functions[function].address if function else args["env_step"]
            count = max(1, CALLS * TILE // samples)
            began = time.perf_counter()
            calls[len(given)](count, entry, given)
            found[name].append((time.perf_counter() - began) / count / samples * 1e9)
    print("| part | ns a sample |\n| --- | --- |")
    for name, times in found.items():
        print(f"| {name} | {statistics.median(times):.1f} |")
    for name, nanoseconds in wholes.items():
        print(f"| {name} | {nanoseconds:.0f} |")


def whole_times(engine: FusedEngine) -> dict[str, float]:
    """Nanoseconds a sample of whole rollouts, advantages and epochs."""
    seconds: dict[str, list[float]] = {"a whole rollout": [], "advantages": [], "an epoch": []}
    for k in range(7):
        marks = [time.perf_counter()]
        engine.collect(k, 128 * k)
        marks.append(time.perf_counter())
        engine.advantages()
        marks.append(time.perf_counter())
        engine.update(k, 2.5e-4, 0.2)
        marks.append(time.perf_counter())
        parts = (marks[1] - marks[0], marks[2] - marks[1], (marks[3] - marks[2]) / 4)
        for times, part in zip(seconds.values(), parts, strict=True):
            times.append(part)
    size = len(engine.buffer)
    return {name: statistics.median(times) / size * 1e9 for name, times in seconds.items()}


if __name__ == "__main__":
    main()
