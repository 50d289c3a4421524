"""What every verb shares: where output goes, and how a user's mistake ends."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import IO, Any, ParamSpec, cast

from rich.console import Console
from rich.markup import escape

import operant
from operant.cli.interrupts import arrived
from operant.text import printable

__all__ = [
    "Interrupted",
    "UserError",
    "authors_mistake",
    "errors",
    "file_trouble",
    "literal",
    "mistakes",
    "output",
]
__all__ += ["printable", "short", "verb"]


class _StandardError:
    """`sys.stderr` as it is at the moment, but to write to it never fails.

    Its reader may go away (``2>&1 | head -1``) or its disk be full; that must not end a training.
    """

    @property
    def _stream(self) -> Any:
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # rich's own, under a bar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or from now on drop everything."""
        try:
            if self._stream is not None:
                self._stream.write(text)
        except OSError:
            self._drop_all()
        return len(text)

    def flush(self) -> None:
        """Flush, or from now on drop everything."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError:
            self._drop_all()

    def _drop_all(self) -> None:
        with suppress(OSError):  # a stream without a descriptor
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


output = Console(emoji=False)
"""Results: standard output."""
errors = Console(file=cast("IO[str]", _StandardError()), emoji=False)
"""Progress and mistakes: standard error, so that results can be piped."""


_PACKAGE = str(Path(operant.__file__).parent) + os.sep
_LIBRARIES = {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
_NOT_AUTHORS = (_PACKAGE, *_LIBRARIES, "<")
"""Where the code of files begins that no author of an environment wrote."""


class UserError(Exception):
    """A mistake of the user's; the message is the one sentence they see."""


class Interrupted(Exception):  # noqa: N818  (not an error: the user's wish)
    """Ctrl-C; the message says what was saved, if anything was."""


P = ParamSpec("P")


def verb(command: Callable[P, None]) -> Callable[P, None]:
    """Mark a function as a command: Ctrl-C reaches `main` as `Interrupted`."""

    @wraps(command)
    def interruptible(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:  # the command-line library would end it with words of its own
            arrived()
            raise Interrupted from None

    return interruptible


@contextmanager
def mistakes() -> Iterator[None]:
    """Turn what is raised for bad input or a bad file into `UserError`.

    That is ValueError, TypeError and MemoryError, the library's, and OSError, the system's.
    """
    try:
        yield
    except (ValueError, TypeError, MemoryError) as error:
        own = type(error).__module__.startswith("operant.")  # then it says where
        raise UserError((None if own else authors_mistake(error)) or str(error)) from error
    except OSError as error:
        raise UserError(file_trouble(error)) from error


def authors_mistake(error: BaseException) -> str | None:
    """What went wrong in the code of an environment's author, with file and line; None if the error
    comes from elsewhere."""
    sources = sys.modules.get("operant.vector.array_source")
    if sources is not None and isinstance(error, sources.OutOfBoundsError):
        return str(error)  # of compiled code; it says where
    if isinstance(error, SyntaxError) and not (error.filename or "<").startswith(_NOT_AUTHORS):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [k for k, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)]
    for frame in reversed(frames[ours[0] :] if ours else []):
        if not frame.filename.startswith(_NOT_AUTHORS):
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            return f"{frame.filename}:{frame.lineno}: {what}"
    return None


def file_trouble(error: OSError) -> str:
    """What the system refused, in words."""
    file = "a file" if error.filename is None else error.filename
    return f"cannot read or write {file}: {error.strerror or error}"


def literal(text: object) -> str:
    """Text from a file or a user, for a place where rich would read markup."""
    return escape(printable(str(text)))


def short(number: float, decimals: int = 1) -> str:
    """A figure for a table: 149.2 M, 12.5 k, 256."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.{decimals}f} {unit}"
    return str(number) if isinstance(number, int) else f"{number:.1f}"
