"""Where Python is, sampled, in speedscope's format (https://www.speedscope.app).

py-spy sees native code too and does not disturb the process, but has to be installed and allowed to
look into it. What is built in needs nothing: a thread of this process looks at the others.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

INTERVAL_S = 0.005
_STARTS_S, _ENDS_S = 20.0, 60.0


class Place(NamedTuple):
    """A function in a file, and the line where it is."""

    name: str
    file: str
    line: int


class Sampler:
    """Looks at the stacks of all other threads again and again while it is entered.

    A thread that runs machine code without the interpreter's lock is seen at the line that called
    it.

    Args:
        interval_s: seconds between two looks, at least.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="operant-sampler")
        self._stacks: dict[int, list[tuple[tuple[Place, ...], float]]] = {}
        self._names: dict[int, str] = {}
        self.looks = 0
        """How often it looked."""

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._stopping.wait(self._interval_s):
            now = time.perf_counter()
            self._look(now - before)
            before = now

    def _look(self, seconds: float) -> None:
        own = threading.get_ident()
        self._names |= {one.ident: one.name for one in threading.enumerate() if one.ident}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                self._stacks.setdefault(ident, []).append((_stack(frame), seconds))
        self.looks += 1

    def speedscope(self, name: str) -> dict[str, Any]:
        """What was seen: a profile for each thread, the main thread first."""
        index: dict[Place, int] = {}
        profiles = []
        main = threading.main_thread().ident
        for ident in sorted(self._stacks, key=lambda one: one != main):
            seen = self._stacks[ident]
            samples = [[index.setdefault(p, len(index)) for p in stack] for stack, _ in seen]
            weights = [round(seconds, 6) for _, seconds in seen]
            profiles.append(
                {
                    "type": "sampled",
                    "name": self._names.get(ident, f"thread {ident}"),
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": samples,
                    "weights": weights,
                }
            )
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "shared": {"frames": [place._asdict() for place in index]},
            "profiles": profiles,
        }


def _stack(frame: FrameType | None) -> tuple[Place, ...]:
    """From the outermost call to where it is."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(Place(code.co_qualname, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(reversed(found))


def record_flame(work: Callable[[], object], path: Path, name: str) -> str:
    """Do something and write its flame graph; who sampled it, and why not py-spy.

    Args:
        work: what to look at.
        path: the file to write.
        name: of the profile.

    Raises:
        ValueError: py-spy looked, but wrote nothing.
    """
    program = shutil.which("py-spy")
    if program is None:
        why = "py-spy, which also sees machine code, is not installed"
    else:
        spy = _PySpy(program, path)
        if not spy.trouble:
            try:
                work()
            finally:
                spy.end()
            if spy.trouble:
                raise ValueError(spy.trouble)
            return "py-spy"
        why = spy.trouble
    with Sampler() as sampler:
        work()
    path.write_text(json.dumps(sampler.speedscope(name)))
    return f"the built-in sampler ({why})"


class _PySpy:
    """py-spy, looking at this process until it is told to end."""

    def __init__(self, program: str, path: Path) -> None:
        self._path = path
        options = ["--pid", str(os.getpid()), "--format", "speedscope", "--output", str(path)]
        options += ["--rate", "200", "--threads", "--nonblocking", "--duration", "unlimited"]
        self._process = subprocess.Popen(
            [program, "record", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._began = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.trouble = ""
        """Why there is no flame graph of its making."""
        if not self._began.wait(_STARTS_S):
            self._give_up("py-spy did not start")
        elif self._process.poll() not in (None, 0):
            self._give_up("")

    def _read(self) -> None:
        """Until it ends; it says that it samples, or why it cannot."""
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self._lines.append(line.strip())
                if "ampling" in line:
                    self._began.set()
        self._process.wait()
        self._began.set()

    def _give_up(self, why: str) -> None:
        self._process.kill()
        self._process.wait()
        said = [line for line in self._lines if line]
        self.trouble = why or f"py-spy may not look: {said[-1] if said else 'it said nothing'}"

    def end(self) -> None:
        """Let it write its file."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._give_up("py-spy did not end")
            return
        self._reader.join()
        if not self._path.is_file() or not self._path.stat().st_size:
            self._give_up("")
