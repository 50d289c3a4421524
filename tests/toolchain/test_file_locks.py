"""Where there are no POSIX file locks, a sentence says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['fcntl'] = None; "  # as on Windows: it cannot be imported


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)


def test_the_command_says_in_one_sentence_where_it_runs() -> None:
    done = run("sys.argv = ['operant', 'runs']; from operant.cli import main; main()")
    assert done.returncode == 2
    assert done.stdout == ""
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith("operant: Operant needs the file locks of Linux or macOS")
    assert "WSL 2" in sentence


@pytest.mark.parametrize("module", ["operant.runs.directory", "operant.toolchain.kernel_cache"])
def test_a_module_that_needs_locks_raises_it(module: str) -> None:
    done = run(f"import {module}")
    assert "ImportError: Operant needs the file locks" in done.stderr.splitlines()[-1]


def test_environments_still_run_in_plain_python() -> None:
    done = run("import operant; print(operant.make('CartPole-v1', 2).backend)")
    assert done.stdout == "reference\n"
    assert "Operant needs the file locks" in done.stderr
