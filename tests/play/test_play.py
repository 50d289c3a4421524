"""Games in the terminal, played key by key."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from operant.cli import main
from operant.cli.play import make_app
from operant.cli.target import load_env
from operant.envs.classic.cartpole import CartPole
from operant.envs.prospector import belt
from operant.envs.prospector.prospector import SEASON, Prospector
from operant.envs.prospector.ship import CLOCK, HULL, PLACE, SURVEYED
from operant.play.app import KEYS, Picture, PlayApp, shrunk_row
from operant.play.prospector import MENUS, ProspectorApp, changes, keys_of


def drive(
    app: App[None],
    what: Callable[[Pilot[None]], Coroutine[Any, Any, None]],
    size: tuple[int, int] = (130, 36),
) -> None:
    async def played() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await what(pilot)

    asyncio.run(played())


def prospector(seed: int = 3) -> ProspectorApp:
    app = make_app(Prospector, seed)
    assert isinstance(app, ProspectorApp)
    return app


def shown(app: App[None], panel: str) -> str:
    """The text of a panel, as it is on the screen."""
    widget = app.query_one(f"#{panel}", Static)
    region = widget.region
    lines = [
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()[region.y : region.bottom]
    ]
    return "\n".join(line[region.x : region.right] for line in lines)


# --- Prospector ---------------------------------------------------------------------------------
def test_every_action_has_exactly_one_key() -> None:
    actions = [action for menu in MENUS for action in keys_of(menu).values()]
    assert sorted(actions) == list(range(belt.N_ACTIONS))
    for menu in MENUS:
        assert "q" not in keys_of(menu)
    assert "q" not in KEYS
    assert "q" not in MENUS
    assert "n" not in MENUS


def test_a_trip_in_prospector() -> None:
    app = prospector()

    async def trip(pilot: Pilot[None]) -> None:
        assert "at Kestrel (station" in shown(app, "ship")
        await pilot.press("t")
        assert "escape back" in shown(app, "menu").replace("\u00a0", " ")
        await pilot.press("l")
        assert int(app.game.state.log[PLACE]) == belt.SITES.index("Lantern")
        await pilot.press("c", "1")
        assert int(app.game.state.known[11]) == SURVEYED
        assert "surveyed" in shown(app, "news")
        await pilot.press("m", "4", "4")  # the drill's menu stays open
        assert app.menu == "m"
        assert "mine carbon hard" in shown(app, "news")
        assert float(app.game.state.cargo[belt.CARBON]) > 5.0
        await pilot.press("escape", "t", "k", "s", "6")
        assert "credits" in shown(app, "news")
        assert float(app.game.state.cargo[belt.CARBON]) == 0.0
        assert app.game.steps == 6
        assert f"watch 6 of {SEASON}" in shown(app, "ship")

    drive(app, trip)


def test_what_is_not_allowed_is_said_and_not_done() -> None:
    app = prospector()

    async def refused(pilot: Pilot[None]) -> None:
        await pilot.press("m", "1")
        assert app.game.steps == 0
        assert "not possible now" in shown(app, "news")

    drive(app, refused)


def test_a_season_ends_and_another_begins() -> None:
    app = prospector()

    async def season(pilot: Pilot[None]) -> None:
        for _ in range(SEASON - 1):
            app.game.act(belt.WAIT)
        await pilot.press("w")
        assert app.game.over
        assert "The season is over" in shown(app, "news")
        await pilot.press("w", "t")  # nothing happens any more
        assert app.game.steps == SEASON
        await pilot.press("n")
        assert not app.game.over
        assert int(app.game.state.log[CLOCK]) == 0

    drive(app, season)


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 12)])
def test_prospector_fits_any_terminal(size: tuple[int, int]) -> None:
    app = prospector()

    async def look(pilot: Pilot[None]) -> None:
        assert "PROSPECTOR" in shown(app, "ship")
        await pilot.press("t", "l", "w")
        if size[0] >= 80:
            assert "Lantern" in shown(app, "sites")

    drive(app, look, size)


def test_a_narrow_screen_shows_one_table_and_says_where_the_other_is() -> None:
    app = prospector()

    def shows() -> set[str]:
        tables = {name: app.query_one(f"#{name}", Static) for name in ("sites", "market")}
        assert not app.in_turn or "v: " in "".join(str(t.border_subtitle) for t in tables.values())
        return {name for name, table in tables.items() if table.display and table.size.height}

    async def look(pilot: Pilot[None]) -> None:
        assert shows() == {"market"}  # docked
        assert "v sites" in shown(app, "menu")
        await pilot.press("v")
        await pilot.pause()
        assert shows() == {"sites"}
        assert "v markets" in shown(app, "menu")
        await pilot.press("v", "t")  # where to fly is chosen by the sites
        await pilot.pause()
        assert shows() == {"sites"}
        lines = [line.strip() for line in shown(app, "menu").splitlines()]
        assert [line for line in lines if line.endswith((" m", " n"))] == []  # a key and its name
        assert any(line.startswith("n Nether") for line in lines)
        await pilot.press("escape")
        await pilot.pause()
        assert shows() == {"market"}
        for size in ((80, 44), (130, 24)):  # room for both
            await pilot.resize_terminal(*size)
            for _ in range(50):
                await pilot.pause()
                if shows() == {"sites", "market"}:
                    break
            assert shows() == {"sites", "market"}
            assert "v " not in shown(app, "menu")

    drive(app, look, (80, 24))


def test_q_leaves_also_from_a_menu() -> None:
    app = prospector()

    async def leave(pilot: Pilot[None]) -> None:
        await pilot.press("t", "q")
        assert not app.is_running or app._exit

    drive(app, leave)


def test_changes_are_told_in_words() -> None:
    game = prospector().game
    before, after = game.state, game.state
    assert changes(before, after) == "nothing"
    after.ship[HULL] -= 0.2
    after.levels[belt.DRILL] += 1
    assert changes(before, after) == "-20 % hull, drill is now 1"


# --- Any other ----------------------------------------------------------------------------------
def test_cartpole_shows_its_picture_and_takes_keys() -> None:
    app = make_app(CartPole, 0)
    assert isinstance(app, PlayApp)

    async def balance(pilot: Pilot[None]) -> None:
        picture = app.query_one(Picture)
        assert picture.pixels is not None
        first = picture.pixels.copy()
        await pilot.press("0", "1", "1")
        assert app.game.steps == 3
        assert app.game.score == 3.0
        assert not np.array_equal(first, picture.pixels)
        await pilot.press("7")  # no such action
        assert app.game.steps == 3
        while not app.game.over:
            await pilot.press("0")
        await pilot.press("n")
        assert app.game.steps == 0

    drive(app, balance, (80, 24))


def test_a_row_of_a_shrunk_picture_has_the_means() -> None:
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:2, :3] = 200
    np.testing.assert_array_equal(shrunk_row(pixels, 0, 2, 2)[:, 0], [200, 0])
    np.testing.assert_array_equal(shrunk_row(pixels, 1, 2, 2)[:, 0], [0, 0])


# --- The command --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["Prospector", "prospector", "Prospector-v0", "operant/Prospector-v0"]
)
def test_names(name: str) -> None:
    assert load_env(name) is Prospector


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Prospector"], "a game needs a terminal"),
        (["Pendulum"], "Discrete actions; Pendulum has Box"),
        (["Prospektor"], "did you mean Prospector-v0"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["operant", "play", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
