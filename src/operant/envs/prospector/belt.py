"""Prospector's belt and its vocabulary: what there is, what it is called, where it lies.

The numbers of the observation and of the actions are a contract: `OBSERVATIONS` and `ACTIONS` name
them in order, and everything else (rules, pilots, pictures, the game for people) counts from here.
"""

from __future__ import annotations

import math
from typing import Any

# --- What there is ------------------------------------------------------------------------------
N_SITES, N_STATIONS, N_GOODS, N_HAZARDS, N_UPGRADES = 16, 3, 6, 3, 6

GOODS = ("ice", "carbon", "iron", "nickel", "platinum", "iridium")
ICE, CARBON, IRON, NICKEL, PLATINUM, IRIDIUM = range(N_GOODS)
BASE_PRICE = (4.0, 5.0, 7.0, 10.0, 15.0, 22.0)
"""Credits for a unit, on average over stations and seasons."""
ABUNDANCE = (1.0, 1.0, 0.95, 0.85, 0.6, 0.4)
"""The most a site may hold."""
SOFTNESS = (1.6, 1.4, 1.2, 1.0, 0.8, 0.6)
"""Units that the drill brings up, against nickel: dear ores are slow, cheap ones fill the hold."""

HAZARDS = ("radiation", "debris", "pirates")
RADIATION, DEBRIS, PIRATES = range(N_HAZARDS)

UPGRADES = ("drill", "hold", "tank", "shield", "radiator", "refinery")
DRILL, HOLD, TANK, SHIELD, RADIATOR, REFINERY = range(N_UPGRADES)
UPGRADE_PRICE = (150.0, 120.0, 60.0, 90.0, 90.0, 90.0)
"""Credits of the first level; the second costs twice as much, the third three times."""
MAX_LEVEL = 3

# --- Where it lies ------------------------------------------------------------------------------
SITES = (
    "Anchorage", "Bellows", "Cinder", "Drift", "Ember", "Foundry", "Gallows", "Hollow",
    "Isle", "Jetsam", "Kestrel", "Lantern", "Mica", "Nether", "Obol", "Pyre",
)  # fmt: skip
"""Around the belt, in the order of the alphabet."""
STATION_SITES = (0, 5, 10)
STATIONS = tuple(SITES[site] for site in STATION_SITES)
"""Anchorage, Foundry and Kestrel: three sites with a station in orbit, and next to no ore."""
STATION_AT = tuple(STATION_SITES.index(k) if k in STATION_SITES else -1 for k in range(N_SITES))
"""The station at each site; -1: none."""

_RADII = (
    0.80, 0.95, 0.70, 0.90, 1.00, 0.80, 0.65, 0.95,
    0.85, 1.00, 0.80, 0.70, 1.00, 0.85, 0.65, 0.95,
)  # fmt: skip
SITE_X = tuple(r * math.cos(2 * math.pi * k / N_SITES) for k, r in enumerate(_RADII))
SITE_Y = tuple(r * math.sin(2 * math.pi * k / N_SITES) for k, r in enumerate(_RADII))
"""Positions on the map, the sun in the middle; the belt's outer edge is at 1."""

DISTANCE: Any = (
    tuple(  # in rules: DISTANCE[a, b]; rounded: the last digit of a sine differs between machines
        tuple(round(math.hypot(x - SITE_X[k], y - SITE_Y[k]), 4) for k in range(N_SITES))
        for x, y in zip(SITE_X, SITE_Y, strict=True)
    )
)
FARTHEST = max(map(max, DISTANCE))
FLIGHT_FUEL: Any = tuple(tuple(1.0 + 7.0 * distance for distance in row) for row in DISTANCE)
"""Units of fuel from site to site: 3 to the neighbour, 14 across the belt."""
FLIGHT_TIME: Any = tuple(tuple(1 + int(1.5 * distance) for distance in row) for row in DISTANCE)
"""Watches from site to site: 1 to the neighbour, 3 across the belt."""
N_NEAR = 4
NEAR: Any = tuple(
    tuple(sorted(range(N_SITES), key=row.__getitem__)[1 : 1 + N_NEAR]) for row in DISTANCE
)
"""The nearest sites of each: what a sweep shows."""
NEAREST_STATION = tuple(min(STATION_SITES, key=row.__getitem__) for row in DISTANCE)
"""The site that the tug brings a ship to which lit its beacon."""

# --- Actions ------------------------------------------------------------------------------------
SCANS = ("survey this site", "sweep the neighbours", "sweep the whole belt")
SURVEY, SWEEP_NEAR, SWEEP_FAR = range(3)
SHARES = (0.25, 0.5, 1.0)
"""Of what is in the hold that one sale sells."""
FUEL_UNITS = (10.0, 25.0, 1000.0)
"""That one purchase buys, as far as tank and credits go."""
REPAIRS = (0.1, 0.3, 1.0)
"""Of the hull that one repair restores, as far as needed and paid for."""
REFINED = (
    "crack ice into fuel",
    "burn carbon off as coolant",
    "weld iron onto the hull",
    "smelt nickel into platinum",
    "smelt platinum into iridium",
    "mint iridium into coin",
)

TRAVEL = 0
SCAN = TRAVEL + N_SITES
MINE = SCAN + 3
SELL = MINE + 2 * N_GOODS
REFUEL = SELL + 3 * N_GOODS
REPAIR = REFUEL + 3
UPGRADE = REPAIR + 3
REFINE = UPGRADE + N_UPGRADES
WAIT = REFINE + N_GOODS
BEACON = WAIT + 1
N_ACTIONS = BEACON + 1

ACTIONS = (
    *(f"travel to {site}" for site in SITES),
    *SCANS,
    *(f"mine {good} {how}" for good in GOODS for how in ("gently", "hard")),
    *(
        f"sell {share} {good}"
        for good in GOODS
        for share in ("a quarter of the", "half the", "all")
    ),
    "buy 10 fuel",
    "buy 25 fuel",
    "fill the tank",
    "repair 10 %",
    "repair 30 %",
    "repair everything",
    *(f"upgrade the {part}" for part in UPGRADES),
    *REFINED,
    "wait",
    "light the distress beacon",
)
"""What each action is, in words."""

# --- Observations -------------------------------------------------------------------------------
SHIP = 0
CARGO = SHIP + 20
MARKET = CARGO + N_GOODS
SITE = MARKET + N_STATIONS * N_GOODS * 2
SITE_SIZE = N_GOODS + 6
SEASON_PART = SITE + N_SITES * SITE_SIZE
OBS_DIM = SEASON_PART + 6

SHIP_NAMES = (
    *("fuel", "hull", "heat", "room in the hold", "credits", "net worth", "time to arrival"),
    "beacons",
    *(f"{good} here" for good in GOODS),
    *(f"level of the {part}" for part in UPGRADES),
)
SITE_NAMES = (*GOODS, "known", "ore left", *HAZARDS, "distance")
SEASON_NAMES = (
    "season gone",
    "home stretch",
    *(f"docked at {station}" for station in STATIONS),
    "alarm",
)
OBSERVATIONS = (
    *(f"ship: {name}" for name in SHIP_NAMES),
    *(f"cargo: {good}" for good in GOODS),
    *(
        f"market: {good} at {station}, {what}"
        for station in STATIONS
        for good in GOODS
        for what in ("price", "demand")
    ),
    *(f"{site}: {name}" for site in SITES for name in SITE_NAMES),
    *(f"season: {name}" for name in SEASON_NAMES),
)
"""What each number of an observation is."""
