"""Train what the pages tell a reader to train, over several seeds, and see that each run ends with
a policy worth having.

    python benchmarks/learns.py benchmarks/results/learns_2_cores.json
    python benchmarks/learns.py - --only snake --seeds 7,8

Exit code 1 if a run ends below its threshold. Uses the commands as they are written, with a seed:
0 is the default, 1 and 2 stand in some pages, 101 and 102 in none. Takes half an hour on two
cores, most of it for Prospector. With `--only`, the figures that the file has of other lines are
kept: each row tells its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operant.bench.frame import frame, write_json
from operant.toolchain.machine import commit

ROOT = Path(__file__).parents[1]
SEEDS = (0, 1, 2, 101, 102)


@dataclass(frozen=True)
class Line:
    """A command, and the mean return over 100 episodes that it must reach.

    `random` is what actions without a policy get, `best` the most one can get or, after a ``~``,
    about what a perfect policy gets.
    """

    command: str
    threshold: float
    random: float
    best: str
    folder: str = "."


LINES = (
    Line("operant train CartPole-v1", 475, 24.1, "500"),
    Line("operant train CartPole-v1 --set ppo.epochs=8", 475, 24.1, "500"),
    Line("operant train CartPole-v1 --set run.shards=4", 475, 24.1, "500"),
    Line("operant train Acrobot-v1", -100, -499.1, "~ -70"),
    Line("operant train Pendulum-v1", -200, -1196.5, "~ -140"),
    Line(
        "operant train Pendulum --total-steps 1e6 --learning-rate 5e-4",
        -200,
        -1196.5,
        "~ -140",
    ),
    Line("operant train MountainCar-v0", -110, -200, "~ -96"),
    Line("operant train MountainCar --set intrinsic.kind=rnd", -110, -200, "~ -96"),
    Line("operant train MountainCarContinuous-v0", 90, -32.2, "~ 95"),
    Line("operant train examples/lander.py:Lander", 8, -7.2, "~ 8.7"),
    Line("python examples/train_lander.py", 8, -7.2, "~ 8.7"),
    Line("operant train examples/catch.py:Catch", 9, -7.8, "10"),
    Line("operant train examples/catch.py:Catch --total-steps 5e6", 9, -7.8, "10"),
    Line("operant train examples/snake.py:Snake", 15, -0.9, "62"),
    Line("operant train ./libsnake.so --total-steps 5e5", 10, -0.9, "70", "examples/native"),
    Line("operant train ./libsnake.so", 10, -0.9, "70", "examples/native"),
    Line("python train.py", 10, -0.9, "70", "examples/native"),
    Line("operant train LunarLander-v3", 200, -180, "~ 280"),
    Line("operant train examples/gymnasium_env.py:Thermostat", -8, -56, "unknown; a rule -6.4"),
    Line(
        "operant train examples/gymnasium_env.py:Thermostat --set env.params.insulation=0.95",
        -8,
        -56,
        "unknown",
    ),
    Line(
        "operant train examples/pixels.py:Catch --set env.frame_stack=2 --total-steps 2e5",
        4.5,
        -1.7,
        "5",
    ),
    Line("operant train Prospector-v0", 45, -0.2, "unknown; a careful captain 36.9"),
)


def trained(line: Line, seed: int) -> dict[str, Any]:
    """One run of a line: its return over 100 episodes, and whether that is enough."""
    program, *rest = shlex.split(line.command)
    if program == "operant":
        rest = ["-m", "operant", *rest, "--seed", str(seed), "--json", "--set", "run.threads=1"]
    else:  # an example; its main() takes a seed and returns what the policy reached
        name = Path(rest[0])
        code = f"from {name.stem} import main; print(main(seed={seed}))"
        rest = ["-c", f"import sys; sys.path.insert(0, {str(name.parent)!r}); {code}"]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *rest],
        cwd=ROOT / line.folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    last = json.loads(done.stdout.splitlines()[-1])
    reached = last["eval_return"] if isinstance(last, dict) else last
    return {
        "command": line.command,
        "seed": seed,
        "eval_return": reached,
        "threshold": line.threshold,
        "random": line.random,
        "best": line.best,
        "passed": reached >= line.threshold,
        "seconds": round(time.perf_counter() - began, 1),
        "commit": commit(),
    }


def kept(target: str, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """What the file has of other lines."""
    now = {line.command for line in lines}
    if target == "-" or not Path(target).exists():
        return []
    before = json.loads(Path(target).read_text(encoding="utf-8"))["results"]
    return [row for row in before if row["command"] not in now]


def build_snake() -> None:
    """The library beside its source, by the command at the top of it; git ignores it."""
    folder = ROOT / "examples" / "native"
    include = subprocess.check_output([sys.executable, "-m", "operant.vector.native"], text=True)
    options = ["-O3", "-shared", "-fPIC", f"-I{include.strip()}", "-o", "libsnake.so", "snake.c"]
    subprocess.run([os.environ.get("CC", "cc"), *options], cwd=folder, check=True)


def train_all(lines: Sequence[Line], seeds: Sequence[int], jobs: int) -> list[dict[str, Any]]:
    """Every line with every seed, `jobs` at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(trained, line, seed) for line in lines for seed in seeds]
        found = []
        for one in waiting:
            found.append(row := one.result())
            word = "passed" if row["passed"] else "MISSED"
            print(
                f"{word} {row['eval_return']:8.2f} of {row['threshold']:g}  {row['command']} "
                f"--seed {row['seed']}  ({row['seconds']:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
    return found


def main() -> int:
    """Train, print, write; 1 if a run missed its threshold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("target", help="a JSON file, or - for standard output")
    parser.add_argument(
        "--only", default="", help="lines with one of these words, as in snake,lander"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    given = parser.parse_args()
    words = given.only.lower().split(",")
    lines = [line for line in LINES if any(word in line.command.lower() for word in words)]
    if not lines:
        parser.error(f"no line has {given.only!r} in it")
    if any(line.folder == "examples/native" for line in lines):
        build_snake()
    found = train_all(lines, [int(seed) for seed in given.seeds.split(",")], given.jobs)
    write_json(given.target, frame([*kept(given.target, lines), *found]))
    return 0 if all(row["passed"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
