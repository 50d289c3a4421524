"""``kill -9`` at any moment: the run resumes and ends with the same bits.

More kills, of all engines of the CPU and more environments: `benchmarks/kills.py`, which uses the
server and the comparison below.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import find_run
from operant.runs.logs import read_csv
from operant.toolchain import paths

KILLS = 8
ITERATIONS = 12
VALUES = {
    "env.num_envs": 16,
    "ppo.num_steps": 16,
    "ppo.epochs": 2,
    "policy.hidden": [16],
    "policy.normalize_obs": True,
    "ppo.normalize_reward": True,
    "run.total_steps": 256 * ITERATIONS,
    "run.checkpoint_seconds": 0.0,
    "run.keep": 2,
    "run.threads": 1,
}
"""Saved after every iteration, so that most kills come while a checkpoint is written."""

# A process that has imported and compiled everything, and forks one that trains when told to.
SERVER = """
import json, os, signal, sys, time
import operant
from operant.cli.target import load_env
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.directory import find_run, runs_folder

def checkpoints(name):
    try:
        return os.listdir(runs_folder() / name / "checkpoints")
    except FileNotFoundError:
        return []

target, values = sys.argv[1], json.loads(sys.argv[2])
env_class = load_env(target)
env = operant.make(env_class, 16, autoreset_mode="SameStep")
env.reset(seed=0)
env.step(env.action_space.sample())
print("ready", flush=True)
for line in sys.stdin:
    name, steps, seconds = line.split()
    child = os.fork()
    if child == 0:
        try:
            if (runs_folder() / name / "config.toml").exists():
                session = Session.resume(find_run(name), env_class)
            else:
                session = Session.start(resolved(target, values), env_class, name)
            if values.get("run.engine", "auto") not in ("auto", session.ppo.engine.name):
                raise RuntimeError(session.ppo.engine_reason)
            session.train()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(9)
    if float(seconds) >= 0:
        saved, ended = -1, None
        while saved < int(steps) and ended is None:
            time.sleep(0.001)
            saved = max((int(one) for one in checkpoints(name) if one.isdigit()), default=0)
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)  # not waited for yet: the number is still its own
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Server:
    def __init__(
        self, environ: dict[str, str], env: str = "CartPole-v1", values: dict[str, Any] = VALUES
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, env, json.dumps(values)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def train(self, name: str, kill_after: float = -1.0, from_steps: int = 0) -> int:
        """Train (or resume) a run in a new process; its exit code. It is killed so many seconds
        after it has a checkpoint of so many steps."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name} {from_steps} {kill_after}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory, unmeasured):
    home, kernels = tmp_path_factory.mktemp("home"), os.path.join(paths.home(), "kernels")
    os.makedirs(kernels, exist_ok=True)
    (home / "kernels").symlink_to(kernels)  # compiled already, perhaps
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        server = Server(unmeasured())
        assert server.train("first") == 0  # compiles: the others take as long as they take
        yield server
    server.close()


def test_a_killed_run_ends_with_the_same_bits(server):
    began = time.monotonic()
    assert server.train("whole") == 0
    span = (time.monotonic() - began) / ITERATIONS
    expected = end_of("whole")
    seed = random.randrange(10**6)
    print(f"moments from seed {seed}")
    moments = random.Random(seed)
    steps_before = []
    for k in range(KILLS):
        name = f"killed-{k}"
        for _ in range(20):
            steps, later = 256 * moments.randrange(ITERATIONS), moments.uniform(0.0, span)
            if server.train(name, later, from_steps=steps) == -signal.SIGKILL:
                break
            find_run(name).remove()  # it was faster: not a kill
            span *= 0.9
        else:
            pytest.fail("the kills always came too late")
        steps_before.append(_steps(name))
        assert server.train(name) == 0
        assert_equal(end_of(name), expected)
        table = read_csv(find_run(name).csv_file)
        assert table["iteration"].tolist() == list(range(1, ITERATIONS + 1))
    assert len(set(steps_before)) > 1  # the moments were different ones


def test_a_run_killed_again_and_again_ends_with_the_same_bits(server):
    began = time.monotonic()
    assert server.train("other") == 0
    span = time.monotonic() - began
    moments = random.Random(1)
    kills = 0
    for _ in range(60):
        code = server.train("often", kill_after=moments.uniform(0.2, 0.6) * span)
        kills += code == -signal.SIGKILL
        if code == 0 and kills >= 2:
            break
        if code == 0:  # it was faster: once more
            find_run("often").remove()
            span, kills = 0.7 * span, 0
    else:
        assert server.train("often") == 0
    assert kills >= 2
    assert_equal(end_of("often"), end_of("other"))


def _steps(name: str) -> int:
    try:
        return int(latest_checkpoint(find_run(name).checkpoints).name)
    except ValueError:
        return -1


def end_of(name: str, steps: int = VALUES["run.total_steps"]) -> dict[str, np.ndarray]:
    """All that the last checkpoint of a finished run holds."""
    found = load_checkpoint(latest_checkpoint(find_run(name).checkpoints))
    assert found.step == steps
    return {
        f"{group}.{key}": array
        for group, part in found.arrays.items()
        for key, array in part.items()
    } | {"recent": np.array(found.facts["recent"])}


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("kind", [["rnd"], ["icm"], ["count"]])
def test_a_killed_run_with_a_bonus_ends_with_the_same_bits(
    kind, server, unmeasured, tmp_path, monkeypatch
):
    """`server` has compiled the kernels."""
    kernels = os.path.join(paths.home(), "kernels")
    (tmp_path / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    values = VALUES | {"intrinsic.kind": kind, "intrinsic.random_steps": 64}
    own = Server(unmeasured(), values=values)
    try:
        began = time.monotonic()
        assert own.train("whole") == 0
        span = (time.monotonic() - began) / ITERATIONS
        moments, kills = random.Random(2), 0
        for k in range(20):
            steps, later = 256 * moments.randrange(ITERATIONS), moments.uniform(0.0, span)
            kills += own.train(f"killed-{k}", later, from_steps=steps) == -signal.SIGKILL
            assert own.train(f"killed-{k}") == 0
            assert_equal(end_of(f"killed-{k}"), end_of("whole"))
            if kills == 2:
                break
        assert kills >= 2
    finally:
        own.close()
