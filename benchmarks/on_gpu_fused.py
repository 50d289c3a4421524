"""The parts of `on_gpu.py` about the `fused` engine: speed, learning, a fast solve, endurance.

Not a program: ``python benchmarks/on_gpu.py results.json fused_speed fused_learning fused_solve
fused_endurance``. Each part returns flat records. Without a GPU, `DEVICE` can be ``"cpu"``, which
measures the CPU's fused engine: enough to try the parts.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from solve import SEEDS, WANTED

from operant.bench import ppo as ppo_bench
from operant.bench.peers import Setting
from operant.models import PPO
from operant.ppo.config import Config
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import find_run
from operant.training.callbacks import Callback
from operant.training.evaluate import evaluate

DEVICE = "cuda"
Records = list[dict[str, Any]]


# speed --------------------------------------------------------------------------------------
SIZES, SIZE = (2048, 8192, 16_384, 65_536), 16_384
ROUNDS, ROUND_SECONDS = 7, 0.25
LIMIT_TFLOPS = 790.0
"""Of dense bf16 products on an H200; ``limit_gflops`` of a record is measured on this GPU."""
TILE = 16
"""Least columns of a product on tensor cores: sizes of layers are rounded up to it."""


def fused_speed() -> Records:
    """Standard PPO with the fused engine, taking turns with the engines `graph` and `eager`."""
    standard = Setting(device=DEVICE, engine="fused", precision="bf16")
    large = replace(standard, num_envs=SIZE)
    jobs = [replace(standard, num_envs=size) for size in SIZES]
    jobs += [replace(large, precision="tf32")]
    jobs += [replace(large, hidden=(128, 128))]
    jobs += [replace(large, env="Pendulum-v1")]
    # Not compiled, which takes 20 to 110 s: h200_graph.json has what compiling is worth.
    jobs += [replace(large, engine="graph", compile="off")]
    jobs += [replace(large, engine="eager", precision="fp32")]
    everyone = [ppo_bench.contenders(job, [])[0] for job in jobs]
    for job, one in zip(jobs, everyone, strict=True):
        one.system = f"operant {job.engine} {job.precision} {job.num_envs} {job.hidden[0]}"
    for doing in ppo_bench.measure(everyone, ROUNDS, ROUND_SECONDS):
        print(doing, flush=True)
    for one in everyone:
        one.system = "operant"
    rows = ppo_bench.records(everyone)
    return [_speed(row, rows) for row in rows]


def _speed(row: dict[str, Any], rows: Records) -> dict[str, Any]:
    """A record with ratios to the other engines at the same work, and its share of the limit."""
    work = ("env", "num_envs", "num_steps", "epochs", "minibatches", "hidden", "activation")
    others = {
        f"{other['engine']} {other['precision']}": round(row["sps"] / other["sps"], 2)
        for other in rows
        if other["engine"] != row["engine"] and all(other[key] == row[key] for key in work)
    }
    flops = padded_flops(row)
    limit = LIMIT_TFLOPS * 1e12 / flops
    return {
        "what": "fused_speed",
        **row,
        "ratio_to": others,
        "tflops": round(row["gflops"] / 1e3, 2),
        "padded_flops_per_step": flops,
        "bf16_limit_tflops": LIMIT_TFLOPS,
        "bf16_limit_sps": round(limit),
        "share_of_bf16_limit": round(row["sps"] / limit, 4),
    }


def padded_flops(row: dict[str, Any]) -> int:
    """Operations of a step on tensor cores, which two networks act and train on.

    Once forward to act, and in each epoch forward and twice backward; sizes are multiples of
    `TILE`, with a constant input for the biases.

    >>> padded_flops({"env": "CartPole-v1", "hidden": [64, 64], "epochs": 4})
    319488
    """
    inputs = {"CartPole-v1": 4, "Pendulum-v1": 3}[row["env"]] + 1
    sizes = [-(-size // TILE) * TILE for size in (inputs, *row["hidden"], 1)]
    forward = 2 * 2 * sum(a * b for a, b in itertools.pairwise(sizes))
    return int((1 + 3 * row["epochs"]) * forward)


# learning -----------------------------------------------------------------------------------
EAGER_FIGURES = Path(__file__).parent / "results" / "solved_cpu_2_cores.json"
AT_ONCE = 8
EVAL_SEED = 1_000_003
"""As `operant eval`, with which `solve.py` evaluates."""


def fused_learning() -> Records:
    """Every environment from its shipped configuration, against the eager engine's figures."""
    before = json.loads(EAGER_FIGURES.read_text(encoding="utf-8"))["results"]
    eager = {(row["env"], row["seed"]): row for row in before if row["engine"] == "eager"}
    jobs = [(env, seed, DEVICE) for seed in SEEDS for env in WANTED]
    # Starting takes longer than training: several processes, each for a few runs.
    with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn")) as pool:
        runs = []
        for run in pool.map(_learned, *zip(*jobs, strict=True)):
            runs.append(run)
            print(run, flush=True)
    return [_compared(env, runs, eager) for env in WANTED] + runs


