"""Everything about a GPU in one run: parity, environments, PPO, learning, what leaves it.

    python benchmarks/on_gpu.py results.json [parity envs ppo learning copies prospector]
    python benchmarks/on_gpu.py results.json [fused_speed fused_learning fused_solve
        fused_endurance]

The figures are one JSON file in the frame of every benchmark; the parts that are not named are left
out. Takes some minutes, most of them to compile. The parts about the fused engine are in
`on_gpu_fused.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import on_gpu_fused
import torch

import operant
from operant.bench import env as env_bench
from operant.bench import ppo as ppo_bench
from operant.bench.frame import frame, write_json
from operant.bench.peers import Setting
from operant.check.env_check import random_actions
from operant.models import PPO

PPO_JOBS = [
    ("eager", "fp32", "off"),
    ("graph", "fp32", "off"),
    ("graph", "tf32", "on"),
    ("graph", "bf16", "on"),
    ("graph", "tf32", "max"),
    ("graph", "bf16", "max"),
]
LEARNERS = [("graph", "tf32"), ("graph", "bf16"), ("eager", "fp32")]
ENVS = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1")


def lander() -> type[operant.Env]:
    """The environment of the examples, as a user would write it."""
    sys.path.insert(0, "examples")
    from lander import Lander

    return Lander


def parity(num_envs: int = 10_000, steps: int = 1_000) -> list[dict[str, Any]]:
    """The GPU against both backends of the host, each step from the same state."""
    return [_parity(env, num_envs, steps) for env in (*ENVS, lander())]


def _parity(env: Any, num_envs: int, steps: int) -> dict[str, Any]:
    gpu, cpu = (operant.make(env, num_envs, backend=name, seed=1) for name in ("cuda", "cpu"))
    again = operant.make(env, num_envs, backend="cuda", seed=1)
    obs, same, _ = gpu.reset()[0], cpu.reset()[0], again.reset()
    resets = np.array_equal(obs.cpu().numpy(), same)
    worst, flags, repeated = 0.0, 0, True
    for step in range(steps):
        actions = random_actions(gpu.rules.action, num_envs, step)
        cpu.set_state(gpu.get_state())
        ours, theirs, twice = (batch.step(actions) for batch in (gpu, cpu, again))
        repeated &= all(torch.equal(a, b) for a, b in zip(ours[:4], twice[:4], strict=True))
        for a, b in zip(ours[:2], theirs[:2], strict=True):
            found = a.cpu().numpy().astype(np.float64)
            worst = max(worst, float(np.max(np.abs(found - b) / (1 + np.abs(b)))))
        flags += int((ours[2].cpu().numpy() != theirs[2]).sum())
    return {
        "what": "parity",
        "env": env if isinstance(env, str) else env.__name__,
        "num_envs": num_envs,
        "steps": steps,
        "resets_equal_to_the_bit": resets,
        "largest_relative_difference_in_a_step": worst,
        "different_terminations": flags,
        "same_seed_twice_equal_to_the_bit": repeated,
    }


def envs() -> list[dict[str, Any]]:
    """Steps a second of environments alone."""
    everyone = [
        env_bench.contenders([name], [1 << 20], [1], [], ["cuda"], False)[0] for name in ENVS
    ]
    for mode in ("NextStep", "SameStep"):
        one = env_bench.contenders(["CartPole-v1"], [8192], [1], [], ["cuda"], False)[0]
        one.open = lambda mode=mode: operant.make(
            "CartPole-v1", 8192, backend="cuda", autoreset_mode=mode
        )
        one.system = f"operant {mode}"
        everyone.append(one)
    for doing in env_bench.measure(everyone, 9, 0.2):
        print(doing, flush=True)
    return [{"what": "environments", **row} for row in env_bench.records(everyone)]


def ppo() -> list[dict[str, Any]]:
    """Standard PPO with 8192 environments."""
    found = []
    for engine, precision, level in PPO_JOBS:
        setting = Setting(
            num_envs=8192, device="cuda", engine=engine, precision=precision, compile=level
        )
        began = time.perf_counter()
        everyone = ppo_bench.contenders(setting, [])
        for doing in ppo_bench.measure(everyone, 5, 1.0):
            print(engine, precision, level, doing, flush=True)
        row = ppo_bench.records(everyone)[0]
        took = round(time.perf_counter() - began, 1)
        found.append({"what": "ppo", **row, "seconds_with_compilation": took})
        print(found[-1], flush=True)
    return found


def learning() -> list[dict[str, Any]]:
    """CartPole until the mean of 100 episodes is 475, with standard PPO's settings."""
    found = []
    for engine, precision in LEARNERS:
        for seed in (1, 2, 3):
            trained = PPO(
                "CartPole-v1",
                num_envs=2048,
                num_steps=32,
                epochs=4,
                minibatches=4,
                learning_rate=2e-3,
                seed=seed,
                device="cuda",
                engine=engine,
                precision=precision,
            )
            trained.learn(100_000_000, on_gpu_fused.Solved(), progress=False)
            row = {"what": "learning", "engine": engine, "precision": precision, "seed": seed}
            row |= {"steps": trained.steps, "seconds": round(trained.seconds, 2)}
            found.append({**row, "mean_return": trained.mean_return})
            print(found[-1], flush=True)
    return found


