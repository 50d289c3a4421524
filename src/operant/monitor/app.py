"""The monitor's screens. They only read run directories; to stop a run they send a signal."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical
from textual.screen import Screen
from textual.widgets import Footer, Static

from operant.monitor.braille import Series, smooth
from operant.monitor.dialogs import Confirm, Help
from operant.monitor.figures import metric_names
from operant.monitor.list import RunsScreen
from operant.monitor.panels import identity, large_figures, machine
from operant.monitor.plot import Plot
from operant.monitor.source import Source, View
from operant.runs.control import ask_to_stop
from operant.runs.directory import Run, list_runs

EVERY_S = 0.25
PLOTS_EVERY_S = 1.0
LARGE_PLOTS_EVERY_S = 2.0
"""A frame of four large plots takes 30 ms; figures cost little."""
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
ZOOMS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
SCORES = ("mean_return", "eval/return")
"""What an environment's threshold is a level of."""
CONTROLS = ("picture", "stop")
"""Actions that do more than look; a read-only monitor has none."""


class RunScreen(Screen[None]):
    """One run, or several compared: figures, curves, where the time goes, the log."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "back", "list"),
        Binding("left_square_bracket", "other(-1)", show=False),
        Binding("right_square_bracket", "other(1)", show=False),
        ("m", "metric(1)", "metric"),
        Binding("M", "metric(-1)", show=False),
        ("s", "smooth", "smooth"),
        ("plus,equals_sign", "zoom(1)", "zoom"),
        Binding("minus", "zoom(-1)", show=False),
        ("c", "compare", "compare"),
        Binding("C", "alone", show=False),
        ("l", "log", "log"),
        ("x", "stop", "stop"),
    ]
    CSS = """
    #identity { height: 1; }
    #figures { height: 3; }
    #identity, #figures, #machine, #log { text-wrap: nowrap; text-overflow: ellipsis; }
    #plots { grid-size: 2; grid-rows: 1fr; height: 1fr; }
    #machine { height: 2; }
    #log { height: 4; }
    .small #figures { height: 2; }
    .small #log { height: 2; }
    .logging #plots { display: none; }
    .logging #log { height: 1fr; }
    """

    def __init__(self, runs: list[Run]) -> None:
        super().__init__()
        self._sources = [Source(run) for run in runs]
        self._views: list[View] = []
        self._metric = 0
        self._smoothing = 0
        self._zoom = 0
        self._reading = asyncio.Lock()
        self._asked: object = None
        self._figures: object = None
        self._drawn_at = 0.0

    def compose(self) -> ComposeResult:
        """What is on it."""
        with Vertical(id="body"):
            yield Static(id="identity")
            yield Static(id="figures")
            with Grid(id="plots"):
                for k in range(4):
                    yield Plot(id=f"plot{k}")
            yield Static(id="machine")
            yield Static(id="log")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.set_interval(EVERY_S, self.look)
        self.call_later(self.look)

    def on_resize(self) -> None:
        """Fit what is shown."""
        self.query_one("#body").set_class(self.size.height < 30, "small")
        self._show()

    async def look(self) -> None:
        """Read the runs and show them; after a look that is under way, which may miss a key."""
        if self.app.screen is not self:
            return
        async with self._reading:
            sources = list(self._sources)
            self._views = await asyncio.to_thread(lambda: [one.read() for one in sources])
            self._show()

    def _show(self) -> None:
        """Show the views: what was asked for at once, plots of new figures only now and then."""
        if not self._views:
            return  # a key was pressed before anything was read
        view = self._views[0]
        self.query_one("#identity", Static).update(identity(view, self._views), layout=False)
        self.query_one("#figures", Static).update(
            large_figures(view, self.size.width), layout=False
        )
        log = self.query_one("#log", Static)
        chosen = self._metric, self._smoothing, self._zoom
        asked = [one.run_id for one in self._views], chosen, self.size, log.size
        figures = [(len(one.x()[1]), one.status, one.last("steps")) for one in self._views]
        large = self.size.width * self.size.height > 5000
        pause = LARGE_PLOTS_EVERY_S if large else PLOTS_EVERY_S
        now = time.monotonic()
        due = figures != self._figures and now - self._drawn_at >= pause
        if asked == self._asked and not due:
            return
        self._asked, self._figures, self._drawn_at = asked, figures, now
        self._draw(view)
        self.query_one("#machine", Static).update(machine(view, self.size.width), layout=False)
        lines = view.log or ((view.problem,) if view.problem else ())
        text = Text("\n".join(lines[-max(1, log.size.height) :]), "dim")
        log.update(text, layout=False)

    def _draw(self, view: View) -> None:
        shown = self._shown_metrics(view)
        columns = 2 if self.size.width >= 60 else 1
        grid = self.query_one("#plots", Grid)
        if grid.styles.grid_size_columns != columns:
            grid.styles.grid_size_columns = columns
        for k in range(4):
            plot = self.query_one(f"#plot{k}", Plot)
            if plot.display != (k < len(shown)):
                plot.display = k < len(shown)
            if k < len(shown):
                self._draw_one(plot, shown[k])

    def _shown_metrics(self, view: View) -> list[str]:
        """What there is room for: the two most wanted, then the chosen one and the next."""
        names = metric_names(view)
        first, rest = names[:2], names[2:]
        chosen = [rest[(self._metric + k) % len(rest)] for k in range(min(2, len(rest)))]
        if self.size.width < 60:
            return (chosen if self._metric else first)[:1]
        if self.size.height < 30:
            return [*first[:1], *chosen[:1]] if self._metric else first
        return first + chosen

    def _draw_one(self, plot: Plot, name: str) -> None:
        weight = SMOOTHINGS[self._smoothing]
        series = []
        for view in self._views:
            if name in view.table:
                y = view.table[name]
                label = view.run_id if len(self._views) > 1 else name
                series.append(Series(label, view.x()[1], smooth(y, weight) if weight else y))
        threshold = self._views[0].threshold
        plot.window = ZOOMS[self._zoom]
        plot.show(
            series,
            title=f"{name}, smoothed {weight:g}" if weight else name,
            threshold=threshold if name in SCORES and math.isfinite(threshold) else None,
        )

    # Keys -------------------------------------------------------------------------------------
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something."""
        return self.app.check_action(action, parameters) if action in CONTROLS else True

    def action_back(self) -> None:
        """To the list."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.app.switch_screen(RunsScreen())

    async def action_other(self, step: int) -> None:
        """Another run in place of this one."""
        runs = await asyncio.to_thread(list_runs)
        ids = [run.id for run in runs]
        here = self._sources[0].run.id
        if ids:
            at = (ids.index(here) + step) % len(ids) if here in ids else 0
            self._sources[0] = Source(runs[at])
            await self.look()

    def action_metric(self, step: int) -> None:
        """Another metric."""
        count = max(1, len(metric_names(self._views[0])) - 2) if self._views else 1
        self._metric = (self._metric + step) % count
        self._show()

    def action_smooth(self) -> None:
        """More smoothing, then none."""
        self._smoothing = (self._smoothing + 1) % len(SMOOTHINGS)
        self._show()

    def action_zoom(self, step: int) -> None:
        """Into the newest part, or out."""
        self._zoom = min(max(self._zoom + step, 0), len(ZOOMS) - 1)
        self._show()

    async def action_compare(self) -> None:
        """Add the next run that is not shown yet."""
        shown = {source.run.id for source in self._sources}
        others = list(reversed(await asyncio.to_thread(list_runs)))
        other = next((run for run in others if run.id not in shown), None)
        if other is None:
            self.notify("there is no other run to compare with")
        else:
            self._sources.append(Source(other))
            await self.look()

    async def action_alone(self) -> None:
        """Only the first run again."""
        del self._sources[1:]
        await self.look()

    def action_log(self) -> None:
        """The log instead of the plots, or back."""
        self.query_one("#body").toggle_class("logging")
        self.call_after_refresh(self._show)

    def action_stop(self) -> None:
        """Stop the run, if the user means it."""
        run, view = self._sources[0].run, self._views[0] if self._views else None
        if view is None or not view.live:
            self.notify(f"{run.id} is not running")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                try:
                    ask_to_stop(run)
                except (ValueError, OSError) as error:
                    self.notify(str(error), severity="error", markup=False)
                else:
                    self.notify(f"{run.id} finishes its iteration, saves and ends", markup=False)

        question = f"Stop {run.id}? It finishes its iteration and saves a checkpoint."
        self.app.push_screen(Confirm(question), answered)


class MonitorApp(App[None]):
    """The monitor of all runs, beginning with `run`, or with a list.

    `read_only`: no key stops a run or writes a file.
    """

    TITLE = "operant"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "leave"),
        ("question_mark", "help", "keys"),
        ("d", "shade", "light"),
        ("p", "picture", "picture"),
    ]

    def __init__(self, run: Run | None = None, read_only: bool = False) -> None:
        super().__init__()
        self._first = run
        self._read_only = read_only

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something."""
        return not (self._read_only and action in CONTROLS)

    def on_mount(self) -> None:
        """Begin to look."""
        self.push_screen(RunsScreen() if self._first is None else RunScreen([self._first]))

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(Help(self._read_only))

    def action_shade(self) -> None:
        """Dark or light."""
        light = self.theme == "textual-light"
        self.theme = "textual-dark" if light else "textual-light"

    def action_picture(self) -> None:
        """Save what is on the screen."""
        try:
            path = Path(self.save_screenshot(path=str(Path.cwd())))
        except OSError as error:
            self.notify(f"no picture: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"saved {path.name}", markup=False)
