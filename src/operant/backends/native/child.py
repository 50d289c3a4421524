"""Running the trial of a library in another process, and what its end means."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from operant.compiler.spec.native_abi import NativeError
from operant.toolchain.child import python_command, python_environment

STAGE_BYTES = 128
"""At the beginning of the report: what is being called."""
_STARTING_S = 60.0  # for Python itself, on a busy machine


def run_trial(path: Path, timeout_s: float) -> int:
    """Try the library at `path` in a process of its own; how many steps were played.

    Raises:
        NativeError: it was refused, crashed, or took longer than `timeout_s` seconds.
    """
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be positive, got {timeout_s}")
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as words:
        code = _run(path, timeout_s, report, words)
        stage = os.pread(report.fileno(), STAGE_BYTES, 0).decode().strip()
        verdict = os.pread(report.fileno(), 1 << 16, STAGE_BYTES)
        last = os.pread(words.fileno(), 1 << 16, 0).decode(errors="replace").strip()
    if verdict:
        found = json.loads(verdict)
        if "refused" in found:
            raise NativeError(found["refused"])
        return int(found["steps"])
    said = f" ({last.splitlines()[-1][:300]})" if last else ""
    if code == 1 and "Traceback" in last:
        raise RuntimeError(f"the trial of {path.name} failed: {last}")
    if code in (None, -signal.SIGALRM):
        raise NativeError(f"{stage} did not return within {timeout_s:g} s")
    if code < 0:
        raise NativeError(f"it crashed with {signal.Signals(-code).name} in {stage}{said}")
    raise NativeError(f"it ended the process with exit code {code} in {stage}{said}")


def _run(path: Path, timeout_s: float, report: IO[bytes], words: IO[bytes]) -> int | None:
    """The exit code of the trial; None if it had to be killed."""
    number = report.fileno()
    arguments = ["-m", "operant.backends.native.trial", str(path), str(number), str(timeout_s)]
    process = subprocess.Popen(
        python_command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=words,
        env=python_environment(),
        pass_fds=(number,),
    )
    try:
        return process.wait(timeout_s + _STARTING_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()
