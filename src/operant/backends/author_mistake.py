"""What an author's functions raise while they run, as a sentence with file and line."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable
from typing import Any

from operant.backends.foreign.errors import ForeignEnvError
from operant.compiler.errors import EndlessLoopError, RulesError, RulesOverflowError
from operant.compiler.own_code import is_library
from operant.compiler.recording.explain import near
from operant.compiler.spec.rules import call
from operant.lang.advice import LanguageError
from operant.render.canvas import Canvas
from operant.toolchain.errors import CompileError, one_line

_PLACED = re.compile(r"[^\n]+?:\d+: ")


def env_mistake(error: BaseException) -> str | None:
    """The sentence for an error that an environment is to blame for, not its caller: one of its
    functions raised, or it cannot be compiled. None for all others."""
    known = (RulesError, RulesOverflowError, EndlessLoopError, CompileError, ForeignEnvError)
    if isinstance(error, known):
        return str(error)
    if isinstance(error, LanguageError) and _PLACED.match(str(error)):
        return str(error)  # it begins with the author's line already
    place = author_place(error)
    if place is None:
        return None
    file, line, name = place
    return f"{file}:{line}: {name}() raised {one_line(error)}{_advice(error)}"


def _advice(error: BaseException) -> str:
    """What to write instead, where that is known."""
    called = re.match(r"Canvas\.(\w+)\(\) (missing|takes|got)", str(error))
    if isinstance(error, TypeError) and called:
        return f"; write canvas.{called[1]}({', '.join(_arguments(getattr(Canvas, called[1])))})"
    fields = getattr(getattr(error, "obj", None), "_fields", None)
    if isinstance(error, AttributeError) and fields:
        return near(str(error.name), fields)
    if isinstance(error, ZeroDivisionError):
        return "; ask before, with `if`, or divide by max(x, 1)"
    return ""


def _arguments(method: Callable[..., Any]) -> list[str]:
    """The names of a method's arguments, with the defaults of those that have one."""
    given = list(inspect.signature(method).parameters.values())[1:]
    return [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in given]


def author_place(error: BaseException) -> tuple[str, int, str] | None:
    """The author's line, in whatever module, that an error passed; None without one."""
    from operant.backends.reference.arrays import ArrayReferenceBackend

    calls = (call.__code__, ArrayReferenceBackend._call.__code__)
    found: tuple[str, int, str] | None = None
    called = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if called and (found is None or _is_authors(code.co_filename, found[0])):
            found = (code.co_filename, line, code.co_name)
        called = called or code in calls
    return found


def _is_authors(file: str, known: str) -> bool:
    """Whether a file is the author's, as `known` is: not one of a library that it calls."""
    beside = os.path.dirname(file) == os.path.dirname(known)
    return beside or not is_library(file)
