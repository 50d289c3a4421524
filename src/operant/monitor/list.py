"""The monitor's first screen: all runs, and what they are doing."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from operant.monitor.figures import STATUS_COLOURS, number
from operant.monitor.source import Source, View
from operant.runs.directory import list_runs
from operant.toolchain.text import bar

_EVERY_S = 0.5
_LIST = ("mark", "run", "env", "status", "done", "steps/s", "return")
_BAR = 8
_OTHERS = 41
"""Columns that the list needs beside names and environments, without bars."""


class RunsTable(DataTable[Text]):
    """A table whose key to open a row is among those shown."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "open")]


class RunsScreen(Screen[None]):
    """A list of all runs, with what they are doing."""

    BINDINGS: ClassVar[list[BindingType]] = [("space", "mark", "mark")]

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[str, Source] = {}
        self._marked: list[str] = []
        self._bars = False
        self._reading = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """What is on it."""
        yield RunsTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="empty")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.set_interval(_EVERY_S, self.look)

    def on_resize(self) -> None:
        """There may be room for more columns, or for less."""
        self.call_later(self.look)

    def _arrange(self, views: dict[str, View]) -> None:
        """Make the columns that there is room for: bars go first, then the environments."""
        names = max((len(name) for name in views), default=0)
        envs = 2 + max((len(view.env) for view in views.values()), default=1)
        room = self.size.width - _OTHERS - names
        self._bars = room >= envs + _BAR + 1
        table = self.query_one(RunsTable)
        columns = [name for name in _LIST if name != "env" or room >= envs]
        if [key.value for key in table.columns] != columns:
            table.clear(columns=True)
            for name in columns:
                table.add_column("" if name == "mark" else name, key=name)

    async def look(self) -> None:
        """Read all runs and show what changed; after a look that is under way."""
        if self.app.screen is not self:
            return
        async with self._reading:
            runs = {run.id: run for run in reversed(await asyncio.to_thread(list_runs))}
            for name in set(self._sources) - set(runs):
                del self._sources[name]
            self._marked = [name for name in self._marked if name in runs]
            for name, run in runs.items():
                self._sources.setdefault(name, Source(run))
            views = await asyncio.to_thread(lambda: {n: self._sources[n].read() for n in runs})
            self._show(views)

    def _show(self, views: dict[str, View]) -> None:
        self._arrange(views)
        table = self.query_one(RunsTable)
        self.query_one("#empty", Static).update(
            "" if views else "no runs yet; start one: operant train CartPole-v1 --detach"
        )
        known = {key.value for key in table.rows}
        for name in known - set(views):
            table.remove_row(str(name))
        for name, view in views.items():
            known_cells = self._cells(name, view)
            cells = [known_cells[str(key.value)] for key in table.columns]
            if name not in known:
                table.add_row(*cells, key=name)
            else:
                for column, cell in zip(table.columns, cells, strict=True):
                    if table.get_cell(name, column) != cell:
                        table.update_cell(name, column, cell)

    def _cells(self, name: str, view: View) -> dict[str, Text]:
        done = view.progress
        share = "-" if done != done else f"{done:4.0%}"
        bars = f"{bar(done, _BAR)} {share}" if self._bars and done == done else share
        return {
            "mark": Text("●" if name in self._marked else " "),
            "run": Text(_shortened(name, self.size.width - _OTHERS)),
            "env": Text(view.env),
            "status": Text(view.status, STATUS_COLOURS.get(view.status, "")),
            "done": Text(bars),
            "steps/s": Text(number(view.last("sps"))),
            "return": Text(number(view.last("mean_return"))),
        }

    def _current(self) -> str | None:
        table = self.query_one(RunsTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    async def action_mark(self) -> None:
        """Mark a run to be compared, or not."""
        name = self._current()
        if name is not None:
            self._marked = (
                [one for one in self._marked if one != name]
                if name in self._marked
                else [*self._marked, name]
            )
            await self.look()

    def on_data_table_row_selected(self) -> None:
        """Enter, or a click."""
        self.action_open()

    def action_open(self) -> None:
        """Show the run under the cursor, and the marked ones beside it."""
        from operant.monitor.app import RunScreen

        name = self._current()
        if name is None:
            return
        chosen = [name, *(one for one in self._marked if one != name)]
        self.app.push_screen(RunScreen([self._sources[one].run for one in chosen]))


def _shortened(name: str, room: int) -> str:
    """A name with a gap in its middle, where it has no room: both ends tell runs apart."""
    room = max(room, 8)
    half = (room - 1) // 2
    return name if len(name) <= room else f"{name[: room - 1 - half]}…{name[-half:]}"
