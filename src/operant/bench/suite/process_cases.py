"""Cases of whole processes and of files: start-up, memory of a run, checkpoints."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from operant.bench.suite.case import Case, Duration, Once, Work
from operant.bench.suite.training_cases import new_ppo
from operant.toolchain.child import python_command, python_environment

_IMPORT = "import operant"
_STEP = "import operant; env = operant.make('CartPole-v1', 64, backend={backend!r}); env.reset()"
_TRAIN = (
    "import operant; operant.PPO('CartPole-v1', num_envs=64, num_steps=32, device={device!r})"
    ".learn(2048, progress=False)"
)
_PEAK = (
    "import json, resource, operant; operant.PPO('CartPole-v1', num_envs=2048, num_steps=128, "
    "device={device!r}).learn(2 * 2048 * 128, progress=False); "
    "print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
)


def process_cases(device: str) -> list[Case]:
    """Start-up, cold (nothing compiled) and warm; memory of a run; checkpoints."""
    place = "cuda" if device != "cpu" else "cpu"
    backend = "cpu" if device == "cpu" else "cuda"
    train = _TRAIN.format(device=device)
    warm: list[tuple[str, str, bool]] = [
        ("start_import", _IMPORT, True),
        (f"start_first_step/{place}", _STEP.format(backend=backend), False),
        (f"start_training/{place}", train, True),
    ]
    found = [
        Case(f"{name}/warm", "s", partial(_started, code), quick, 5) for name, code, quick in warm
    ]
    found += [
        Case(f"start_training/{place}/cold", "s", lambda: Once(partial(_cold, train)), False, 3),
        Case(f"run_memory/{place}", "B", lambda: Once(partial(_peak, device)), True, 1),
    ]
    checkpoints: dict[str, Callable[[], Work]] = {"save": _saved, "load": _loaded}
    return [
        *found,
        *(Case(f"checkpoint_{name}", "s", open, True) for name, open in checkpoints.items()),
    ]


def _run(code: str, home: str = "") -> str:
    """Do it in a new process; what it printed.

    Raises:
        RuntimeError: it failed.
    """
    variables = python_environment()
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # a user keeps bytecode
    if home:
        variables["OPERANT_HOME"] = home
    done = subprocess.run(python_command("-c", code), env=variables, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["silent"]
        raise RuntimeError(f"a new process ended with exit code {done.returncode}: {said[-1]}")
    return done.stdout


def _seconds(code: str, home: str = "") -> float:
    began = time.perf_counter()
    _run(code, home)
    return time.perf_counter() - began


def _started(code: str) -> Work:
    _run(code)  # compiles
    return Once(lambda: _seconds(code))


def _cold(code: str) -> float:
    with TemporaryDirectory() as home:
        return _seconds(code, home)


def _peak(device: str) -> float:
    return 1024.0 * float(json.loads(_run(_PEAK.format(device=device)).splitlines()[-1]))


def _saved() -> Work:
    folder, ppo = TemporaryDirectory(), new_ppo("cpu", 64)

    def close() -> None:
        ppo.env.close()
        folder.cleanup()

    return Duration(lambda: ppo.save(Path(folder.name) / "saved"), close)


def _loaded() -> Work:
    from operant.runs.checkpoint import load_checkpoint

    folder, ppo = TemporaryDirectory(), new_ppo("cpu", 64)
    path = ppo.save(Path(folder.name) / "saved")
    ppo.env.close()
    return Duration(lambda: load_checkpoint(path), folder.cleanup)
