"""What a user sees while something is compiled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from operant.cli.screen import errors


@contextmanager
def compile_status(text: str) -> Iterator[None]:
    """Show `text` and the seconds that pass, until ``operant.compile`` logs something else.

    What took how long is printed when it is done. Where there is no terminal, a long compilation is
    a line when it begins and one when it ends.
    """
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    handler, log = _Handler(bar, text), logging.getLogger("operant.compile")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        with bar:
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Handler(logging.Handler):
    def __init__(self, bar: Progress, text: str) -> None:
        super().__init__()
        self._bar, self._task = bar, bar.add_task(text, total=None)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno == logging.DEBUG:
            self._bar.update(self._task, description=text)
        if record.levelno > logging.DEBUG or not errors.is_terminal:
            errors.print(text, style="dim", markup=False, highlight=False)
