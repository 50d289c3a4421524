"""The folder of kernels stays small, and nobody misses what was removed from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operant.toolchain import kernel_cache
from operant.toolchain.generated_modules import load_module, module_path
from operant.toolchain.kernel_cache import prune

DAY = 86400.0


def kernel(folder: Path, name: str, days: float, size: int = 1000) -> None:
    """A kernel of two files that was used `days` ago."""
    (folder / "__pycache__").mkdir(parents=True, exist_ok=True)
    for path in (folder / f"{name}.py", folder / "__pycache__" / f"{name}.f-1.py311.nbi"):
        path.write_bytes(bytes(size // 2))
        then = time.time() - days * DAY
        os.utime(path, (then, then))


def names(folder: Path) -> set[str]:
    files = [*folder.iterdir(), *(folder / "__pycache__").iterdir()]
    return {path.name.split(".")[0] for path in files if path.name != "__pycache__"} - {""}


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    for name, days in (("new", 0), ("older", 80), ("old", 100)):
        kernel(tmp_path, name, days)
    (tmp_path / "tmpabc").mkdir()  # of a compiler that was killed
    os.utime(tmp_path / "tmpabc", (0, 0))
    assert prune(tmp_path) == ["tmpabc", "old"]
    assert names(tmp_path) == {"new", "older"}


def test_of_too_many_those_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "MOST_BYTES", 3500)
    for days in (0, 0.5, 2, 3, 4, 5):
        kernel(tmp_path, f"k{days}", days)
    assert prune(tmp_path) == ["k5", "k4", "k3"]
    monkeypatch.setattr(kernel_cache, "MOST_BYTES", 0)  # used today: stays all the same
    assert prune(tmp_path) == ["k2"]
    assert len(list(tmp_path.glob("k0*.py"))) == 2


def test_a_use_counts_and_leaves_the_time_numba_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    path = module_path("used", "x = 1\n")
    then = time.time() - 100 * DAY
    os.utime(path, (then, then))
    kernel(path.parent, "old", 100)
    assert module_path("used", "x = 1\n") == path
    assert path.stat().st_mtime == pytest.approx(then, abs=1)
    assert prune(path.parent) == ["old"]
    os.utime(path, (then, then))
    assert prune(path.parent) == [path.stem]
    assert load_module("used", "x = 1\n").x == 1  # written anew


def test_the_first_kernel_that_a_process_adds_prunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    kernel(tmp_path / "kernels", "old", 100)
    module_path("added", "x = 2\n")
    assert "old" not in names(tmp_path / "kernels")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert prune(tmp_path / "missing") == []


LOADS = """
import os, sys, time
from itertools import count
from pathlib import Path
from operant.toolchain.generated_modules import load_module, module_path

for i in count():
    if i >= 300 and (Path(sys.argv[1]) / "enough").exists():
        break
    source = f"x = {i % 5}\\n"
    path = module_path("many", source)
    load_module.cache_clear()
    assert load_module("many", source).x == i % 5
    old = time.time() - 100 * 86400
    try:
        os.utime(path, (old, old))  # as if it had not been used for long
    except FileNotFoundError:
        pass
"""
PRUNES = """
import sys
from pathlib import Path
from operant.toolchain.kernel_cache import prune

home, removed = Path(sys.argv[1]), 0
(home / "kernels").mkdir(exist_ok=True)
while not (home / "stop").exists():
    removed += len(prune(home / "kernels"))
    if removed >= 20:
        (home / "enough").touch()
"""


def test_pruning_beside_processes_that_load(tmp_path: Path) -> None:
    """A kernel may go between two uses, but never while it is being loaded."""
    # Bytecode belongs to its kernel, and would always be new.
    environ = {**os.environ, "OPERANT_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    pruner = subprocess.Popen([sys.executable, "-c", PRUNES, str(tmp_path)])
    loads = [sys.executable, "-c", LOADS, str(tmp_path)]
    try:
        done = subprocess.run(loads, env=environ, capture_output=True, text=True, timeout=300)
    finally:
        (tmp_path / "stop").touch()
        pruner.wait(300)
    assert done.returncode == 0, done.stderr
    assert pruner.returncode == 0
