"""Measurements are generators that say what they do."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def drained(generator: Generator[str, None, T]) -> tuple[list[str], T]:
    """Everything a generator yields, and what it returns."""
    seen = []
    while True:
        try:
            seen.append(next(generator))
        except StopIteration as end:
            return seen, end.value