def _learned(env: str, seed: int, device: str) -> dict[str, Any]:
    """One run: trained, then evaluated over 100 episodes."""
    ppo = PPO(env, seed=seed, device=device, engine="fused")
    assert ppo.engine.name == "fused", ppo.engine_reason
    ppo.learn(progress=False)
    tested = evaluate(ppo.agent, env, ppo.config.env, episodes=100, seed=EVAL_SEED)
    return {
        "what": "fused_learning: run",
        "env": env,
        "seed": seed,
        "engine": ppo.engine.name,
        "precision": getattr(ppo.engine, "precision", "fp32"),
        "device": str(ppo.device),
        "num_envs": ppo.env.num_envs,
        "steps": ppo.steps,
        "mean_return": tested.mean_return,
        "std_return": tested.std_return,
        "wanted": WANTED[env],
        "reached": tested.mean_return >= WANTED[env],
    }


def _compared(
    env: str, runs: Records, eager: dict[tuple[str, int], dict[str, Any]]
) -> dict[str, Any]:
    """Returns of the fused engine beside those of the eager one, which were measured before."""
    ours = {run["seed"]: run for run in runs if run["env"] == env}
    theirs = {seed: eager[env, seed] for seed in ours}
    returns = [[run["mean_return"] for run in group.values()] for group in (ours, theirs)]
    return {
        "what": "fused_learning",
        "env": env,
        "seeds": list(ours),
        "episodes": 100,
        "steps": sorted({run["steps"] for run in ours.values()}),
        "wanted": WANTED[env],
        "fused_returns": returns[0],
        "fused_mean": statistics.fmean(returns[0]),
        "fused_all_reached": all(run["reached"] for run in ours.values()),
        "eager_returns": returns[1],
        "eager_mean": statistics.fmean(returns[1]),
        "eager_all_reached": all(run["reached"] for run in theirs.values()),
        "eager_steps": sorted({run["steps"] for run in theirs.values()}),
        "eager_from": {
            "file": EAGER_FIGURES.name,
            "device": sorted({run["device"] for run in theirs.values()}),
            "commit": sorted({run["commit"] for run in theirs.values()}),
        },
        "p_of_permutations": round(permutation_p(*returns), 4),
    }


def permutation_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Share of all divisions into two such groups whose means differ as much as these do.

    >>> permutation_p([1, 2, 3], [1, 2, 3]), permutation_p([1, 2, 3], [7, 8, 9])
    (1.0, 0.1)
    """
    everyone, size = np.array([*ours, *theirs], float), len(ours)
    chosen = np.array(list(itertools.combinations(range(len(everyone)), size)))
    sums = everyone[chosen].sum(1)  # the first is ours
    gaps = np.abs(sums / size - (everyone.sum() - sums) / (len(everyone) - size))
    return float(np.mean(gaps >= gaps[0] - 1e-9 * (1 + np.abs(everyone).max())))


# a fast solve -------------------------------------------------------------------------------
FAST: dict[str, Any] = {
    "num_envs": 1024,
    "num_steps": 64,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 1e-2,
    "learning_rate_schedule": "constant",
    "gamma": 0.98,
    "gae_lambda": 0.95,
}
"""Few iterations, for a GPU that waits for its host after each: the CPU's fused engine needed 14,
14, 15, 14 and 14 with seeds 1 to 5, and 43, 56 and 49 with the settings of the part `learning` and
seeds 1 to 3. A whole episode takes 8."""
WARM_RUNS = 3


class Solved(Callback):
    """Stops once the last 100 episodes of training have a mean of `wanted`."""

    watches_only = True

    def __init__(self, wanted: float = 475.0) -> None:
        self.wanted = wanted

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Look."""
        if len(ppo.recent) == 100 and metrics["mean_return"] >= self.wanted:
            ppo.stop()


