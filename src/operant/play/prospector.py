"""Prospector for people: the ship, the belt, the markets, what just happened, and a menu."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key, Resize
from textual.widgets import Static

from operant.envs.prospector.belt import (
    ACTIONS,
    BASE_PRICE,
    BEACON,
    FLIGHT_FUEL,
    FLIGHT_TIME,
    GOODS,
    HAZARDS,
    MAX_LEVEL,
    MINE,
    N_ACTIONS,
    N_GOODS,
    N_HAZARDS,
    N_SITES,
    N_STATIONS,
    REFINE,
    REFUEL,
    REPAIR,
    SCAN,
    SELL,
    SITES,
    STATION_AT,
    STATIONS,
    TRAVEL,
    UPGRADE,
    UPGRADE_PRICE,
    UPGRADES,
    WAIT,
)
from operant.envs.prospector.prospector import SEASON
from operant.envs.prospector.scene import GOODS_COLORS
from operant.envs.prospector.sensors import seen_ore
from operant.envs.prospector.ship import (
    BEACONS,
    CLOCK,
    CREDITS,
    FLIGHT,
    FUEL,
    HEAT,
    HELD,
    HULL,
    PLACE,
    capacity,
    docked,
    net_worth,
    tank_size,
)
from operant.play.app import ending
from operant.play.game import Game
from operant.toolchain.text import bar

MENUS = {
    "t": ("travel", TRAVEL, SCAN),
    "c": ("scan", SCAN, MINE),
    "m": ("mine", MINE, SELL),
    "s": ("sell", SELL, REFUEL),
    "f": ("fuel", REFUEL, REPAIR),
    "r": ("repair", REPAIR, UPGRADE),
    "u": ("upgrade", UPGRADE, REFINE),
    "e": ("refine", REFINE, WAIT),
    "w": ("wait", WAIT, BEACON),
    "b": ("beacon", BEACON, N_ACTIONS),
}
"""The key of each group of actions, its name, its first action and the one after its last."""
KEYS = "123456789abcdefghi"
"""Of the entries of a menu, in order."""
COLOURS = tuple(f"rgb({r},{g},{b})" for r, g, b in GOODS_COLORS)
_MESSAGES = 24
_NARROW = 110
"""Columns below which there is room for the sites or the markets, not for both side by side."""
_TALL = 42
"""Lines from which a narrow screen has room for both, one above the other."""


def keys_of(menu: str) -> dict[str, int]:
    """The keys of a menu and their actions; sites have their initials."""
    _, first, end = MENUS[menu]
    names = [site[0].lower() for site in SITES] if menu == "t" else KEYS
    return {names[action - first]: action for action in range(first, end)}


class ProspectorApp(App[None]):
    """The game; ``q`` leaves."""

    TITLE = "operant"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "close", "back")]
    CSS = """
    #ship { height: 4; padding: 0 1; }
    #middle { height: 1fr; }
    #sites { width: 3fr; border: round $primary; padding: 0 1; }
    #right { width: 2fr; }
    #market { height: 10; border: round $primary; padding: 0 1; }
    #news { height: 1fr; border: round $primary; padding: 0 1; }
    #menu { height: auto; min-height: 3; padding: 0 1; }
    .narrow { layout: vertical; }
    .narrow #sites { width: 1fr; height: 1fr; max-height: 19; }
    .narrow #right { width: 1fr; height: 5; }
    .narrow.tall #sites { height: 19; }
    .narrow.tall #right, .narrow.markets #right { height: 1fr; }
    .narrow #market, .narrow.markets #sites { display: none; }
    .narrow.markets #market, .tall #market { display: block; }
    """

    def __init__(self, game: Game) -> None:
        super().__init__()
        self.game = game
        self.menu = ""
        """The group that is open; empty: all groups are shown."""
        self.other_table = False
        """Whether the player turned the tables: the sites in a station, the markets outside."""
        self.news: list[Text] = []
        self._say("A new season. Fly out, drill, come back, sell. Escape closes a menu.", "bold")

    def compose(self) -> ComposeResult:
        """What is on it."""
        yield Static(id="ship")
        with Horizontal(id="middle"):
            yield Static(id="sites")
            with Vertical(id="right"):
                yield Static(id="market")
                yield Static(id="news")
        yield Static(id="menu")

    def on_mount(self) -> None:
        """Show the beginning."""
        for name in ("sites", "market", "news"):
            self.query_one(f"#{name}", Static).border_title = name
        self.show()

    def show(self) -> None:
        """Everything as it is now."""
        state = self.game.state
        narrow, tall = self.size.width < _NARROW, self.size.height >= _TALL
        middle = self.query_one("#middle")
        middle.set_class(narrow, "narrow")
        middle.set_class(narrow and tall, "tall")
        middle.set_class(narrow and not tall and self._shows_markets(state), "markets")
        self.query_one("#ship", Static).update(ship_text(state, self.game.score))
        self.query_one("#sites", Static).update(sites_table(state, narrow))
        nearest = f", the nearest of {N_SITES} first" if self.in_turn else ""
        self.query_one("#sites", Static).border_title = f"sites{nearest}"
        self.query_one("#sites", Static).border_subtitle = "v: markets" if self.in_turn else ""
        self.query_one("#market", Static).border_subtitle = "v: sites" if self.in_turn else ""
        self.query_one("#market", Static).update(market_table(state))
        self.query_one("#news", Static).update(Text("\n").join(self.news[::-1]))
        self.query_one("#menu", Static).update(self._menu_text(state))

    @property
    def in_turn(self) -> bool:
        """Whether there is room for one table only, and ``v`` shows the other."""
        return self.size.width < _NARROW and self.size.height < _TALL

    def _shows_markets(self, state: Any) -> bool:
        """Where a menu is open, the table that one chooses by; else that of the place."""
        if self.menu in ("t", "c", "s"):
            return self.menu == "s"
        return (int(docked(state)) >= 0) != self.other_table

    def on_resize(self, event: Resize) -> None:
        """There may be room for more, or less."""
        self.call_after_refresh(self.show)  # the size is the old one until then

    # Orders -----------------------------------------------------------------------------------
    def on_key(self, event: Key) -> None:
        """Open a menu, or give an order."""
        key = event.character or ""
        if key == "q":
            self.exit()
        elif self.menu:
            action = keys_of(self.menu).get(key)
            if action is not None:
                self.order(action)
        elif key == "v" and self.in_turn:
            self.other_table = not self.other_table
            self.show()
        elif key == "n":
            with ending(self, self.game):
                self.game.begin()
            self.news.clear()
            self._say("A new season.", "bold")
            self.show()
        elif key in MENUS and not self.game.over:
            _, first, end = MENUS[key]
            if end - first == 1:
                self.order(first)
            else:
                self.menu = key
                self.show()

    def order(self, action: int) -> None:
        """Give an order, if it is allowed, and tell what came of it."""
        if self.game.over:
            return
        if not self.game.allowed()[action]:
            self._say(f"{ACTIONS[action]}: not possible now", "yellow")
        else:
            before = self.game.state
            with ending(self, self.game):
                self.game.act(action)
            after = self.game.state
            hit = float(before.ship[HULL] - after.ship[HULL]) > 0.03
            told = f"{int(after.log[CLOCK]):3d}  {ACTIONS[action]}: {changes(before, after)}"
            self._say(told, "bold red" if hit else "")
            if hit:
                self._say("     the hull was hit!", "bold red")
            if not int(after.log[FLIGHT]) and int(before.log[FLIGHT]):
                self._say(f"     arrived at {SITES[int(after.log[PLACE])]}", "cyan")
            if self.game.over:
                lost = float(after.ship[HULL]) <= 0
                end = "The ship is lost." if lost else "The season is over."
                self._say(f"{end} Score {self.game.score:.2f}.", "bold yellow")
            self.other_table = False
            if self.menu != "m" or self.game.over:  # drilling goes on: its menu stays open
                self.menu = ""
        self.show()

    def action_close(self) -> None:
        """Close the menu."""
        self.menu = ""
        self.show()

    def _say(self, text: str, style: str = "") -> None:
        self.news.append(Text(text, style))
        del self.news[:-_MESSAGES]

    def _menu_text(self, state: Any) -> Text:
        allowed = self.game.allowed()
        text = Text()
        if self.game.over:
            text.append(f"score {self.game.score:.2f}   ", "bold yellow")
            entries = [("n", "new season", True), ("q", "leave", True)]
        elif not self.menu:
            entries = [
                (key, name, any(allowed[first:end])) for key, (name, first, end) in MENUS.items()
            ]
            if self.in_turn:
                entries.append(("v", "sites" if self._shows_markets(state) else "markets", True))
            entries += [("n", "new season", True), ("q", "leave", True)]
        else:
            text.append(f"{MENUS[self.menu][0]}:  ", "bold")
            entries = [
                (key, entry_name(state, action), allowed[action])
                for key, action in keys_of(self.menu).items()
            ]
            entries.append(("escape", "back", True))
        used = len(text)
        for key, name, possible in entries:
            entry = len(f"{key} {name}")
            if used + entry > self.size.width - 2:  # a key stays beside its name
                text.right_crop(len(text.plain) - len(text.plain.rstrip()))
                text.append("\n")
                used = 0
            text.append(key, "bold cyan" if possible else "dim")
            text.append(f" {name}   ", "" if possible else "dim")
            used += entry + 3
        text.rstrip()
        return text


def entry_name(state: Any, action: int) -> str:
    """An action in its menu, with what it costs."""
    name = ACTIONS[action]
    if action < SCAN:
        return name.removeprefix("travel to ")
    if MINE <= action < SELL:
        return name.removeprefix("mine ")
    if SELL <= action < REFUEL:
        return name.removeprefix("sell ").replace(" of the", "")
    if UPGRADE <= action < REFINE:
        part = action - UPGRADE
        level = int(state.levels[part])
        cost = f"{UPGRADE_PRICE[part] * (level + 1):.0f}" if level < MAX_LEVEL else "at its best"
        return f"{UPGRADES[part]} ({cost})"
    return name


def changes(before: Any, after: Any) -> str:
    """What a watch changed, in words."""
    told = []
    for good in range(N_GOODS):
        units = float(after.cargo[good] - before.cargo[good])
        if abs(units) >= 0.05:
            told.append(f"{units:+.1f} {GOODS[good]}")
    for name, place, scale, least in (
        ("credits", CREDITS, 1.0, 0.5),
        ("fuel", FUEL, 1.0, 0.5),
        ("% hull", HULL, 100.0, 2.0),
        ("% heat", HEAT, 100.0, 5.0),
    ):
        amount = scale * float(after.ship[place] - before.ship[place])
        if abs(amount) >= least:
            told.append(f"{amount:+.0f} {name}")
    for site in range(N_SITES):
        if int(after.known[site]) > int(before.known[site]):
            told.append(f"{SITES[site]} {'surveyed' if int(after.known[site]) == 2 else 'seen'}")
    for part in range(len(UPGRADES)):
        if int(after.levels[part]) > int(before.levels[part]):
            told.append(f"{UPGRADES[part]} is now {int(after.levels[part])}")
    return ", ".join(told) or "nothing"


# --- Panels -------------------------------------------------------------------------------------
def ship_text(state: Any, score: float) -> Text:
    """Gauges, money, parts, and where the ship is."""
    ship, tank, hold = state.ship, float(tank_size(state)), float(capacity(state))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("PROSPECTOR", "bold yellow")
    text.append(f"   watch {int(state.log[CLOCK])} of {SEASON}   ")
    text.append(f"score {score:.2f}", "bold green")
    text.append(f"   worth {float(net_worth(state)):.0f}   ")
    text.append(f"credits {float(ship[CREDITS]):.0f}", "bold")
    text.append(f"   beacons {int(state.log[BEACONS])}\n")
    gauges = (
        ("fuel", float(ship[FUEL]) / tank, f"{float(ship[FUEL]):.0f}/{tank:.0f}", "green"),
        ("hull", float(ship[HULL]), f"{100 * float(ship[HULL]):.0f}%", "cyan"),
        ("heat", float(ship[HEAT]), f"{100 * float(ship[HEAT]):.0f}%", "red"),
        ("hold", float(ship[HELD]) / hold, f"{float(ship[HELD]):.0f}/{hold:.0f}", "magenta"),
    )
    for name, share, figure, colour in gauges:
        text.append(f"{name} ")
        text.append(bar(min(max(share, 0.0), 1.0), 7), f"{colour} on grey23")
        text.append(f" {figure:<6}")
    text.append("\n")
    for part, name in enumerate(UPGRADES):
        level = int(state.levels[part])
        text.append(f"{name} ", "dim" if level == 0 else "")
        text.append("●" * level, "yellow")
        text.append("○" * (MAX_LEVEL - level) + "  ", "dim")
    here, flight = int(state.log[PLACE]), int(state.log[FLIGHT])
    text.append("\n")
    if flight:
        text.append(f"on the way to {SITES[here]}, {flight} watches to go", "bold cyan")
    else:
        station = " (station: sell, fuel, repair, upgrade)" if STATION_AT[here] >= 0 else ""
        text.append(f"at {SITES[here]}{station}", "bold cyan")
    return text


def sites_table(state: Any, nearest_first: bool) -> Table:
    """Every site: the way there, its ore in percent, its hazards in tenths."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for name in ("site", "fuel", "time", *(good[:4] for good in GOODS), *(h[:3] for h in HAZARDS)):
        table.add_column(name, justify="left" if name == "site" else "right", no_wrap=True)
    here = int(state.log[PLACE])
    order = sorted(range(N_SITES), key=FLIGHT_FUEL[here].__getitem__ if nearest_first else int)
    for site in order:
        known = int(state.known[site])
        station = STATION_AT[site] >= 0
        row = [Text(SITES[site], "bold blue" if station else "")]
        row += [Text("-"), Text("-")]
        if site != here:
            row[1:] = [Text(f"{FLIGHT_FUEL[here][site]:.0f}"), Text(str(FLIGHT_TIME[here][site]))]
        for good in range(N_GOODS):
            ore = float(seen_ore(known, float(state.ore[site, good])))
            shown = "?" if known == 0 else f"{'~' if known == 1 else ''}{100 * ore:.0f}"
            row.append(Text("" if station else shown, COLOURS[good] if ore > 0.1 else "dim"))
        for kind in range(N_HAZARDS):
            tenths = round(10 * float(state.hazard[site, kind]))
            row.append(Text("" if station else str(tenths), "bold red" if tenths >= 6 else "dim"))
        table.add_row(*row, style="on grey23" if site == here else "")
    return table


def market_table(state: Any) -> Table:
    """What is in the hold, and what a unit brings where; an arrow where the price will go."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column("")
    for name in ("held", *STATIONS):
        table.add_column(name[:9], justify="right", no_wrap=True)
    for good in range(N_GOODS):
        held = float(state.cargo[good])
        row = [Text(GOODS[good], COLOURS[good]), Text(f"{held:.1f}", "" if held > 0.05 else "dim")]
        best = max(float(state.price[k, good]) for k in range(N_STATIONS))
        for station in range(N_STATIONS):
            price = float(state.price[station, good])
            gap = float(state.demand[station, good]) - price
            way = "↑" if gap > 0.12 else "↓" if gap < -0.12 else " "
            style = "bold yellow" if price == best else ""
            row.append(Text(f"{price * BASE_PRICE[good]:.1f}{way}", style))
        table.add_row(*row)
    return table
