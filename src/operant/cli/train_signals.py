"""SIGINT and SIGTERM while a policy trains: finish, save, end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.ppo.session import Session

_SHOW_CURSOR = "\x1b[?25h"


class Signals:
    """SIGINT and SIGTERM finish the iteration and save; a second SIGINT stops at once.

    During the evaluation, when everything is saved, the first raises KeyboardInterrupt.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[int, Any] = {}
        self.asked = False
        self.evaluating = False

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            saved = f"saved up to step {self._session.recorder.saved_step or 0:,}"
            with suppress(OSError):
                self._session.run.log(f"stopped at once; {saved}")
            show_cursor = _SHOW_CURSOR if os.isatty(2) else ""  # the bar hid it
            _say(f"{show_cursor}operant: stopped at once; {saved}")
            os._exit(130)
        first, self.asked = not self.asked, True
        if self.evaluating:
            if first:
                _say("leaving out the evaluation; everything is saved")
                raise KeyboardInterrupt
            return
        self._session.ppo.stop()
        if number == signal.SIGTERM and "RANK" in os.environ:
            return  # torchrun's, when another rank failed: what that says is enough
        _say("finishing the iteration, then saving (Ctrl-C again: stop at once)")


def _say(text: str) -> None:
    """Straight to standard error: a signal may interrupt a print, which would keep it back."""
    with suppress(OSError):  # nobody listens
        os.write(2, f"\n{text}\n".encode())
