"""What a user sees while a policy trains."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from operant.cli.screen import errors, short
from operant.ppo.callbacks import Callback
from operant.ppo.trainer import PPO

_LINE_EVERY_S = 5.0
_LINE_EVERY = 0.01
"""Of the time so far, if that is longer: a day has 600 lines, a year 1200."""


class TrainProgress(Callback):
    """A bar with steps, speed, return and time left; plain lines where there is no terminal."""

    watches_only = True

    def __init__(self, ppo: PPO) -> None:
        self._total = ppo.config.run.total_steps
        self._began, self._from = time.monotonic(), ppo.steps
        self._last_line = self._began
        self._evaluated = math.nan
        self._bar: Progress | None = None
        if errors.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.description}"),
                TimeRemainingColumn(compact=True),
                console=errors,
                transient=True,
            )
            self._task = self._bar.add_task("the first iteration", total=self._total)
            self._bar.update(self._task, completed=ppo.steps)

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

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Show where training stands."""
        now = time.monotonic()
        speed = (ppo.steps - self._from) / max(now - self._began, 1e-9)
        text = f"{short(ppo.steps)}/{short(self._total)} steps, {short(speed)} steps/s"
        if ppo.recent:
            text += f", return {metrics['mean_return']:.1f}"
        self._evaluated = metrics.get("eval/return", self._evaluated)
        if math.isfinite(self._evaluated):
            text += f", eval {self._evaluated:.1f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=min(ppo.steps, self._total), description=text)
        elif now - self._last_line >= max(_LINE_EVERY_S, _LINE_EVERY * (now - self._began)):
            self._last_line = now
            left = max(self._total - ppo.steps, 0) / speed
            errors.print(f"{text}, {left:.0f} s left", markup=False, highlight=False)
