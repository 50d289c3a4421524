"""`Recorded`: what the words of the language ask of a value that is recorded, not computed."""

from __future__ import annotations

from typing import Any


class Recorded:
    """A number whose value is not known yet: a compiler's own class says what becomes of a word."""

    __slots__ = ()

    def word(self, name: str, *values: object) -> Any:
        """Record the word `name` on `values`, of which this is one."""
        raise NotImplementedError


def recorder(*values: object) -> Recorded | None:
    """The first of `values` that is recorded; None if all are known."""
    return next((value for value in values if isinstance(value, Recorded)), None)
