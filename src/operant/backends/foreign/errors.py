"""What goes wrong in environments that run as a batch, as errors of one sentence."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from operant.compiler.own_code import is_library

_MOST_SHOWN = 100
_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


class ForeignEnvError(RuntimeError):
    """An environment failed: it raised, or gave what its spaces do not allow.

    The message is one sentence. The environment's own traceback, where it has one, is in
    `traceback` and in the notes that Python prints below an error.
    """

    def __init__(
        self,
        message: str,
        env_index: int | None = None,
        seed: int | None = None,
        action: Any = None,
        traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.env_index = env_index
        self.seed = seed
        """What it was last reset with."""
        self.action = action
        """As text; None where it was not stepping."""
        self.traceback = traceback
        if traceback:
            self.add_note("In the environment:\n" + traceback.rstrip())

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "message": str(self),
            "env_index": self.env_index,
            "seed": self.seed,
            "action": self.action,
            "traceback": self.traceback,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ForeignEnvError:
        """The error that `facts` describes."""
        return cls(**facts)


class WorkerDiedError(ForeignEnvError):
    """A process that ran environments ended."""


class StepTimeoutError(ForeignEnvError):
    """Environments did not answer in time."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an error that came out of an environment is the user's Ctrl-C, which only the main
    thread of a process that listens to it receives; else the environment raised it."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


def in_words(error: BaseException) -> str:
    """The type of an error and what it says, also of one that cannot be printed."""
    try:
        said = str(error)
    except Exception as another:
        said = f"(its text cannot be had: {type(another).__name__})"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def shown(value: object) -> str:
    """A value in a sentence: short, also one that cannot be printed."""
    try:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    except Exception:
        text = f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def some_envs(indices: range | list[int]) -> str:
    """Which environments, in words."""
    if len(indices) == 1:
        return f"environment {indices[0]}"
    first, last = indices[0], indices[-1]
    if last - first + 1 == len(indices):
        return f"environments {first} to {last}"
    return "environments " + ", ".join(map(str, indices))


def place_of(error: BaseException) -> str:
    """``game.py:12``: the innermost line of the author's that an error passed, or of a library's
    where there is none; empty if it is an error of our own call, of other arguments than the author
    takes."""
    passed = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in passed if not frame.filename.startswith(_PACKAGE)]
    own = [frame for frame in frames if not is_library(frame.filename)]
    last = (own or frames)[-1:]
    return "".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in last)
