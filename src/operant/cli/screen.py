"""What every verb shares: where output goes, and how a user's mistake ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

from rich.console import Console

output = Console()
"""Results: standard output."""
errors = Console(stderr=True)
"""Progress and mistakes: standard error, so that results can be piped."""


class UserError(Exception):
    """A mistake of the user's; the message is the one sentence they see."""


class Interrupted(Exception):  # noqa: N818  (not an error: the user's wish)
    """Ctrl-C before anything was saved."""


P = ParamSpec("P")


def verb(command: Callable[P, None]) -> Callable[P, None]:
    """Mark a function as a command: Ctrl-C reaches `main` as `Interrupted`."""

    @wraps(command)
    def interruptible(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:  # the command-line library would end it with words of its own
            raise Interrupted from None

    return interruptible


@contextmanager
def mistakes() -> Iterator[None]:
    """Turn the library's ValueError and TypeError, raised for bad input, into `UserError`."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UserError(str(error)) from error


def short(number: float) -> str:
    """A figure for a table: 149.2 M, 12.5 k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.1f}"