def fused_solve() -> Records:
    """CartPole until the mean of 100 training episodes is 475, and the command as it is typed."""
    found = []
    options = {"device": DEVICE, "engine": "fused", **FAST}
    PPO("CartPole-v1", Config(), seed=0, **options).learn(
        1, Solved(), False
    )  # what the host compiles
    for seed in SEEDS:
        ppo = PPO("CartPole-v1", Config(), seed=seed, **options)
        assert ppo.engine.name == "fused", ppo.engine_reason
        if DEVICE == "cuda":
            torch.cuda.synchronize()  # compiled and captured: what follows is training
        began = time.perf_counter()
        ppo.learn(100_000_000, Solved(), progress=False)
        took = time.perf_counter() - began
        row = {"what": "fused_solve", "env": "CartPole-v1", "seed": seed, **FAST}
        row |= {"engine": ppo.engine.name, "device": str(ppo.device)}
        row |= {"precision": getattr(ppo.engine, "precision", "fp32")}
        row |= {"iterations": ppo.iteration, "steps": ppo.steps, "seconds": round(took, 5)}
        found.append({**row, "mean_return": ppo.mean_return})
        print(found[-1], flush=True)
    seconds = [row["seconds"] for row in found]
    whole = {"what": "fused_solve: seconds", "median": statistics.median(seconds)}
    return [*found, {**whole, "least": min(seconds), "most": max(seconds)}, *_typed()]


def _typed() -> Records:
    """``operant train CartPole-v1`` from its start to its end, with cold caches and warm ones."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        names = {"OPERANT_HOME": "home", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "driver"}
        names["PYTHONPYCACHEPREFIX"] = "bytecode"  # where packages are installed may be read-only
        places = {name: str(Path(folder, part)) for name, part in names.items()}
        around = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        for k in range(1 + WARM_RUNS):
            command = _operant("train", "CartPole-v1", "--device", DEVICE)
            began = time.perf_counter()
            done = subprocess.run(
                command, env={**around, **places}, capture_output=True, text=True, check=True
            )
            row = {
                "what": "fused_solve: command",
                "command": " ".join(["operant", *command[3:]]),
                "caches": "warm" if k else "cold",
                "seconds": round(time.perf_counter() - began, 2),
                "said": done.stdout.strip().splitlines(),
                "said_on_standard_error": done.stderr.strip().splitlines()[-20:],
            }
            found.append(row)
            print(row, flush=True)
    return found


def _operant(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "operant", *arguments]


# endurance ----------------------------------------------------------------------------------
ITERATIONS, PRECISIONS = 1000, ("bf16", "tf32", "fp32")
KILLS = 3
KILLED_STEPS = 128 * 32 * 150
"""Of the runs that are killed: so many iterations of the shipped configuration, and a checkpoint
after each."""


class AllFinite(Callback):
    """Counts iterations, and which figures of them were NaN or infinite."""

    watches_only = True

    def __init__(self) -> None:
        self.iterations, self.figures = 0, 0
        self.bad: dict[str, int] = {}

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Look at an iteration."""
        self.iterations += 1
        self.figures += len(metrics)
        for name, value in metrics.items():
            if not math.isfinite(value):
                self.bad[name] = self.bad.get(name, 0) + 1


def fused_endurance() -> Records:
    """A thousand iterations in each precision, and runs that are killed and resumed."""
    found = []
    for precision in PRECISIONS:
        options: dict[str, Any] = {"num_envs": 2048, "num_steps": 32, "seed": 1}
        options["precision"] = precision
        ppo = PPO("CartPole-v1", Config(), device=DEVICE, engine="fused", **options)
        assert ppo.engine.name == "fused", ppo.engine_reason
        watch = AllFinite()
        ppo.learn(ITERATIONS * len(ppo.engine.buffer), watch, progress=False)
        row = {"what": "fused_endurance", "env": "CartPole-v1", "engine": "fused", **options}
        row |= {"precision": getattr(ppo.engine, "precision", "fp32"), "device": str(ppo.device)}
        row |= {"iterations": watch.iterations, "steps": ppo.steps, "figures": watch.figures}
        row |= {"figures_not_finite": watch.bad, "weights_finite": _finite(ppo)}
        row |= {"seconds": round(ppo.seconds, 2), "mean_return": ppo.mean_return}
        found.append(row)
        print(row, flush=True)
    return [*found, killed(random.randrange(10**6))]


