"""A compiler that refuses, and what it said in one line."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_EMPTY_WORDS = ("Failed in ", "During: ", "There are ", "<stdin>: In function")
"""Lines of compilers that come before the reason."""


class CompileError(RuntimeError):
    """A compiler refused, or there is none; the message is one sentence, or the compiler's words.

    What the compiler itself raised is the ``__cause__``.
    """


def one_line(error: BaseException) -> str:
    """What an error says, in one line: of a compiler's many lines the one with the reason."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    said = [line for line in lines if line and not line.startswith(_EMPTY_WORDS)]
    marked = [line for line in said if "error:" in line]
    text = (marked or said or [""])[0].rstrip(".")
    kind = type(error).__name__
    return text if isinstance(error, CompileError) and text else f"{kind}: {text}".rstrip(": ")
