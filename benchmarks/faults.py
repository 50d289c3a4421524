"""Broken environments, killed workers and killed parents: what is said, and what is left behind.

    python benchmarks/faults.py            # every broken environment in every backend
    python benchmarks/faults.py --kills    # 50 workers and 20 parents killed at random moments

Prints a table with each sentence. Exits with 1 if any environment was answered with something else
than its sentence, with a traceback of ours, with silence or by hanging, if another environment was
named or changed, or if a process, shared memory or a temporary file was left behind.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil

from operant.backends.foreign import processes
from operant.backends.foreign.errors import ForeignEnvError, WorkerDiedError
from operant.vector.foreign_batch import ForeignBatch

TESTS = Path(__file__).parents[1] / "tests" / "backends" / "foreign"
sys.path.insert(0, str(TESTS.parents[1]))
from backends.foreign.broken import Fault, faults  # noqa: E402
from backends.foreign.test_broken import played  # noqa: E402

_HANG_S = 2.0
"""After which an environment that hangs is given up, here."""
_STUCK_S = 120.0


def verdict(fault: Fault, backend: str, number: int) -> tuple[bool, str]:
    """Whether a fault was answered as it must be, and what was said."""
    options: dict[str, Any] = {"context": ("spawn", "forkserver")[number % 2]}
    if fault.hangs:
        options["step_timeout_s"] = _HANG_S
        processes._START_S = _HANG_S * 2
    faulthandler.dump_traceback_later(_STUCK_S, exit=True)  # a hang of ours
    try:
        played(fault, backend, **options)
    except (ForeignEnvError, ValueError, TypeError) as error:
        said = " ".join(str(error).split())
        named = fault.index is None or getattr(error, "env_index", None) == fault.index
        wanted = fault.sentence and re.search(fault.sentence, said)
        return bool(wanted) and named, said
    except BaseException as error:
        return False, f"a traceback of ours: {type(error).__name__}: {error}"
    finally:
        processes._START_S = 120.0
        faulthandler.cancel_dump_traceback_later()
    return not fault.sentence, "goes on" if not fault.sentence else "silence"


def play_all() -> int:
    """Every fault in every backend; how many went wrong."""
    wrong, count = 0, 0
    output = os.dup(1)  # environments print, and close their stdout
    null = os.open(os.devnull, os.O_WRONLY)
    for fault in faults():
        for backend in fault.backends:
            count += 1
            os.dup2(null, 1)
            fine, said = verdict(fault, backend, count)
            os.dup2(output, 1)
            wrong += not fine
            mark = "ok  " if fine else "FAIL"
            print(f"{mark} {backend:<10}{fault.name:<32} {said[:160]}", flush=True)
    print(f"{len(list(faults()))} broken environments, {count} with backends, {wrong} wrong")
    return wrong


# Kills --------------------------------------------------------------------------------------
def make_cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole, by a function that can be sent."""
    return gymnasium.make("CartPole-v1")


def kill_workers(count: int, restart: bool, moments: random.Random, context: str) -> int:
    """Kill workers of a batch while it steps; how many went wrong."""
    num_envs, workers, wrong = 8, 4, 0
    options: Any = {"on_worker_death": "restart" if restart else "raise", "context": context}
    for _ in range(count):
        batch = ForeignBatch(
            make_cartpole, num_envs, backend="processes", workers=workers, seed=0, **options
        )
        alone = ForeignBatch(make_cartpole, num_envs, backend="serial", seed=0)
        batch.reset(), alone.reset()
        k = moments.randrange(workers)
        victim = batch._executor._workers[k].process  # type: ignore[attr-defined]
        theirs = slice(2 * k, 2 * k + 2)
        killer = subprocess.Popen(
            [sys.executable, "-S", "-c", _KILLER, str(victim.pid), str(moments.uniform(0, 0.05))]
        )
        killed = False
        for step in range(10_000):
            actions = np.full(num_envs, step % 2)
            expected = alone.step(actions)
            try:
                obs, reward, terminated, truncated, info = batch.step(actions)
            except WorkerDiedError as error:
                killed = True
                named = f"environments {2 * k} to {2 * k + 1} was killed by SIGKILL" in str(error)
                wrong += restart or not named
                break
            others = np.ones(num_envs, bool)
            others[theirs] = not killed
            if restart and not killed and truncated[theirs].all():
                killed = True
                others[theirs] = False
                wrong += not (reward[theirs] == 0).all() or "final_obs" not in info
            for ours, wanted in zip((obs, reward, terminated, truncated), expected, strict=False):
                wrong += not np.array_equal(ours[others], wanted[others])
            if killed and (obs[theirs] == 0).all():
                wrong += 1
            if killed and killer.poll() is not None:
                break
        wrong += not killed
        killer.wait()
        batch.close(), alone.close()
    return wrong


