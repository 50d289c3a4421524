"""What a person sees while a policy trains: a bar in a terminal, lines of text elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from operant.toolchain.text import short
from operant.training.callbacks import Callback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from operant.training.trainer import Trainer

_LINE_EVERY_S = 5.0
_LINE_EVERY = 0.01
"""Of the time so far, if that is longer: a day has 600 lines, a year 1200."""


class TrainProgress(Callback):
    """Steps, speed, return and time left.

    Args:
        trainer: what trains.
        console: where to write; a bar if it is a terminal.
        total: steps in all; None: those of the configuration.
        keep: leave the last state to be seen.
    """

    watches_only = True

    def __init__(
        self, trainer: Trainer, console: Console, total: int | None = None, keep: bool = False
    ) -> None:
        self._total = trainer.config.run.total_steps if total is None else total
        self._console, self._keep, self._text = console, keep, ""
        self._began, self._from = time.monotonic(), trainer.steps
        self._last_line = self._began
        self._evaluated = math.nan
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = _bar(console, keep)
            self._task = self._bar.add_task("the first iteration", total=self._total)
            self._bar.update(self._task, completed=trainer.steps)

    def __enter__(self) -> TrainProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._keep and self._text:
            self._print(f"{self._text}, {time.monotonic() - self._began:.1f} s")

    def on_update(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Show where training stands."""
        now = time.monotonic()
        speed = (trainer.steps - self._from) / max(now - self._began, 1e-9)
        text = f"{short(trainer.steps)}/{short(self._total)} steps, {short(speed)} steps/s"
        if trainer.recent:
            text += f", return {metrics['mean_return']:.1f}"
        self._evaluated = metrics.get("eval/return", self._evaluated)
        if math.isfinite(self._evaluated):
            text += f", eval {self._evaluated:.1f}"
        self._text = text
        if self._bar is not None:
            self._bar.update(
                self._task, completed=min(trainer.steps, self._total), description=text
            )
        elif now - self._last_line >= max(_LINE_EVERY_S, _LINE_EVERY * (now - self._began)):
            self._last_line = now
            left = max(self._total - trainer.steps, 0) / speed
            self._print(f"{text}, {left:.0f} s left")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


@contextmanager
def shown(
    trainer: Trainer, total: int, callbacks: Iterable[Callback], progress: bool | None
) -> Iterator[list[Callback]]:
    """The callbacks, and one more that shows progress if it is to be shown.

    `progress` None: where somebody looks, and no callback does it already.
    """
    called = list(callbacks)
    if progress is None:
        progress = _watched() and not any(isinstance(one, TrainProgress) for one in called)
    if not progress or trainer.steps >= total or trainer.shards.group.rank:  # rank 0 tells of all
        yield called
        return
    with TrainProgress(trainer, _console(), total, keep=True) as bar:
        yield [*called, bar]


def in_notebook() -> bool:
    """Whether this is a cell of a notebook. A terminal with IPython is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kind = type(shell)
    return kind.__name__ == "ZMQInteractiveShell" or kind.__module__.startswith("google.colab")


def _watched() -> bool:
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _console() -> Console:
    from rich.console import Console

    if in_notebook():  # rich's own bar for notebooks needs ipywidgets, and is nothing without
        return Console(file=sys.stdout, force_jupyter=False, force_terminal=False, emoji=False)
    return Console(stderr=True, emoji=False)


def _bar(console: Console, keep: bool) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.description}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=not keep,
    )
