"""Train every environment from its shipped configuration with five seeds and both engines that a
CPU has, and evaluate each.

    python benchmarks/solve.py benchmarks/results/solved.json docs/results.md [fused eager]

Uses the commands a user types. Takes some minutes on two cores. Of engines that are not named, the
figures that the file already has are kept: each row tells its commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from operant.bench.frame import frame, write_json

WANTED = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "Pendulum-v1": -200.0,
    "MountainCarContinuous-v0": 90.0,
    "MountainCar-v0": -110.0,
}
SEEDS = (1, 2, 3, 4, 5)
ENGINES = ("fused", "eager")


def operant(*arguments: str) -> dict[str, Any]:
    """The JSON that a command ends with."""
    command = [sys.executable, "-m", "operant", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def solve(env: str, seed: int, engine: str) -> dict[str, Any]:
    """One run: trained, then evaluated over 100 episodes."""
    options = ("--seed", str(seed), "--engine", engine, "--device", "cpu")
    trained = operant("train", env, *options, "--set", "run.eval_episodes=0")
    tested = operant("eval", trained["run_id"], "--episodes", "100")
    return {
        "env": env,
        "seed": seed,
        "steps": trained["steps"],
        "seconds": trained["seconds"],
        "sps": trained["sps"],
        "mean_return": tested["mean_return"],
        "std_return": tested["std_return"],
        "wanted": WANTED[env],
        "reached": tested["mean_return"] >= WANTED[env],
        "engine": trained["engine"],
        "device": trained["device"],
        "commit": frame([])["commit"],
    }


def page(data: dict[str, Any]) -> str:
    """The table for the documentation."""
    machine = data["machine"]
    lines = [
        "# Results",
        "",
        "Every environment from its shipped configuration (`operant train ENV --seed N --engine "
        "E`), then `operant eval RUN",
        "--episodes 100` (other episodes, most probable actions). Both engines take the same "
        "steps and the same configuration;",
        "they differ in rounding and in the order of samples. Seconds are of training alone, warm.",
        f"Machine: {machine['cores']} cores of a shared {machine['cpu']}, no GPU; "
        f"Python {machine['python']}, PyTorch {machine['versions']['torch']}; {data['date'][:10]}.",
        "Written by `benchmarks/solve.py`.",
        "",
        "| environment | wanted | seed | steps | fused: s | eager: s "
        "| fused: return | eager: return |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    found = {(row["env"], row["seed"], row["engine"]): row for row in data["results"]}
    for env, wanted in WANTED.items():
        for seed in SEEDS:
            rows = [found[env, seed, engine] for engine in ENGINES]
            cells = [env, f"{wanted:g}", str(seed), f"{rows[0]['steps']:,}"]
            cells += [f"{row['seconds']:.1f}" for row in rows]
            lines.append(f"| {' | '.join(cells + [_return(row) for row in rows])} |")
    return "\n".join(lines) + "\n"


def _return(row: dict[str, Any]) -> str:
    missed = "" if row["reached"] else " (missed)"
    return f"{row['mean_return']:.1f} ± {row['std_return']:.1f}{missed}"


def main() -> None:
    """Run everything and write the figures and the page."""
    for env in WANTED:  # compile first: seconds are of training
        operant("train", env, "--total-steps", "1", "--set", "run.eval_episodes=0")
    file, engines = Path(sys.argv[1]), sys.argv[3:] or list(ENGINES)
    found = []
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))["results"]
        found = [row for row in before if row["engine"] not in engines]
    for env in WANTED:
        for seed in SEEDS:
            for engine in engines:
                found.append(solve(env, seed, engine))
                print(found[-1], flush=True)
    data = frame(found)
    write_json(str(file), data)
    written = Path(sys.argv[2])
    _, mark, rest = written.read_text(encoding="utf-8").partition("\n## ")  # other people's tables
    written.write_text(page(data) + mark + rest, encoding="utf-8")


if __name__ == "__main__":
    main()
