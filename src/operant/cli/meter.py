"""What a user sees while something is measured."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from operant.cli.screen import errors, mistakes, printable

T = TypeVar("T")
_LINE_EVERY_S = 2.0


def follow(doing: Generator[str, None, T], total: int) -> T:
    """Do it, and show on standard error what is being done: a bar, or lines without a terminal.

    Args:
        doing: yields what it is about to do; what it returns is returned.
        total: how often it yields, about.
    """
    bar = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    task, count, last = bar.add_task("", total=total), 0, time.monotonic()
    with bar:
        while True:
            try:
                text = printable(next(doing))
            except StopIteration as end:
                result: T = end.value
                return result
            bar.update(task, description=text, completed=count, total=max(total, count + 1))
            bar.refresh()
            count += 1
            if not errors.is_terminal and time.monotonic() - last >= _LINE_EVERY_S:
                last = time.monotonic()
                line = f"{count}/{max(total, count)}: {text}"
                errors.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def training_mistakes() -> Iterator[None]:
    """As `mistakes`; and a number that is not finite ends the command with exit code 3."""
    from operant.training.guard import NonFiniteError

    try:
        with mistakes():
            yield
    except NonFiniteError as error:
        text = printable(f"operant: {error}")
        errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3) from None