def copies() -> list[dict[str, Any]]:
    """Copies to the host in a loop of policy and environment."""
    from torch.profiler import ProfilerActivity, profile

    env = operant.make("CartPole-v1", 8192, backend="cuda", seed=0)
    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    policy.to(env.device)
    obs, _ = env.reset()

    def steps(count: int) -> None:
        nonlocal obs
        for _ in range(count):
            obs = env.step(policy(obs).argmax(-1))[0]
        torch.cuda.synchronize()

    with torch.no_grad():
        steps(3)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            steps(100)
    names = [event.name for event in found.events()]
    reads = sum("DtoH" in name for name in names)
    return [{"what": "copies", "steps": 100, "launches": len(names), "copies_to_the_host": reads}]


def prospector(num_envs: int = 4096) -> list[dict[str, Any]]:
    """The game with a state of arrays: a season against the host, alone, and trained on."""
    gpu, cpu = (operant.make("Prospector-v0", num_envs, backend=b, seed=1) for b in ("cuda", "cpu"))
    equal = np.array_equal(gpu.reset()[0].cpu().numpy(), cpu.reset()[0])
    for step in range(300):
        actions = random_actions(gpu.rules.action, num_envs, step)
        pairs = zip(gpu.step(actions)[:4], cpu.step(actions)[:4], strict=True)
        equal &= all(np.array_equal(a.cpu().numpy(), b) for a, b in pairs)
    row = {"what": "parity", "env": "Prospector-v0", "num_envs": num_envs, "steps": 300}
    found: list[dict[str, Any]] = [{**row, "equal_to_the_bit": bool(equal)}]
    sizes = [8192, 65_536, 1 << 18, 1 << 20]
    everyone = env_bench.contenders(["Prospector-v0"], sizes, [1], [], ["cuda"], False)
    for doing in env_bench.measure(everyone, 5, 0.3):
        print(doing, flush=True)
    found += [{"what": "environments", **row} for row in env_bench.records(everyone)]
    for engine, precision, level in (
        ("eager", "fp32", "off"),
        ("graph", "tf32", "on"),
        ("graph", "bf16", "on"),
    ):
        setting = Setting(
            env="Prospector-v0",
            num_envs=8192,
            num_steps=64,
            epochs=2,
            minibatches=16,
            device="cuda",
            engine=engine,
            precision=precision,
            compile=level,
        )
        trainers = ppo_bench.contenders(setting, [])
        for doing in ppo_bench.measure(trainers, 3, 1.0):
            print(engine, precision, doing, flush=True)
        found.append({"what": "ppo", **ppo_bench.records(trainers)[0]})
        print(found[-1], flush=True)
    return found


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "parity": parity,
    "envs": envs,
    "ppo": ppo,
    "learning": learning,
    "copies": copies,
    "prospector": prospector,
    **on_gpu_fused.PARTS,
}


def main() -> None:
    """Run the parts and write the figures."""
    found = []
    for name in sys.argv[2:] or PARTS:
        began = time.perf_counter()
        found += PARTS[name]()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        write_json(sys.argv[1], frame(found))
    for row in found:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
