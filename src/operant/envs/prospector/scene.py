"""The picture of Prospector: the belt on the left; gauges, hold, markets and parts on the right."""

from __future__ import annotations

import math
from typing import Any

from operant.envs.prospector.belt import (
    BASE_PRICE,
    GOODS,
    MAX_LEVEL,
    N_GOODS,
    N_SITES,
    N_STATIONS,
    SITE_X,
    SITE_Y,
    SITES,
    STATION_AT,
    STATIONS,
    UPGRADES,
)
from operant.envs.prospector.ship import (
    ALARM,
    BEACONS,
    CLOCK,
    CREDITS,
    FLIGHT,
    FUEL,
    HEAT,
    HELD,
    HULL,
    PLACE,
    SURVEYED,
    capacity,
    net_worth,
    tank_size,
)
from operant.render.canvas import Canvas, Color
from operant.render.lettering import write

SPACE: Color = (13, 17, 30)
PANEL: Color = (24, 30, 48)
EDGE: Color = (52, 62, 90)
DIM: Color = (116, 128, 160)
LIGHT: Color = (226, 232, 246)
SUN: Color = (255, 206, 107)
STATION: Color = (96, 165, 250)
GOOD: Color = (92, 200, 140)
BAD: Color = (238, 96, 88)
WARM: Color = (245, 166, 66)
GOODS_COLORS: tuple[Color, ...] = (
    (150, 216, 246), (130, 130, 146), (198, 120, 84), (120, 186, 150),
    (206, 206, 226), (186, 138, 242),
)  # fmt: skip

_CENTRE_X, _CENTRE_Y, _RADIUS = 288.0, 318.0, 228.0
_LEFT, _RIGHT = 600.0, 940.0


def draw(state: Any, canvas: Canvas, season: int) -> None:
    """Draw one environment; `canvas` has 960 x 600 pixels or those proportions."""
    canvas.fill(SPACE)
    canvas.view(0.0, 960.0, 0.0, 600.0)
    _draw_belt(state, canvas)
    _draw_ship(state, canvas)
    canvas.polygon([(582, 0), (960, 0), (960, 600), (582, 600)], PANEL)
    _draw_gauges(state, canvas)
    _draw_markets(state, canvas)
    _draw_parts(state, canvas)
    _draw_season(state, canvas, season)


def _place(site: int) -> tuple[float, float]:
    return _CENTRE_X + _RADIUS * SITE_X[site], _CENTRE_Y + _RADIUS * SITE_Y[site]


def _mix(a: Color, b: Color, share: float) -> Color:
    share = min(max(share, 0.0), 1.0)
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _draw_belt(state: Any, canvas: Canvas) -> None:
    for radius in (1.12, 0.56):
        ring = [
            (_CENTRE_X + radius * _RADIUS * math.cos(a), _CENTRE_Y + radius * _RADIUS * math.sin(a))
            for a in (2 * math.pi * k / 96 for k in range(97))
        ]
        canvas.polyline(ring, PANEL, 1.5)
    for size, shade in ((26.0, 0.25), (20.0, 0.5), (14.0, 1.0)):
        canvas.circle(_CENTRE_X, _CENTRE_Y, size, _mix(SPACE, SUN, shade))
    for site in range(N_SITES):
        x, y = _place(site)
        if STATION_AT[site] >= 0:
            _draw_station(canvas, x, y)
        else:
            _draw_site(state, canvas, site, x, y)
        color = STATION if STATION_AT[site] >= 0 else LIGHT if state.known[site] > 0 else DIM
        write(canvas, x, y - 32, SITES[site], 7.5, color, "center")


def _draw_station(canvas: Canvas, x: float, y: float) -> None:
    canvas.polygon([(x - 13, y), (x, y - 13), (x + 13, y), (x, y + 13)], STATION)
    canvas.polygon([(x - 6, y), (x, y - 6), (x + 6, y), (x, y + 6)], SPACE)
    canvas.line(x - 19, y, x + 19, y, STATION, 2.5)


def _draw_site(state: Any, canvas: Canvas, site: int, x: float, y: float) -> None:
    """A rock, its ores as slices if they are known; around it as much red as it is dangerous."""
    danger = float(sum(state.hazard[site])) / 3.0
    canvas.circle(x, y, 22.0, _mix(SPACE, BAD, 0.7 * danger))
    canvas.circle(x, y, 18.5, SPACE)
    if state.known[site] == 0:
        canvas.circle(x, y, 11.0, EDGE)
        canvas.circle(x, y, 9.0, SPACE)
        write(canvas, x, y - 3.5, "-", 7.0, DIM, "center")
        return
    size = 7.0 + 10.0 * min(math.sqrt(max(float(state.left[site]), 0.0) / 3.0), 1.0)
    canvas.circle(x, y, size, (66, 62, 66))
    shares = [float(state.ore[site, good]) for good in range(N_GOODS)]
    start, total = 0.0, max(sum(shares), 1e-6)
    for good, share in enumerate(shares):
        angle = 2 * math.pi * share / total
        if share > 0.03:
            steps = max(2, int(8 * angle))
            arc = [
                (
                    x + size * math.cos(start + angle * k / steps),
                    y + size * math.sin(start + angle * k / steps),
                )
                for k in range(steps + 1)
            ]
            canvas.polygon([(x, y), *arc], GOODS_COLORS[good])
        start += angle
    if state.known[site] < SURVEYED:
        canvas.circle(x, y, 0.45 * size, SPACE)


