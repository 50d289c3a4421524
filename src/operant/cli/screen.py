"""What every verb shares: where output goes, and how a user's mistake ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import IO, Any, ParamSpec, cast

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from operant.cli.interrupts import arrived
from operant.toolchain.text import printable, short

__all__ = [
    "Interrupted",
    "UserError",
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


class _Screen(Console):
    """A console whose spinner reads no emoji, either: ``snake.py:Snake: ...`` is no snake."""

    def status(self, status: Any, **options: Any) -> Status:
        """As rich's; a string may hold markup."""
        text = Text.from_markup(status, emoji=False) if isinstance(status, str) else status
        return super().status(text, **options)


output = _Screen(emoji=False)
"""Results: standard output."""
errors = _Screen(file=cast("IO[str]", _StandardError()), emoji=False)
"""Progress and mistakes: standard error, so that results can be piped."""


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

    That is ValueError, TypeError and MemoryError, the library's, and OSError, the system's; and
    whatever an environment's own functions raise, or a compiler that refuses them.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        from operant.backends.author_mistake import env_mistake

        text = env_mistake(error)
        if text is None and isinstance(error, OSError):
            text = file_trouble(error)
        if text is None and isinstance(error, ValueError | TypeError | MemoryError):
            text = str(error)
        if text is None:
            raise
        raise UserError(text) from error


def file_trouble(error: OSError) -> str:
    """What the system refused, in words."""
    file = "a file" if error.filename is None else error.filename
    return f"cannot read or write {file}: {error.strerror or error}"


def literal(text: object) -> str:
    """Text from a file or a user, for a place where rich would read markup."""
    return escape(printable(str(text)))
