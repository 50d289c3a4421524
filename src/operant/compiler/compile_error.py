"""An environment that a backend's compiler refuses: said in one sentence, never passed over."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operant.lang.advice import LanguageError
from operant.toolchain.errors import CompileError, one_line

_PACKAGE = str(Path(__file__).parents[1])


class FallbackWarning(UserWarning):
    """``backend="auto"`` took a slower backend, because the fastest one does not work."""


@contextmanager
def compiling(env: type[Any], backend: str) -> Iterator[None]:
    """Raise `CompileError`, a sentence about `env`, for whatever a compiler raises.

    What the author or the disk is to blame for is raised as it is.
    """
    try:
        yield
    except (LanguageError, OSError, MemoryError):
        raise
    except Exception as error:
        raise refused(env, backend, error) from error


def refused(env: type[Any], backend: str, error: Exception) -> CompileError:
    """The error for an environment that cannot be compiled, because a compiler raised `error`."""
    return CompileError(
        f"{env.__qualname__} cannot be compiled for backend {backend!r}: {one_line(error)} "
        "(a fault of Operant's, please report it; backend 'reference' runs it meanwhile, slowly)"
    )


def warn_of_fallback(env: type[Any], backend: str, taken: str, error: Exception) -> str:
    """Warn that `env` runs on the backend `taken`; returns why, for ``backend_reason``."""
    cause = error.__cause__
    reason = one_line(error if cause is None else cause)
    how = "in plain Python, slowly" if taken == "reference" else "not on the GPU"
    warnings.warn(
        f"{env.__qualname__} runs on backend {taken!r}, {how}: backend {backend!r} does not work "
        f"here: {reason}. Ask for backend={backend!r} to see the whole error, and report it if the "
        "environment is not to blame",
        FallbackWarning,
        stacklevel=_depth_of_caller(),
    )
    return f"auto: {backend} does not work here: {reason}"


def _depth_of_caller() -> int:
    """Of the innermost frame outside this package, as `warnings.warn` in `warn_of_fallback` counts
    from there."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth
