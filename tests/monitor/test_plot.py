"""The plot widget, in a terminal that is not there."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from operant.monitor import plot as plot_module
from operant.monitor.plot import Plot, Series, View, lay_out

RISING = Series("first", np.arange(101.0), np.arange(101.0))
FALLING = Series("second", np.arange(101.0), 100 - np.arange(101.0))


class Screen(App[None]):
    """One plot and nothing else."""

    CSS = "Plot { padding: 0; }"

    def compose(self) -> ComposeResult:
        yield Plot()

    @property
    def plot(self) -> Plot:
        return self.query_one(Plot)

    def lines(self) -> list[str]:
        strips = [self.plot.render_line(y) for y in range(self.plot.size.height)]
        assert {strip.cell_length for strip in strips} == {self.plot.size.width}
        return [strip.text.rstrip() for strip in strips]

    def colors(self) -> dict[str, str]:
        """The colour of each piece of text."""
        strips = [self.plot.render_line(y) for y in range(self.plot.size.height)]
        return {piece.text.strip(): piece.style.color.name for strip in strips for piece in strip}


def on_screen(test: Callable, size: tuple[int, int] = (40, 10)) -> None:
    """Run `await test(app, pilot)` in a terminal of this size."""

    async def run() -> None:
        app = Screen()
        async with app.run_test(size=size) as pilot:
            await test(app, pilot)

    asyncio.run(run())


def test_title_value_labels_and_line():
    async def test(app, pilot):
        app.plot.show([RISING], title="mean_return")
        await pilot.pause()
        assert app.lines() == [
            "mean_return                          100",
            "    100┤                            ⣀⠤⠖⠋",
            "       │                        ⣀⡤⠖⠋",
            "       │                    ⣀⡤⠒⠉",
            "       │                ⣀⠤⠒⠉",
            "     50┤            ⣀⠤⠒⠉⠁",
            "       │        ⣀⠤⠚⠉",
            "       │    ⣠⠴⠚⠉",
            "      0┤⣠⠴⠒⠉",
            "        0              50            100",
        ]

    on_screen(test)


def test_nothing_to_show():
    async def test(app, pilot):
        assert [line.strip(" │┤01.5") for line in app.lines()] == [""] * 10
        app.plot.show([Series("empty", np.empty(0), np.empty(0))], title="loss", threshold=3.0)
        await pilot.pause()
        assert app.lines()[0] == f"loss{'-':>36}"

    on_screen(test)


def test_several_series_have_a_legend_with_their_latest_values():
    async def test(app, pilot):
        unfinished = Series("third", np.arange(3.0), np.array([1, 0.12345, math.nan]))
        app.plot.show([RISING, FALLING, unfinished], title="loss")
        await pilot.pause()
        assert app.lines()[0] == "loss"
        assert app.lines()[1] == "━ first 100  ━ second 0  ━ t… 0.1235"
        colors = app.colors()
        shown = [colors[name] for name in ("━ first 100", "━ second 0", "━ t… 0.1235")]
        assert len(set(shown)) == 3
        assert [colors["⢀⣠⠤⠒⠋"], colors["⠙⠒⠤⣄⡀"]] == shown[:2]
        app.plot.show([RISING] * 12)
        await pilot.pause()
        assert app.lines()[1] == "━ first 100  ━ first 100  ━ first 100"

    on_screen(test)


def test_the_threshold_is_dashed_behind_the_lines_and_always_in_view():
    async def test(app, pilot):
        app.plot.show([RISING], threshold=200)
        await pilot.pause()
        assert app.lines()[1] == "    200┤" + " ⠉" * 16
        app.plot.show([FALLING, RISING], threshold=100)
        await pilot.pause()
        assert app.lines()[2] == "    100┤⠙⠒⠤⣄⡀⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⢀⣠⠤⠒⠋"
        assert app.colors()["⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉ ⠉"] == app.colors()["100┤"]

    on_screen(test)


def test_text_from_outside_is_harmless():
    async def test(app, pilot):
        named = Series("\x1b]0;own\x07[red]n", RISING.x, RISING.y)
        app.plot.show([named, RISING], title="\x1b[31mX[bold]\n\t\u202e[/]")
        await pilot.pause()
        assert app.lines()[0] == "?[31mX[bold]???[/]"
        assert app.lines()[1] == "━ ?]0;own?[re… 100  ━ first 100"
        assert "\x1b" not in app.export_screenshot()

    on_screen(test)


def test_it_is_drawn_once_for_a_size_and_again_for_another(monkeypatch):
    sizes = []

    def counted(view, width, height):
        sizes.append((width, height))
        return lay_out(view, width, height)

    monkeypatch.setattr(plot_module, "lay_out", counted)

    async def test(app, pilot):
        app.plot.show([RISING])
        await pilot.pause()
        sizes.clear()
        app.plot.refresh()
        await pilot.pause()
        app.lines()
        assert sizes == []
        await pilot.resize_terminal(60, 8)
        await pilot.pause()
        assert len(app.lines()) == 8
        assert app.lines()[1].endswith("⠒⠊⠉")
        app.plot.show([FALLING])
        await pilot.pause()
        assert sizes == [(60, 8)] * 2
        assert app.lines()[1].startswith("    100┤⠉")

    on_screen(test)


@pytest.mark.parametrize("size", [(10, 3), (10, 4), (12, 6), (23, 5), (24, 5), (200, 60)])
def test_labels_go_first(size):
    width, height = size

    async def test(app, pilot):
        app.plot.show([RISING, FALLING], title="title", threshold=50)
        await pilot.pause()
        lines = app.lines()
        assert lines[0] == "title"
        assert any("⠤" in line for line in lines)
        assert any("┤" in line for line in lines) == (width >= 24)
        assert lines[-1].endswith("100") == (height >= 5)
        assert any("━" in line for line in lines) == (height >= 6)

    on_screen(test, size)


def test_light_and_dark():
    async def test(app, pilot):
        app.plot.show([RISING])
        colors = {}
        for theme in ("textual-dark", "textual-light"):
            app.theme = theme
            await pilot.pause()
            colors[theme] = app.colors()["⣀⠤⠖⠋"]
        assert colors == {"textual-dark": "#56b4e9", "textual-light": "#0072b2"}

    on_screen(test)


def test_zoom_shows_the_newest_part():
    async def test(app, pilot):
        app.plot.show([RISING])
        for window, labels in ((0.1, ["90", "95", "100"]), (1.0, ["0", "50", "100"])):
            app.plot.window = window
            await pilot.pause()
            assert app.lines()[-1].split() == labels
        for window in (0, -1, math.nan):
            app.plot.window = window
            assert app.plot.window == 1e-3
            await pilot.pause()
            app.lines()
        app.plot.window = 7
        assert app.plot.window == 1

    on_screen(test)


def test_logarithmic():
    async def test(app, pilot):
        app.plot.log_y = True
        app.plot.show([Series("loss", np.arange(9.0), 10.0 ** -np.arange(9.0))], threshold=-1)
        await pilot.pause()
        labels = [line.split("┤")[0].strip() for line in app.lines() if "┤" in line]
        assert labels == ["1", "1e-5"]

    on_screen(test)


def test_a_plot_set_up_before_it_is_on_the_screen():
    class Early(Screen):
        def compose(self) -> ComposeResult:
            plot = Plot(id="early")
            plot.show([RISING])
            plot.window = 0.1
            yield plot

    async def run():
        app = Early()
        async with app.run_test(size=(40, 10)) as pilot:
            await pilot.pause()
            assert app.lines()[-1].split() == ["90", "95", "100"]

    asyncio.run(run())


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(
    lines=st.lists(
        st.tuples(st.text(), st.lists(st.tuples(numbers, numbers), max_size=9)), max_size=4
    ),
    title=st.text(),
    threshold=st.none() | numbers,
    window=st.floats(1e-3, 1),
    log_y=st.booleans(),
    width=st.integers(0, 60),
    height=st.integers(0, 12),
)
def test_any_data_fits_any_size(lines, title, threshold, window, log_y, width, height):
    series = []
    for name, points in lines:
        x, y = np.array(points, dtype=np.float64).reshape(-1, 2).T
        series.append(Series(name, np.sort(x), y))
    found = lay_out(View(tuple(series), title, threshold, window, log_y), width, height)
    assert len(found) == (height if width else 0)
    legend = height >= 6 and len(lines) > 1
    for number, line in enumerate(found):
        text = "".join(text for text, _ in line)
        assert text.isprintable()
        assert cell_len(text) <= width or (legend and number == 1)
