"""What the player sees of the belt: the parts of an observation, 260 numbers from 0 to 1."""

from __future__ import annotations

from typing import Any

from operant.envs.prospector.belt import (
    CARGO,
    DISTANCE,
    FARTHEST,
    MARKET,
    MAX_LEVEL,
    N_GOODS,
    N_HAZARDS,
    N_SITES,
    N_STATIONS,
    N_UPGRADES,
    SHIP,
    SITE,
    SITE_SIZE,
)
from operant.envs.prospector.ship import (
    BEACONS,
    CREDITS,
    FLIGHT,
    FUEL,
    HEAT,
    HELD,
    HULL,
    MOST_PRICE,
    PLACE,
    SEEN,
    START_BEACONS,
    SURVEYED,
    capacity,
    net_worth,
    tank_size,
)
from operant.lang import clip, floor, to_float


def observe_ship(state: Any, obs: Any) -> None:
    """Its gauges, the ore below it, its parts; then the hold."""
    ship = state.ship
    here = state.log[PLACE]
    room = capacity(state)
    worth = net_worth(state)
    obs[SHIP + 0] = clip(ship[FUEL] / tank_size(state), 0.0, 1.0)
    obs[SHIP + 1] = clip(ship[HULL], 0.0, 1.0)
    obs[SHIP + 2] = clip(ship[HEAT], 0.0, 1.0)
    obs[SHIP + 3] = clip(1.0 - ship[HELD] / room, 0.0, 1.0)
    obs[SHIP + 4] = clip(ship[CREDITS] / (ship[CREDITS] + 500.0), 0.0, 1.0)
    obs[SHIP + 5] = clip(worth / (worth + 3000.0), 0.0, 1.0)
    obs[SHIP + 6] = clip(0.25 * to_float(state.log[FLIGHT]), 0.0, 1.0)
    obs[SHIP + 7] = clip(to_float(state.log[BEACONS]) / START_BEACONS, 0.0, 1.0)
    for good in range(N_GOODS):
        obs[SHIP + 8 + good] = seen_ore(state.known[here], state.ore[here, good])
        obs[CARGO + good] = clip(state.cargo[good] / room, 0.0, 1.0)
    for part in range(N_UPGRADES):
        obs[SHIP + 14 + part] = to_float(state.levels[part]) / MAX_LEVEL


def seen_ore(known: int, ore: float) -> float:
    """Exactly after a survey, in quarters after a look, nothing before."""
    if known == SURVEYED:
        return ore
    if known == SEEN:
        return 0.25 * floor(4.0 * ore + 0.5)  # type: ignore[no-any-return]
    return 0.0


def observe_markets(state: Any, obs: Any) -> None:
    """All prices and demands are on the radio."""
    for station in range(N_STATIONS):
        for good in range(N_GOODS):
            k = MARKET + 2 * (station * N_GOODS + good)
            obs[k] = clip(state.price[station, good] / MOST_PRICE, 0.0, 1.0)
            obs[k + 1] = clip(state.demand[station, good] / MOST_PRICE, 0.0, 1.0)


def observe_sites(state: Any, obs: Any) -> None:
    """What is known of each site's ore; hazards and distance of all."""
    here = state.log[PLACE]
    for site in range(N_SITES):
        k = SITE + site * SITE_SIZE
        known = state.known[site]
        for good in range(N_GOODS):
            obs[k + good] = seen_ore(known, state.ore[site, good])
        obs[k + 6] = 0.5 * to_float(known)
        if known > 0:
            obs[k + 7] = clip(0.3 * state.left[site], 0.0, 1.0)
        for kind in range(N_HAZARDS):
            obs[k + 8 + kind] = clip(state.hazard[site, kind], 0.0, 1.0)
        obs[k + 11] = DISTANCE[here, site] / FARTHEST
