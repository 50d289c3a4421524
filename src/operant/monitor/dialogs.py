"""What the monitor shows in front of its screens: all keys, and a question."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

_HELP = """\
everywhere
  q        leave; training goes on
  ?        this help
  d        dark or light
  p        screenshot (SVG, in this folder)

list
  enter    look at a run
  space    mark it; enter then compares

run
  escape   back to the list
  [  ]     previous, next run
  m  M     next, previous metric of the last plots
  s        smoothing
  +  -     zoom into the newest part, and out
  c  C     compare with one more run; with none
  l        log, or plots
  x        stop the run (asks first)"""


class Help(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q,enter", "dismiss", "close")]
    CSS = "Help { align: center middle; } Help Static { width: 56; height: auto; padding: 1 2; "
    CSS += "border: round $accent; background: $surface; }"

    def __init__(self, read_only: bool = False) -> None:
        super().__init__()
        without = ("  p  ", "  x  ") if read_only else ()
        self._lines = [line for line in _HELP.splitlines() if not line.startswith(without)]

    def compose(self) -> ComposeResult:
        """What is on it."""
        yield Static(Text("\n".join(self._lines)))


class Confirm(ModalScreen[bool]):
    """A question; y is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "dismiss(True)", "yes"),
        ("n,escape,q", "dismiss(False)", "no"),
    ]
    CSS = "Confirm { align: center middle; } Confirm Static { width: auto; max-width: 90%; "
    CSS += "height: auto; padding: 1 2; border: round $warning; background: $surface; }"

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """What is on it."""
        yield Static(Text(f"{self._question}\n\ny  yes      n  no"))
