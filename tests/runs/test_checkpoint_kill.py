"""A kill or a full disk at any moment of a save leaves a good checkpoint, and the newest one."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.runs.checkpoint import (
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    mark_best,
    prune_checkpoints,
    save_checkpoint,
)

KILLS = 10
# What a save does to the disk, apart from writing bytes.
CALLS = ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir")

SAVER = """
import sys
from pathlib import Path
import numpy as np
from operant.runs.checkpoint import mark_best, prune_checkpoints, save_checkpoint

folder, step = Path(sys.argv[1]), int(sys.argv[2])
weights = np.zeros(200_000)
while True:
    for again in (0, 1):  # every step twice, with other content: the second replaces the first
        weights[:] = step + again / 2
        save_checkpoint(folder, step, {"model": {"w": weights}}, {"value": step + again / 2})
        print(step + again / 2, flush=True)
    mark_best(folder, step, step)
    prune_checkpoints(folder, 2)
    step += 1
"""


def test_kill_at_random_during_saves(
    tmp_path: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    rng = random.Random(0)
    value = 0.0
    for _ in range(KILLS):
        command = [sys.executable, "-c", SAVER, str(tmp_path), str(int(value) + 1)]
        with subprocess.Popen(
            command, env=unmeasured(), stdout=subprocess.PIPE, text=True
        ) as saver:
            assert saver.stdout is not None
            first = saver.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.1))
            saver.kill()
            lines = [first, *saver.stdout]
        assert saver.returncode == -signal.SIGKILL
        value = max(float(line) for line in lines if line.endswith("\n"))
        loaded = load_checkpoint(latest_checkpoint(tmp_path))
        assert loaded.facts["value"] >= value
        assert (loaded.arrays["model"]["w"] == loaded.facts["value"]).all()
        assert int(loaded.facts["value"]) == loaded.step
        value = loaded.facts["value"]
    assert value >= KILLS
    prune_checkpoints(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.isdigit()) == ["best", "latest"]


# The same at each call in turn, without chance: a child dies just before its n-th one.
STEPPER = """
import os, shutil, signal, sys
from pathlib import Path
import numpy as np
from operant.runs.checkpoint import (
    latest_checkpoint, list_checkpoints, load_checkpoint, mark_best, prune_checkpoints,
    save_checkpoint, verify_checkpoint
)

root, names = Path(sys.argv[1]), sys.argv[2].split(",")


def save(folder, step, value):
    save_checkpoint(folder, step, {"model": {"w": np.full(9, value)}}, {"value": value})


def prepare(folder):
    for step in (1, 2, 3):
        save(folder, step, step)
    mark_best(folder, 1, 1.0)


def first(folder):
    save(folder, 1, 1.0)
def following(folder):
    save(folder, 4, 4.0)
def replacing(folder):
    save(folder, 3, 3.5)
def alone(folder):
    save(folder, 1, 1.5)
def pruning(folder):
    prune_checkpoints(folder, 1)


def die_at(n):
    calls = 0
    for name in names:
        def wrapped(*a, _call=getattr(os, name), **k):
            nonlocal calls
            calls += 1
            if calls == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return _call(*a, **k)
        setattr(os, name, wrapped)


for job, before, after in (
    (first, None, 1.0), (following, 3, 4.0), (replacing, 3, 3.5), (alone, 1, 1.5), (pruning, 3, 3),
):
    n, seen = 0, set()
    while True:
        n += 1
        folder = root / f"{job.__name__}-{n}"
        if job is alone:
            save(folder, 1, 1)
        elif job is not first:
            prepare(folder)
        child = os.fork()
        if child == 0:
            die_at(n)
            job(folder)
            os._exit(0)
        done = os.waitpid(child, 0)[1] == 0
        if job is first and not (folder / "000000000001").exists():
            assert not done
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for path in list_checkpoints(folder):  # whatever has a step's name is whole
            verify_checkpoint(path)
        found = load_checkpoint(latest_checkpoint(folder))
        assert found.facts["value"] in (before, after), (job, n, found)
        assert (found.arrays["model"]["w"] == found.facts["value"]).all()
        assert not (after in seen and found.facts["value"] != after), "went back"
        seen.add(found.facts["value"])
        prune_checkpoints(folder, 9)
        again = load_checkpoint(latest_checkpoint(folder))
        assert again.facts == found.facts, (job, n)
        left = sorted(p.name for p in folder.iterdir() if p.name.startswith("."))
        assert not left, left
        if done:
            break
    assert seen == {before, after} - {None}, (job, seen)
    print(job.__name__, n - 1)
"""


def test_kill_before_each_call_in_turn(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STEPPER, str(tmp_path), ",".join(CALLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    counts = {name: int(count) for name, count in map(str.split, done.stdout.splitlines())}
    assert list(counts) == ["first", "following", "replacing", "alone", "pruning"]
    assert min(counts.values()) >= 5


def save(folder: Path, step: int, value: float) -> None:
    save_checkpoint(folder, step, {"model": {"w": np.full(5000, value)}}, {"value": value})


class Failing:
    """Each of CALLS raises at its n-th call in all, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.n, self.calls = n, 0
        for name in CALLS[:4]:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.n:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return wrapped


@pytest.mark.parametrize("step", [4, 3], ids=["new", "replaced"])
def test_disk_full_at_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    failures = 0
    for n in range(1, 100):
        folder = tmp_path / str(n)
        for k in (1, 2, 3):
            save(folder, k, k)
        with monkeypatch.context() as patch:
            failing = Failing(patch, n)
            try:
                save(folder, step, step + 0.5)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
                failures += 1
            else:
                break
        assert failing.calls >= n
        found = load_checkpoint(latest_checkpoint(folder))
        assert found.facts["value"] in (3, step + 0.5)
        assert not [p.name for p in folder.iterdir() if p.name.startswith(".tmp-0")]
        values = [load_checkpoint(path).facts["value"] for path in list_checkpoints(folder)]
        assert values[:2] == [1, 2]
        assert values[2:] in ([[3], [3, 4.5]] if step == 4 else [[3], [3.5]])
    assert failures >= 9
    assert load_checkpoint(latest_checkpoint(folder)).facts == {"value": step + 0.5}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [0, 100, 4096, 30_000])
def test_a_write_that_stops_midway(tmp_path: Path, size: int) -> None:
    save(tmp_path, 1, 1.0)
    mark_best(tmp_path, 1, 1.0)
    before = sorted(os.listdir(tmp_path))
    with largest_file(size), pytest.raises(OSError, match="File too large"):
        save(tmp_path, 2, 2.0)
    with largest_file(0), pytest.raises(OSError, match="File too large"):
        mark_best(tmp_path, 1, 2.0)
    assert sorted(os.listdir(tmp_path)) == before
    assert load_checkpoint(latest_checkpoint(tmp_path)).facts == {"value": 1.0}
