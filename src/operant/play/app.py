"""Playing any environment with Discrete actions: its picture in half blocks, a key an action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.events import Key, Resize
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from operant.play.game import Game

KEYS = "0123456789abcdefghijklm"
"""Of the actions, in order; n and q mean something else."""


class Picture(Widget):
    """A picture in characters that are two pixels high."""

    pixels: np.ndarray | None = None

    def show(self, pixels: np.ndarray) -> None:
        """Show uint8 [height, width, 3], as large as fits."""
        self.pixels = pixels
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of characters."""
        if self.pixels is None or not self.size.width:
            return Strip.blank(self.size.width)
        height, width, _ = self.pixels.shape
        columns, lines = self.size
        scale = max(width / columns, height / (2 * lines))
        across, down = max(1, int(width / scale)), max(2, int(height / scale)) // 2 * 2
        if 2 * y >= down:
            return Strip.blank(columns)
        upper, lower = (shrunk_row(self.pixels, row, across, down) for row in (2 * y, 2 * y + 1))
        margin = (columns - across) // 2
        cells = [
            Segment("▀", Style.parse(f"rgb({a[0]},{a[1]},{a[2]}) on rgb({b[0]},{b[1]},{b[2]})"))
            for a, b in zip(upper.tolist(), lower.tolist(), strict=True)
        ]
        return Strip([Segment(" " * margin), *cells]).adjust_cell_length(columns)


def shrunk_row(pixels: np.ndarray, row: int, columns: int, rows: int) -> np.ndarray:
    """A row of the picture shrunk to [rows, columns]: means of the pixels that fall together."""
    height, width, _ = pixels.shape
    top = row * height // rows
    band = pixels[top : max(top + 1, (row + 1) * height // rows)].mean(axis=0)
    edges = np.arange(columns) * width // columns
    counts = np.diff(np.append(edges, width))
    shrunk: np.ndarray = (np.add.reduceat(band, edges, axis=0) / counts[:, None]).astype(np.uint8)
    return shrunk


@contextmanager
def ending(app: App[None], game: Game) -> Iterator[None]:
    """Leave the screen when a function of the game raises; whoever ran the app tells the user."""
    try:
        yield
    except Exception as error:
        game.failure = error
        app.exit()


class PlayApp(App[None]):
    """A picture, the score, and a key for each action."""

    TITLE = "operant"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "leave"), ("n", "new", "new episode")]
    CSS = "Picture { height: 1fr; } #line { height: 1; } #menu { height: auto; padding: 0 1; }"

    def __init__(self, game: Game, name: str) -> None:
        super().__init__()
        self.game = game
        self._name = name

    def compose(self) -> ComposeResult:
        """What is on it."""
        yield Static(id="line")
        yield Picture()
        yield Static(id="menu")

    def on_mount(self) -> None:
        """Show the beginning."""
        with ending(self, self.game):
            self.show()

    def show(self) -> None:
        """Everything as it is now."""
        game = self.game
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f" {self._name}", "bold")
        line.append(f"   step {game.steps}   score {game.score:.2f}", "bold green")
        line.append(f"   last reward {game.reward:+.2f}", "dim")
        self.query_one("#line", Static).update(line)
        self.query_one(Picture).show(game.picture())
        menu = Text()
        if game.over:
            menu.append(f"over after {game.steps} steps, score {game.score:.2f}   ", "bold yellow")
        else:
            for action, allowed in enumerate(game.allowed()[: len(KEYS)]):
                menu.append(f"{KEYS[action]}", "bold cyan" if allowed else "dim")
                menu.append(f" action {action + game.first_action}   ", "" if allowed else "dim")
        menu.append("n", "bold cyan")
        menu.append(" new episode   ")
        menu.append("q", "bold cyan")
        menu.append(" leave")
        self.query_one("#menu", Static).update(menu)

    def on_resize(self, event: Resize) -> None:
        """The picture fits itself."""
        self.query_one(Picture).refresh()

    def on_key(self, event: Key) -> None:
        """A key of an action takes it."""
        action = KEYS.find(event.character) if event.character else -1
        if 0 <= action < self.game.num_actions and not self.game.over:
            with ending(self, self.game):
                self.game.act(action)
                self.show()

    def action_new(self) -> None:
        """Begin a new episode."""
        with ending(self, self.game):
            self.game.begin()
            self.show()
