"""The monitor's screens, driven as a person would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable

from operant.monitor import app as screens
from operant.monitor.app import Confirm, Help, MonitorApp, RunScreen, RunsScreen
from operant.monitor.plot import Plot
from operant.monitor.source import Source, View
from operant.ppo.ppo import METRICS
from operant.runs.directory import Run
from operant.runs.logs import CsvLog
from operant.runs.metrics_file import MetricsWriter
from operant.runs.metrics_layout import Status

SIZES = [(80, 24), (200, 60), (40, 12)]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def made(name: str, rows: int = 30, status: Status = Status.FINISHED) -> Run:
    """A run with curves that rise, and a log."""
    run = Run.create(name, '[env]\nid = "CartPole-v1"\n\n[run]\ntotal_steps = 4000\n')
    run.write_info({"env": "CartPole-v1", "engine": "fused", "device": "cpu"})
    run.log("started: a [bold]log[/bold] with \x1b[31mcolour")
    log = CsvLog(run.csv_file, METRICS)
    with MetricsWriter(run.mmap_file, METRICS, run_id=name) as live:
        for k in range(1, rows + 1):
            row = dict.fromkeys(METRICS, k / 7)
            row |= {"iteration": k, "steps": 100 * k, "seconds": k / 10, "mean_return": 12.5 * k}
            row |= {"sps": 123_400.0, "collect_seconds": 1, "update_seconds": 3}
            row["advantages_seconds"] = 0
            log.write(row)
            live.append([row[metric] for metric in METRICS])
        live.say(status)
    log.close()
    return run


def drive(
    what: Callable[[Pilot[None]], Coroutine[Any, Any, None]],
    run: Run | None = None,
    size: tuple[int, int] = (80, 24),
    read_only: bool = False,
) -> None:
    async def play() -> None:
        app = MonitorApp(run, read_only)
        async with app.run_test(size=size) as pilot:
            await until(lambda: f"{run.id}  " in text(pilot) if run else "no runs" in text(pilot))
            await what(pilot)

    asyncio.run(play())


async def until(true: Callable[[], bool]) -> None:
    """Wait for what the screen shows some time after a key: it reads in another thread."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the screen never showed it")


