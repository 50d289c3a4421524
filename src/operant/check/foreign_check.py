"""`check_foreign`: is an environment of Gymnasium's or PettingZoo's API ready to train on?

It is played in a process of its own: one that hangs, exits or crashes is a finding, and ends
nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import IO

import cloudpickle  # type: ignore[import-untyped]

from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.module_files import FilesFinder, module_files
from operant.backends.foreign.processes import why_not_sent
from operant.backends.foreign.worker import end_with
from operant.check.finding import Finding
from operant.check.foreign_trial import ForeignTrial
from operant.toolchain.child import python_command, python_environment

_STAGE_BYTES = 256
"""At the beginning of the report: which check runs, and what it has called."""
_LOOK_S = 0.05
_MOST_WORDS = 300
_STARTING = ("made", "starting Python")
_START_S = 120.0


def check_foreign(
    make_env: MakeEnv, timeout_s: float = 30.0, measured: bool = True
) -> Iterator[Finding]:
    """Run every check on what `make_env` makes; yields each finding as soon as it is known.

    Args:
        make_env: makes one environment. One that cannot be sent to a process is called in this
            one, which it may then end or hold up.
        timeout_s: seconds that one call of the environment may take.
        measured: whether to say how fast it steps.
    """
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be more than 0, got {timeout_s}")
    if why_not_sent(make_env):
        yield from ForeignTrial(make_env, lambda name, what: None, measured).findings()
        return
    with (
        tempfile.TemporaryFile() as setup,
        tempfile.TemporaryFile() as report,
        tempfile.TemporaryFile() as words,
    ):
        modules = json.dumps([sys.path, module_files(), measured])
        setup.write(modules.encode() + b"\n" + cloudpickle.dumps(make_env))
        setup.flush()
        yield from _watched(setup, report, words, timeout_s)


def _watched(
    setup: IO[bytes], report: IO[bytes], words: IO[bytes], timeout_s: float
) -> Iterator[Finding]:
    """What the process finds, and how it ended if that was too soon."""
    alive_read, alive = os.pipe()
    fds = (setup.fileno(), report.fileno(), alive_read)
    process = subprocess.Popen(
        python_command("-m", "operant.check.foreign_check", *map(str, fds)),
        stdin=subprocess.DEVNULL,
        stdout=words,
        stderr=words,
        env=python_environment(),
        pass_fds=fds,
        start_new_session=True,  # with the processes that it may leave behind
    )
    os.close(alive_read)
    reader = _Reader(report)
    stage, since, code = reader.stage(), time.monotonic(), None
    try:
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
            yield from reader.findings()
            now = reader.stage()
            if now != stage:
                stage, since = now, time.monotonic()
            elif time.monotonic() - since > (_START_S if now == _STARTING else timeout_s):
                break
        yield from reader.findings()
        if not reader.complete:
            yield _ending(code, stage, timeout_s, words)
    finally:
        os.close(alive)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Reader:
    """Reads what the process writes into its report: a stage, then a line for each finding."""

    def __init__(self, report: IO[bytes]) -> None:
        self._number, self._at = report.fileno(), _STAGE_BYTES
        self.complete = False

    def stage(self) -> tuple[str, str]:
        """Which check runs, and what it has called."""
        text = os.pread(self._number, _STAGE_BYTES, 0).decode(errors="replace").strip("\0 ")
        name, _, what = text.partition("\t")
        return (name, what) if name else _STARTING

    def findings(self) -> Iterator[Finding]:
        """Those that are new."""
        data = os.pread(self._number, 1 << 20, self._at)
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            facts = json.loads(line)
            if facts is None:
                self.complete = True
            else:
                yield Finding(**facts)


def _ending(
    code: int | None, stage: tuple[str, str], timeout_s: float, words: IO[bytes]
) -> Finding:
    name, what = stage
    if code is None:
        return Finding(name, False, f"{what} did not return within {timeout_s:g} s")
    lines = os.pread(words.fileno(), 1 << 16, 0).decode(errors="replace").strip().splitlines()
    said = f" ({lines[-1][:_MOST_WORDS]})" if lines else ""
    if code < 0:
        detail = f"{what} crashed with {signal.Signals(-code).name}{said}"
    else:
        detail = f"{what} ended the process with exit code {code}{said}"
    return Finding(name, False, detail)


def main(setup: int, report: int, parent: int) -> None:
    """Play in this process: the stage and the findings go to an open file, see `_Reader`."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    at = _STAGE_BYTES

    def say(name: str, what: str) -> None:
        os.pwrite(report, f"{name}\t{what}".encode()[:_STAGE_BYTES].ljust(_STAGE_BYTES), 0)

    with os.fdopen(setup, "rb") as file:
        file.seek(0)
        sys.path[:], files, measured = json.loads(file.readline())
        pickled = file.read()
    sys.meta_path.append(FilesFinder(files))
    say("made", "loading it")
    make_env = cloudpickle.loads(pickled)
    for finding in chain(ForeignTrial(make_env, say, measured).findings(), (None,)):
        line = json.dumps(finding and asdict(finding)).encode() + b"\n"
        os.pwrite(report, line, at)
        at += len(line)
    os._exit(0)  # whatever threads it has left


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