_KILLER = """
import os, signal, sys, time
time.sleep(float(sys.argv[2]))
os.kill(int(sys.argv[1]), signal.SIGKILL)
"""

_PARENT = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from backends.foreign.faulty import Faulty
from operant.vector.foreign_batch import ForeignBatch
print("ready", flush=True)
while True:
    batch = ForeignBatch(Faulty, 4, backend="processes", workers=2, context=sys.argv[2])
    print("made", flush=True)
    batch.reset()
    for _ in range(int(sys.argv[3])):
        batch.step(np.zeros(4, int))
    print("closing", flush=True)
    batch.close()
"""


def kill_parent(number: signal.Signals, moments: random.Random, context: str) -> list[str]:
    """Kill a process that makes, steps and closes batches; what it left behind, in words."""
    marker = f"operant-{os.getpid()}-{moments.randrange(1 << 30)}"
    before = _shared()
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"OPERANT_MARKER": marker, "TMPDIR": folder}
        command = [sys.executable, "-c", _PARENT, str(TESTS.parents[1]), context]
        steps = moments.choice([0, 50, 100_000])
        parent = subprocess.Popen(
            [*command, str(steps)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(moments.uniform(0, 3.0))
        if number == signal.SIGINT and moments.random() < 0.5:
            os.killpg(parent.pid, number)  # as a terminal does
        else:
            parent.send_signal(number)
        parent.stdout.close()
        parent.wait(60)
        left = _wait_for(lambda: [] if not _marked(marker) else [f"{_marked(marker)} processes"])
        files = os.listdir(folder)
        left += [f"temporary files {files}"] if files else []
    new = _shared() - before
    return left + ([f"shared memory {new}"] if new else [])


def _shared() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "operant" in name or "psm_" in name}


def _marked(marker: str) -> int:
    """Processes that have a variable with this value."""
    count = 0
    for process in psutil.process_iter():
        try:
            count += process.environ().get("OPERANT_MARKER") == marker and (
                process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            continue
    return count


def _wait_for(left: Callable[[], list[str]], seconds: float = 20.0) -> list[str]:
    until = time.monotonic() + seconds
    while (found := left()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def kill_all(workers: int, parents: int, seed: int) -> int:
    """Kill; how many went wrong."""
    moments, wrong = random.Random(seed), 0
    for k, (mode, context) in enumerate(
        (mode, context) for mode in ("raise", "restart") for context in ("spawn", "forkserver")
    ):
        count = workers * (k + 1) // 4 - workers * k // 4
        bad = kill_workers(count, mode == "restart", moments, context)
        wrong += bad
        print(f"{count:4} workers killed, {mode}, {context}: {bad} wrong", flush=True)
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    for k in range(parents):
        number, context = signals[k % 3], ("spawn", "forkserver")[k % 2]
        left = kill_parent(number, moments, context)
        wrong += bool(left)
        said = "; ".join(left) or "nothing left"
        print(f"     parent {k + 1}, {number.name}, {context}: {said}", flush=True)
    children = psutil.Process().children(recursive=True)
    wrong += bool(children)
    print(f"{workers} workers and {parents} parents killed, {wrong} wrong, {len(children)} left")
    return wrong


def main() -> int:
    """Play or kill; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", action="store_true", help="kill instead of playing faults")
    parser.add_argument("--workers", type=int, default=50, help="that are killed")
    parser.add_argument("--parents", type=int, default=20, help="that are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    if asked.kills:
        return int(kill_all(asked.workers, asked.parents, asked.seed) > 0)
    return int(play_all() > 0)


if __name__ == "__main__":
    sys.exit(main())