def text(pilot: Pilot[None]) -> str:
    """What is on the screen."""
    width, height = pilot.app.size
    lines = pilot.app.screen._compositor.render_strips()
    assert len(lines) == height
    return "\n".join("".join(segment.text for segment in line)[:width] for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_a_run_is_shown(size: tuple[int, int]) -> None:
    async def look(pilot: Pilot[None]) -> None:
        seen = text(pilot)
        assert "one" in seen
        assert "finished" in seen
        assert "123 k steps/s" in seen
        assert "375" in seen  # the return
        assert "75%" in seen
        assert any(0x2800 < ord(c) < 0x2900 for c in seen)  # a curve
        if size[0] >= 80:
            assert "update 75%" in seen
            assert "log[/bold]" in seen
        assert "\x1b" not in seen
        shown = [plot for plot in pilot.app.screen.query(Plot) if plot.display]
        assert len(shown) == {80: 2, 200: 4, 40: 1}[size[0]]

    drive(look, made("one"), size)


def test_every_key_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made("another", rows=10)
    run = made("one", status=Status.FINISHED)

    async def keys(pilot: Pilot[None]) -> None:
        def shows(words: str) -> Callable[[], bool]:
            return lambda: words in text(pilot)

        assert "policy_loss" not in text(pilot)
        await pilot.press("m")
        await until(shows("value_loss"))
        await pilot.press("M", "M")
        await until(shows("update_seconds"))
        await pilot.press("s")
        await until(shows("smoothed 0.6"))
        await pilot.press("plus")
        await until(lambda: pilot.app.screen.query_one("#plot0", Plot).window == 0.5)
        await pilot.press("minus", "minus")
        await until(lambda: pilot.app.screen.query_one("#plot0", Plot).window == 1.0)
        await pilot.press("c")
        await until(shows("compared with another"))
        await pilot.press("C")
        await until(lambda: "compared" not in text(pilot))
        await pilot.press("l")
        await until(lambda: "mean_return" not in text(pilot))
        await pilot.press("l")
        await until(shows("mean_return"))
        await pilot.press("right_square_bracket")
        await until(lambda: text(pilot).startswith("another"))
        await pilot.press("left_square_bracket")
        await until(lambda: text(pilot).startswith("one"))
        await pilot.press("question_mark")
        await until(lambda: isinstance(pilot.app.screen, Help))
        await until(shows("stop the run (asks first)"))
        await pilot.press("escape")
        await until(lambda: isinstance(pilot.app.screen, RunScreen))
        await pilot.press("d")
        await until(lambda: pilot.app.theme == "textual-light")
        await pilot.press("p")
        await until(lambda: len(list(tmp_path.glob("*.svg"))) == 1)
        assert "mean_return" in next(tmp_path.glob("*.svg")).read_text()
        await pilot.press("x")
        await until(lambda: "one is not running" in {n.message for n in pilot.app._notifications})
        assert not isinstance(pilot.app.screen, Confirm)
        await pilot.press("escape")
        await until(lambda: isinstance(pilot.app.screen, RunsScreen))
        await pilot.press("q")

    drive(keys, run)


@pytest.mark.parametrize("yes", [False, True])
def test_stopping_asks_first(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    run = Run.create("busy")
    asked: list[str] = []
    monkeypatch.setattr(screens, "ask_to_stop", lambda run: asked.append(run.id))
    live = MetricsWriter(run.mmap_file, ("steps",), run_id="busy")
    live.append([1.0])

    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("x")
        await until(lambda: isinstance(pilot.app.screen, Confirm))
        await until(lambda: "Stop busy?" in text(pilot))
        await pilot.press("y" if yes else "n")
        await until(lambda: isinstance(pilot.app.screen, RunScreen))

    drive(keys, run)
    live.close()
    assert asked == (["busy"] if yes else [])


def test_a_read_only_monitor_stops_nothing_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run.create("busy")
    asked: list[str] = []
    monkeypatch.setattr(screens, "ask_to_stop", lambda run: asked.append(run.id))
    live = MetricsWriter(run.mmap_file, ("steps",), run_id="busy")
    live.append([1.0])

    def files() -> dict[str, bytes]:
        return {
            str(path): b"" if path.name == "metrics.mmap" else path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file()
        }

    before = files()

    async def keys(pilot: Pilot[None]) -> None:
        every = [chr(code) for code in range(33, 127) if chr(code) not in "?q"]
        named = ["enter", "space", "tab", "escape", "delete", "f1", "insert"]
        controls = [f"ctrl+{letter}" for letter in "abdefghijklmnoprstuvwxyz"]
        for key in ["p", "x", "y", *every, *named, *controls]:
            await pilot.press(key)
            assert not isinstance(pilot.app.screen, Confirm), key
        await pilot.press("question_mark")
        await until(lambda: isinstance(pilot.app.screen, Help))
        await until(lambda: "smoothing" in text(pilot))
        assert "stop the run" not in text(pilot)
        assert "screenshot" not in text(pilot)

    drive(keys, run, read_only=True)
    assert (asked, files()) == ([], before)
    live.close()


def test_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        assert "no runs yet" in text(pilot)
        made("older")
        made("newer", status=Status.FAILED)
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        await screen.look()
        await until(lambda: "older" in text(pilot) and "failed" in text(pilot))
        assert screen.query_one(DataTable).row_count == 2
        await pilot.press("space", "down", "enter")
        await until(lambda: "compared with" in text(pilot))
        assert isinstance(pilot.app.screen, RunScreen)
        await pilot.press("escape")
        await until(lambda: pilot.app.screen is screen)
        await pilot.press("space")  # both are marked
        await until(lambda: text(pilot).count("●") == 2)
        Run(Path("runs/older")).remove()
        await screen.look()
        assert screen.query_one(DataTable).row_count == 1
        await pilot.press("enter")  # the marked one is gone: there is nothing to compare with
        await until(lambda: text(pilot).startswith("newer"))
        assert "compared with" not in text(pilot)

    drive(keys)


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (110, "run env status done steps/s return"),
        (90, "run env status done steps/s return"),  # without bars
        (80, "run status done steps/s return"),
        (60, "run status done steps/s return"),  # names with a gap
    ],
)
def test_the_list_has_the_columns_there_is_room_for(width: int, heads: str) -> None:
    made("cartpole-v1-20261118-014403-seed0")

    async def look(pilot: Pilot[None]) -> None:
        await until(lambda: "finished" in text(pilot))
        lines = text(pilot).splitlines()
        assert lines[0].split() == heads.split()
        assert lines[1].rstrip().endswith("375")  # the return, whole
        assert ("█" in lines[1]) == (width == 110)
        assert ("014403-seed0" if width >= 80 else "…") in lines[1]
        await until(lambda: "open" in text(pilot))  # the key that does it is shown
        table = pilot.app.screen.query_one(DataTable)
        assert table.virtual_size.width <= width

    async def begin() -> None:
        async with MonitorApp().run_test(size=(width, 24)) as pilot:
            await look(pilot)

    asyncio.run(begin())


def test_a_run_without_metrics_is_a_sentence() -> None:
    run = Run.create("empty")

    async def look(pilot: Pilot[None]) -> None:
        await until(lambda: "unreadable" in text(pilot))

    drive(look, run)


def test_new_figures_appear() -> None:
    run = made("one", rows=3)
    writer = MetricsWriter(run.mmap_file, METRICS, run_id="one")

    async def look(pilot: Pilot[None]) -> None:
        writer.append([777.0 if name == "mean_return" else 1.0 for name in METRICS])
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        await screen.look()
        await until(lambda: "return 777" in text(pilot))

    drive(look, run)
    writer.close()


def test_a_key_during_a_look_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    made("another")
    run = made("one")
    read, reading, go_on = Source.read, threading.Event(), threading.Event()

    def slow(source: Source) -> View:
        reading.set()
        assert go_on.wait(60)
        return read(source)

    async def keys(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        monkeypatch.setattr(Source, "read", slow)
        look = asyncio.create_task(screen.look())
        await until(reading.is_set)
        compare = asyncio.create_task(screen.action_compare())
        await until(lambda: len(screen._sources) == 2)
        await asyncio.sleep(0)  # it looks, or has given up
        go_on.set()
        await asyncio.gather(look, compare)
        assert [view.run_id for view in screen._views] == ["one", "another"]
        drawn = screen.query_one("#plot0", Plot)._view.series
        assert [series.name for series in drawn] == ["one", "another"]  # curves, too, at once

    drive(keys, run)


def test_keys_before_anything_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keys() -> None:
        app = MonitorApp(made("one"))
        async with app.run_test() as pilot:
            await pilot.press("s", "plus", "m", "l", "x")
            assert app.screen.is_running

    monkeypatch.setattr(RunScreen, "look", lambda screen: asyncio.sleep(0))
    asyncio.run(keys())
