"""Tasks that plain PPO does not solve, with the bonuses of their shipped values and without.

    python benchmarks/exploration.py benchmarks/results/exploration_2_cores.json
    python benchmarks/exploration.py - --only MultiRoom --seeds 7 --curves curves.png

Exit code 1 if a run with a bonus ends below what is wanted, or if plain PPO solves DeepSea with
most seeds, which then proves nothing. The values were looked at
with seeds 1 to 3; seeds 101 and 102 were used for nothing else, but that MultiRoom's steps were
doubled after 101 had missed what is wanted. A run has one thread;
`training_seconds` count neither starting nor evaluating. With `--only`, rows that the file has of
others are kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operant.bench.frame import frame, write_json
from operant.toolchain.machine import commit

SEEDS = (1, 2, 3, 101, 102)


@dataclass(frozen=True)
class Line:
    """A training: its environment, what is changed, and the mean return over 100 episodes that it
    must reach; or, of `plain` PPO, must stay below with most seeds, if it says so."""

    env: str
    what: str
    wanted: float
    settings: tuple[str, ...] = ()
    fails: bool = False

    @property
    def command(self) -> str:
        """What is typed."""
        return " ".join(
            ["operant train", self.env, *(f"--set {setting}" for setting in self.settings)]
        )


PLAIN = ("intrinsic.kind=none",)
LINES = (
    Line("DeepSea-v0", "rnd", 0.9),
    Line("DeepSea-v0", "plain", 0.9, PLAIN, fails=True),
    Line("SparseMountainCar-v0", "rnd", 0.95),
    Line("SparseMountainCar-v0", "icm", 0.95, ("intrinsic.kind=icm",)),
    Line("SparseMountainCar-v0", "plain", 0.95, PLAIN),
    Line("MultiRoom-v0", "count", 0.75),
    Line("MultiRoom-v0", "plain", 0.75, PLAIN),
    Line("KeyCorridor-v0", "count", 0.9),
    Line("KeyCorridor-v0", "plain", 0.9, PLAIN),
)


def trained(line: Line, seed: int) -> dict[str, Any]:
    """One run of a line: what it reached, and its learning curve."""
    changed = [word for setting in line.settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "operant", "train", line.env, *changed]
    command += ["--seed", str(seed), "--json", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    with (Path(report["path"]) / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ended = [row for row in rows if row["mean_return"]]  # in the first iterations no episode has
    curve = [[int(row["steps"]), round(float(row["mean_return"]), 3)] for row in ended]
    reached = report["eval_return"]
    return {
        "env": line.env,
        "what": line.what,
        "command": line.command,
        "seed": seed,
        "wanted": line.wanted,
        "eval_return": reached,
        "solved": reached >= line.wanted,
        "steps": report["steps"],
        "training_seconds": report["seconds"],
        "engine": report["engine"],
        "curve": curve[:: max(1, len(curve) // 30)],
        "commit": commit(),
    }


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Learning curves, a panel for each environment: the mean over seeds, and their range."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    envs = list(dict.fromkeys(row["env"] for row in rows))
    figure, axes = plt.subplots(1, len(envs), figsize=(3.2 * len(envs), 2.8), squeeze=False)
    colors = {"rnd": "#1f77b4", "icm": "#9467bd", "count": "#2ca02c", "plain": "#888888"}
    for axis, env in zip(axes[0], envs, strict=True):
        for what in dict.fromkeys(row["what"] for row in rows if row["env"] == env):
            mine = [row["curve"] for row in rows if (row["env"], row["what"]) == (env, what)]
            steps = np.linspace(0, min(curve[-1][0] for curve in mine), 100)
            values = np.array([np.interp(steps, *np.array(curve).T) for curve in mine])
            axis.plot(steps, np.nanmean(values, 0), color=colors[what], label=what)
            low, high = np.nanmin(values, 0), np.nanmax(values, 0)
            axis.fill_between(steps, low, high, color=colors[what], alpha=0.2, linewidth=0)
        axis.set_title(env, fontsize=10)
        axis.set_ylim(-0.05, 1.05)
        axis.set_xlabel("steps", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        axis.legend(fontsize=8, frameon=False)
    axes[0, 0].set_ylabel("return of training", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def as_expected(line: Line, rows: list[dict[str, Any]]) -> bool:
    """Whether all runs of a line solved it, or, where it fails, no more than half of them; of
    other plain PPO nothing is expected."""
    solved = [row["solved"] for row in rows if row["command"] == line.command]
    if line.fails:
        return 2 * sum(solved) <= len(solved)
    return all(solved) or line.what == "plain"


def kept(target: str, lines: list[Line]) -> list[dict[str, Any]]:
    """What the file has of other lines."""
    now = {line.command for line in lines}
    if target == "-" or not Path(target).exists():
        return []
    before = json.loads(Path(target).read_text(encoding="utf-8"))["results"]
    return [row for row in before if row["command"] not in now]


def main() -> int:
    """Train, print, write; 1 if a run did not end as expected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("target", help="a JSON file, or - for standard output")
    parser.add_argument("--only", default="", help="environments with this in their name")
    parser.add_argument("--what", default="", help="only this, such as plain")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    parser.add_argument("--curves", default="", metavar="PNG", help="also draw learning curves")
    given = parser.parse_args()
    lines = [
        line for line in LINES if given.only.lower() in line.env.lower() and given.what in line.what
    ]
    found = []
    with ThreadPoolExecutor(given.jobs) as pool:
        seeds = [int(seed) for seed in given.seeds.split(",")]
        for one in [pool.submit(trained, line, seed) for line in lines for seed in seeds]:
            found.append(row := one.result())
            print(
                f"{'solved' if row['solved'] else 'unsolved':8} {row['eval_return']:7.3f} "
                f"of {row['wanted']:g}  {row['command']} "
                f"--seed {row['seed']}  ({row['steps']:,} steps, {row['training_seconds']:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
    rows = [*kept(given.target, lines), *found]
    write_json(given.target, frame(rows))
    if given.curves:
        draw(rows, given.curves)
    return 0 if all(as_expected(line, found) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
