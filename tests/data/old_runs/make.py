"""Writes runs as the code of the day does; `tests/training/test_old_runs.py` reads them with the
code of a later day.

    OPERANT_HOME=/tmp/made python tests/data/old_runs/make.py FOLDER

The folders here are named after the commits that wrote them: 3559bed, before there were layers, and
aa03ad8, when everything that trains was still in `operant.ppo`. Each run was stopped half way;
``expected.json`` has what that commit made of a copy that it resumed to the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from operant.cli import main
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import Run, find_run, runs_folder
from operant.runs.logs import read_csv

try:
    from operant import Callback
    from operant.toolchain.machine import machine
except ImportError:  # at 3559bed
    from operant.machine import machine  # type: ignore[import-not-found, no-redef]
    from operant.ppo.callbacks import Callback  # type: ignore[import-not-found, no-redef]

ENGINES = ("eager", "fused")
ITERATIONS = 8
VALUES: dict[str, Any] = {
    "env.num_envs": 4,
    "ppo.num_steps": 16,
    "ppo.epochs": 2,
    "ppo.minibatches": 2,
    "policy.hidden": [8],
    "run.total_steps": 64 * ITERATIONS,
    "run.device": "cpu",
    "run.threads": 1,
    "run.eval_episodes": 5,
    "run.keep": 1,
}
SINCE: dict[str, Any] = {"run.eval_every": 128}
"""Options that 3559bed did not have yet."""


class StopHalfWay(Callback):
    """Ends training after half of the iterations."""

    def on_update(self, ppo: Any, metrics: dict[str, float]) -> None:
        """Stop."""
        if ppo.iteration == ITERATIONS // 2:
            ppo.stop()


def end_of(run: Run) -> dict[str, str]:
    """Digests of all that the last checkpoint of a run holds, and of its metrics but for times."""
    found = load_checkpoint(latest_checkpoint(run.checkpoints))
    arrays = {
        f"{group}.{name}": array
        for group, part in found.arrays.items()
        for name, array in part.items()
    }
    facts = {key: value for key, value in found.facts.items() if key not in ("seconds", "operant")}
    texts = {f"facts.{key}": json.dumps(value) for key, value in facts.items()}
    for name, column in read_csv(run.csv_file).items():
        if "seconds" not in name and name != "sps":
            arrays[f"metrics.{name}"] = column
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        head = f"{data.dtype} {data.shape} ".encode()
        digests[name] = hashlib.sha256(head + data.tobytes()).hexdigest()
    return {name: text[:16] for name, text in sorted(digests.items())}


def evaluated(name: str) -> dict[str, Any]:
    """What ``operant eval`` prints of a run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        sys.argv = ["operant", "eval", name, "--episodes", "5", "--json"]
        main()
    report: dict[str, Any] = json.loads(printed.getvalue())
    return {key: value for key, value in report.items() if key not in ("seconds", "checkpoint")}


def make(engine: str, folder: Path) -> dict[str, Any]:
    """Write one run into `folder`; what was expected of it."""
    name = f"old-{engine}"
    values = {**VALUES, "run.engine": engine}
    try:
        config = resolved("CartPole-v1", {**values, **SINCE})
    except ValueError:
        if engine == "eager":  # compiled environments rounded otherwise then, plain Python did not
            values["env.backend"] = "reference"
        config = resolved("CartPole-v1", values)
    session = Session.start(config, "CartPole-v1", name)
    assert session.ppo.engine.name == engine
    session.train([StopHalfWay()])
    run = find_run(name)
    kept = folder / name
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(run.path, kept, ignore=shutil.ignore_patterns("metrics.mmap", "lock"))
    found = evaluated(name)
    Session.resume(run).train()
    end = load_checkpoint(latest_checkpoint(run.checkpoints)).arrays["model"]
    weights = {name: array.ravel().tolist() for name, array in end.items()}
    return {"eval": found, "end": end_of(run), "weights": weights}


if __name__ == "__main__":
    assert runs_folder() != Path.home() / ".operant" / "runs", "set OPERANT_HOME"
    target = Path(sys.argv[1])
    expected: dict[str, Any] = {"cpu": machine()["cpu"], "versions": machine()["versions"]}
    expected |= {engine: make(engine, target) for engine in ENGINES}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