def _finite(ppo: PPO) -> bool:
    return all(bool(p.isfinite().all()) for p in ppo.policy.parameters())


def killed(seed: int) -> dict[str, Any]:
    """A run that is killed `KILLS` times and resumed, against one that is not, to the bit."""
    whole, often = (f"endurance-{os.getpid()}-{name}" for name in ("whole", "killed"))
    try:
        report = json.loads(_finished(_training(whole)).splitlines()[-1])
        span, moments, codes, steps = report["seconds"], random.Random(seed), [], []
        for _ in range(KILLS):  # all of them within three quarters of the run, so while it trains
            codes.append(_kill(often, moments.uniform(0.0, 0.75 / KILLS) * span))
            steps.append(_steps(often))
            print(f"killed at step {steps[-1]:,} of {KILLED_STEPS:,}", flush=True)
        _finished(_training(often))
        one, other = (_end_of(name) for name in (whole, often))
    finally:
        for name in (whole, often):
            if _steps(name) >= 0:
                find_run(name).remove()
    return {
        "what": "fused_endurance: kill -9",
        "env": "CartPole-v1",
        "engine": report["engine"],
        "device": report["device"],
        "iterations": report["iterations"],
        "moments_from_seed": seed,
        "exit_codes": codes,
        "checkpoints_resumed_from": steps,
        "arrays_compared": len(one),
        "different_arrays": _different(one, other),
        "equal_to_the_bit": not _different(one, other),
    }


def _different(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Names of arrays whose types, shapes or bits differ, or that one has alone."""

    def bits(arrays: dict[str, np.ndarray], name: str) -> Any:
        array = arrays.get(name)
        return None if array is None else (array.dtype, array.shape, array.tobytes())

    return sorted(k for k in one.keys() | other.keys() if bits(one, k) != bits(other, k))


def _training(name: str) -> subprocess.Popen[str]:
    """A process that trains a run, or resumes it."""
    options = ["--device", DEVICE, "--engine", "fused", "--json"]
    if _steps(name) >= 0:
        command = _operant("train", "--resume", name, *options)
    else:
        settings = ["run.checkpoint_seconds=0", "run.keep=2", "run.eval_episodes=0"]
        options += [word for setting in settings for word in ("--set", setting)]
        options += ["--run-id", name, "--seed", "1", "--total-steps", str(KILLED_STEPS)]
        command = _operant("train", "CartPole-v1", *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _finished(process: subprocess.Popen[str]) -> str:
    """What a process said that ended well."""
    said, _ = process.communicate()
    assert process.returncode == 0, process.returncode
    return said


def _kill(name: str, seconds: float) -> int:
    """Train, and kill so many seconds after the first checkpoint of this process; its exit code."""
    before, process = _steps(name), _training(name)
    while _steps(name) <= max(before, 0) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


def _steps(name: str) -> int:
    """The step of a run's last checkpoint; -1 where there is none."""
    try:
        return int(latest_checkpoint(find_run(name).checkpoints).name)
    except ValueError:
        return -1


def _end_of(name: str) -> dict[str, np.ndarray]:
    """All arrays of a finished run's last checkpoint, and its last episodes."""
    found = load_checkpoint(latest_checkpoint(find_run(name).checkpoints))
    assert found.step == KILLED_STEPS, found.step
    arrays = {f"{k}.{name}": x for k, part in found.arrays.items() for name, x in part.items()}
    return arrays | {"recent": np.array(found.facts["recent"])}


PARTS: dict[str, Callable[[], Records]] = {
    "fused_speed": fused_speed,
    "fused_learning": fused_learning,
    "fused_solve": fused_solve,
    "fused_endurance": fused_endurance,
}