def _draw_ship(state: Any, canvas: Canvas) -> None:
    """The ship above its site; on its way it is farther out, with a flame."""
    x, y = _place(state.log[PLACE])
    flight = int(state.log[FLIGHT])
    if flight:
        toward = math.atan2(_CENTRE_Y - y, _CENTRE_X - x)
        reach = 34.0 + 26.0 * flight
        tail = x + reach * math.cos(toward), y + reach * math.sin(toward)
        for k in range(1, 12):
            share = k / 12
            px, py = x + (tail[0] - x) * share, y + (tail[1] - y) * share
            canvas.circle(px, py, 1.5, DIM)
        x, y, heading = *tail, toward + math.pi
    else:
        x, y, heading = x + 20.0, y + 20.0, math.pi / 2
    nose, left, right = (
        (heading + turn, size) for turn, size in ((0.0, 14.0), (2.5, 10.0), (-2.5, 10.0))
    )
    corners = [(x + r * math.cos(a), y + r * math.sin(a)) for a, r in (nose, left, right)]
    if flight:
        back = x - 16 * math.cos(heading), y - 16 * math.sin(heading)
        canvas.line(x, y, *back, WARM, 5.0)
    hurt = float(state.ship[ALARM])
    canvas.polygon(corners, _mix(LIGHT, BAD, 4.0 * hurt), 1.5)


def _draw_gauges(state: Any, canvas: Canvas) -> None:
    write(canvas, _LEFT, 570, "Prospector", 13, SUN)
    write(canvas, _RIGHT, 570, f"{float(net_worth(state)):.0f} worth", 11, LIGHT, "right")
    write(canvas, _RIGHT, 548, f"{float(state.ship[CREDITS]):.0f} credits", 9, DIM, "right")
    write(canvas, _LEFT, 548, f"{int(state.log[BEACONS])} beacons", 9, DIM)
    tank, hold = float(tank_size(state)), float(capacity(state))
    fuel, hull = float(state.ship[FUEL]), float(state.ship[HULL])
    heat, held = float(state.ship[HEAT]), float(state.ship[HELD])
    rows = (
        ("fuel", fuel / tank, f"{fuel:.0f}/{tank:.0f}", BAD if fuel < 8 else GOOD),
        ("hull", hull, f"{100 * hull:.0f} %", BAD if hull < 0.35 else GOOD),
        ("heat", heat, f"{100 * heat:.0f} %", BAD if heat > 0.8 else WARM),
        ("hold", held / hold, f"{held:.0f}/{hold:.0f}", STATION),
    )
    for k, (name, share, figure, color) in enumerate(rows):
        y = 514.0 - 25.0 * k
        write(canvas, _LEFT, y, name, 9, LIGHT)
        _bar(canvas, _LEFT + 54, y - 1, 200.0, 11.0, share, color)
        write(canvas, _RIGHT, y, figure, 9, LIGHT, "right")


def _bar(
    canvas: Canvas, x: float, y: float, width: float, height: float, share: float, color: Color
) -> None:
    canvas.polygon([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], EDGE)
    end = x + width * min(max(share, 0.0), 1.0)
    canvas.polygon([(x, y), (end, y), (end, y + height), (x, y + height)], color)


def _draw_markets(state: Any, canvas: Canvas) -> None:
    """A row for each commodity: how much is in the hold, and what each station pays for a unit."""
    top = 396.0
    columns = (_LEFT + 210.0, _LEFT + 276.0, _RIGHT)
    write(canvas, _LEFT + 140, top, "held", 8, DIM, "right")
    for name, x in zip(STATIONS, columns, strict=True):
        write(canvas, x, top, name, 6.5, STATION, "right")
    for good in range(N_GOODS):
        y = top - 26.0 - 25.0 * good
        canvas.circle(_LEFT + 6, y + 5, 6, GOODS_COLORS[good])
        write(canvas, _LEFT + 19, y, GOODS[good], 9, LIGHT)
        held = float(state.cargo[good])
        write(canvas, _LEFT + 140, y, f"{held:.0f}", 9, LIGHT if held >= 0.5 else EDGE, "right")
        best = max(range(N_STATIONS), key=lambda k: float(state.price[k, good]))
        for station, x in enumerate(columns):
            price, demand = (float(t[station, good]) for t in (state.price, state.demand))
            color = SUN if station == best else LIGHT
            write(canvas, x - 12, y, f"{price * BASE_PRICE[good]:.0f}", 9, color, "right")
            if abs(demand - price) > 0.12:
                _arrow(canvas, x - 4, y + 4.5, demand > price)


def _arrow(canvas: Canvas, x: float, y: float, up: bool) -> None:
    tip = 5.0 if up else -5.0
    canvas.polygon([(x - 4, y - tip / 2), (x + 4, y - tip / 2), (x, y + tip)], GOOD if up else BAD)


def _draw_parts(state: Any, canvas: Canvas) -> None:
    for k, part in enumerate(UPGRADES):
        x, y = _LEFT + 176.0 * (k % 2), 188.0 - 26.0 * (k // 2)
        write(canvas, x, y, part, 9, LIGHT)
        for level in range(MAX_LEVEL):
            color = SUN if level < int(state.levels[k]) else EDGE
            canvas.circle(x + 118 + 15 * level, y + 4.5, 5, color)


def _draw_season(state: Any, canvas: Canvas, season: int) -> None:
    clock = int(state.log[CLOCK])
    write(canvas, _LEFT, 74, "season", 9, LIGHT)
    write(canvas, _RIGHT, 74, f"{clock}/{season}", 9, LIGHT, "right")
    _bar(canvas, _LEFT, 52, _RIGHT - _LEFT, 11.0, clock / season, SUN)
    for k, hint in enumerate(
        ("slices: ore   red ring: danger", "hollow: not surveyed   -: unseen")
    ):
        write(canvas, _LEFT, 28 - 14 * k, hint, 6.5, DIM)
