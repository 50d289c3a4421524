"""The monitor's screens, driven as a person would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable

from operant.monitor import app as screens
from operant.monitor.app import Confirm, Help, MonitorApp, RunScreen, RunsScreen
from operant.monitor.plot import Plot
from operant.ppo.trainer import METRICS
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
) -> None:
    async def play() -> None:
        app = MonitorApp(run)
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await what(pilot)

    asyncio.run(play())


async def settled(pilot: Pilot[None]) -> None:
    """Until what was read is on the screen."""
    for _ in range(50):
        await pilot.pause(0.02)
        screen = pilot.app.screen
        if not isinstance(screen, RunScreen) or screen._shown:
            break
    await pilot.pause(0.02)


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
        assert "policy_loss" not in text(pilot)
        await pilot.press("m")
        assert "value_loss" in text(pilot)
        await pilot.press("M", "M")
        assert "update_seconds" in text(pilot)
        await pilot.press("s")
        assert "smoothed 0.6" in text(pilot)
        await pilot.press("plus")
        assert pilot.app.screen.query_one("#plot0", Plot).window == 0.5
        await pilot.press("minus", "minus")
        assert pilot.app.screen.query_one("#plot0", Plot).window == 1.0
        await pilot.press("c")
        await settled(pilot)
        assert "compared with another" in text(pilot)
        await pilot.press("C")
        await settled(pilot)
        assert "compared" not in text(pilot)
        await pilot.press("l")
        await settled(pilot)
        assert "mean_return" not in text(pilot)
        await pilot.press("l")
        await settled(pilot)
        assert "mean_return" in text(pilot)
        await pilot.press("right_square_bracket")
        await settled(pilot)
        assert text(pilot).startswith("another")
        await pilot.press("left_square_bracket")
        await settled(pilot)
        assert text(pilot).startswith("one")
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(pilot.app.screen, Help)
        assert "stop the run (asks first)" in text(pilot)
        await pilot.press("escape")
        await pilot.press("d")
        assert pilot.app.theme == "textual-light"
        await pilot.press("p")
        await pilot.pause()
        pictures = list(tmp_path.glob("*.svg"))
        assert len(pictures) == 1
        assert "mean_return" in pictures[0].read_text()
        await pilot.press("x")
        assert not isinstance(pilot.app.screen, Confirm)  # it is not running
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(pilot.app.screen, RunsScreen)
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
        await pilot.pause()
        assert isinstance(pilot.app.screen, Confirm)
        assert "Stop busy?" in text(pilot)
        await pilot.press("y" if yes else "n")
        await pilot.pause()
        assert isinstance(pilot.app.screen, RunScreen)

    drive(keys, run)
    live.close()
    assert asked == (["busy"] if yes else [])


def test_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        assert "no runs yet" in text(pilot)
        made("older")
        made("newer", status=Status.FAILED)
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        await screen.look()
        await pilot.pause()
        seen = text(pilot)
        assert "older" in seen
        assert "failed" in seen
        assert screen.query_one(DataTable).row_count == 2
        await pilot.press("space", "down", "enter")
        await settled(pilot)
        assert isinstance(pilot.app.screen, RunScreen)
        assert "compared with" in text(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.screen is screen
        Run(Path("runs/older")).remove()
        await screen.look()
        assert screen.query_one(DataTable).row_count == 1

    drive(keys)


def test_a_run_without_metrics_is_a_sentence() -> None:
    run = Run.create("empty")

    async def look(pilot: Pilot[None]) -> None:
        await pilot.pause(0.1)
        assert "unreadable" in text(pilot)

    drive(look, run)


def test_new_figures_appear() -> None:
    run = made("one", rows=3)
    writer = MetricsWriter(run.mmap_file, METRICS, run_id="one")

    async def look(pilot: Pilot[None]) -> None:
        writer.append([777.0 if name == "mean_return" else 1.0 for name in METRICS])
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        for _ in range(
            100
        ):  # a look that is under way, or a screen drawn just before, may come first
            await screen.look()
            await pilot.pause(0.05)
            if "return 777" in text(pilot):
                break
        assert "return 777" in text(pilot)

    drive(look, run)
    writer.close()
