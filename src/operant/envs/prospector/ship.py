"""The ship of Prospector: what each action does, and when it is allowed.

Every action has two functions: ``can_...`` says whether it is allowed, the other one does it. The
mask of actions is made of the former, so mask and rules cannot disagree.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from operant.envs.prospector.belt import (
    BASE_PRICE,
    BEACON,
    CARBON,
    DRILL,
    FLIGHT_FUEL,
    FLIGHT_TIME,
    FUEL_UNITS,
    HOLD,
    ICE,
    IRON,
    MAX_LEVEL,
    MINE,
    N_GOODS,
    N_NEAR,
    N_SITES,
    NEAR,
    NEAREST_STATION,
    NICKEL,
    PLATINUM,
    REFINE,
    REFINERY,
    REFUEL,
    REPAIR,
    REPAIRS,
    SCAN,
    SELL,
    SHARES,
    SOFTNESS,
    STATION_AT,
    SURVEY,
    SWEEP_FAR,
    SWEEP_NEAR,
    TANK,
    TRAVEL,
    UPGRADE,
    UPGRADE_PRICE,
    WAIT,
)
from operant.lang import maximum, minimum, to_float

# --- The ship -----------------------------------------------------------------------------------
FUEL, HULL, HEAT, CREDITS, PARTS, HELD, ALARM = range(7)  # state.ship
PLACE, FLIGHT, CLOCK, BEACONS, UNKNOWN = range(5)  # state.log

HOLD_UNITS, HOLD_STEP = 30.0, 20.0
TANK_UNITS, TANK_STEP = 40.0, 15.0
FUEL_PRICE, HULL_PRICE = 1.5, 150.0
BROKER, RESALE = 0.4, 0.5
"""The parts of its base price that a unit in the hold, of its price that an upgrade counts for."""
SCORCH = 0.9
"""Heat above which the hull suffers."""


def capacity(state: Any) -> float:
    """Units that fit into the hold."""
    return HOLD_UNITS + HOLD_STEP * to_float(state.levels[HOLD])


def tank_size(state: Any) -> float:
    """Units of fuel that fit into the tank."""
    return TANK_UNITS + TANK_STEP * to_float(state.levels[TANK])


def net_worth(state: Any) -> float:
    """Credits, and what the broker would give for the hold and the ship's better parts."""
    worth = state.ship[CREDITS] + state.ship[PARTS]
    for good in range(N_GOODS):
        worth += BROKER * BASE_PRICE[good] * state.cargo[good]
    return worth


def docked(state: Any) -> int:
    """The station the ship is at; -1: none."""
    if state.log[FLIGHT] > 0:
        return -1
    return STATION_AT[state.log[PLACE]]


def warm(state: Any, heat: float) -> None:
    """Work heats the ship."""
    state.ship[HEAT] = minimum(state.ship[HEAT] + heat, 1.0)


def load(state: Any, good: int, units: float) -> None:
    """Put units into the hold, as far as there is room; fewer than none are taken out."""
    room = capacity(state) - state.ship[HELD]
    state.cargo[good] = maximum(state.cargo[good] + minimum(units, room), 0.0)
    held = 0.0
    for other in range(N_GOODS):
        held += state.cargo[other]
    state.ship[HELD] = held


# --- Travel and scans ---------------------------------------------------------------------------
SWEEP_FUEL = 3.0
UNSEEN, SEEN, SURVEYED = range(3)  # state.known


def can_travel(state: Any, site: int) -> bool:
    """Not in flight, not here already, and enough fuel for the way."""
    here = state.log[PLACE]
    return state.log[FLIGHT] == 0 and site != here and state.ship[FUEL] >= FLIGHT_FUEL[here, site]


def travel(state: Any, site: int) -> None:
    """Burn the fuel and be under way; the ship's place is where it will arrive."""
    here = state.log[PLACE]
    state.ship[FUEL] -= FLIGHT_FUEL[here, site]
    state.log[FLIGHT] = FLIGHT_TIME[here, site]
    state.log[PLACE] = site


def see(state: Any, site: int) -> None:
    """Know roughly what a site holds."""
    if state.known[site] == UNSEEN:
        state.known[site] = SEEN
        state.log[UNKNOWN] -= 1


def can_scan(state: Any, scan: int) -> bool:
    """There is something to learn."""
    here = state.log[PLACE]
    if state.log[FLIGHT] > 0:
        return False
    if scan == SURVEY:
        return state.known[here] < SURVEYED
    if scan == SWEEP_FAR:
        return state.log[UNKNOWN] > 0 and state.ship[FUEL] >= SWEEP_FUEL
    unseen = False
    for k in range(N_NEAR):
        unseen = unseen or state.known[NEAR[here, k]] == UNSEEN
    return unseen


def scan_with(state: Any, scan: int) -> None:
    """Survey this site exactly, or see the neighbours, or (for fuel and heat) the whole belt."""
    here = state.log[PLACE]
    if scan == SURVEY:
        state.known[here] = SURVEYED
        warm(state, 0.05)
    elif scan == SWEEP_NEAR:
        for k in range(N_NEAR):
            see(state, NEAR[here, k])
        warm(state, 0.1)
    else:
        for site in range(N_SITES):
            see(state, site)
        state.ship[FUEL] -= SWEEP_FUEL
        warm(state, 0.3)


# --- Mining -------------------------------------------------------------------------------------
RATE = (3.5, 6.0)  # units a watch from pure ore: gently, hard
STRAIN = (0.05, 0.15)  # heat
WASTE = (0.008, 0.013)  # of the ore, for a unit brought up
TOO_HOT = (0.95, 0.8)  # heat at which the drill stops
UNSURVEYED = 0.7
"""What is brought up blindly, against a site that was surveyed."""
LEAST_ORE = 0.03


def can_mine(state: Any, good: int, hard: int) -> bool:
    """At a site with this ore, with room, and not too hot."""
    return (
        state.log[FLIGHT] == 0
        and state.ore[state.log[PLACE], good] >= LEAST_ORE
        and state.ship[HELD] + 0.5 <= capacity(state)
        and state.ship[HEAT] <= TOO_HOT[hard]
    )


def mine(state: Any, good: int, hard: int) -> None:
    """Bring up ore, the more the richer the site still is."""
    here = state.log[PLACE]
    ore = state.ore[here, good]
    units = RATE[hard] * SOFTNESS[good] * ore * (1.0 + 0.5 * to_float(state.levels[DRILL]))
    if state.known[here] != SURVEYED:
        units = units * UNSURVEYED
    units = minimum(units, capacity(state) - state.ship[HELD])
    left = maximum(ore - WASTE[hard] * units, 0.0)
    state.left[here] -= ore - left
    state.ore[here, good] = left
    load(state, good, units)
    warm(state, STRAIN[hard])


# --- Trade, only where a station is -------------------------------------------------------------
IMPACT = 0.01
"""The part of its price that a station takes off for every unit sold to it."""
LEAST_PRICE, MOST_PRICE = 0.2, 3.0


def can_sell(state: Any, good: int) -> bool:
    """Docked, and something to sell."""
    return docked(state) >= 0 and state.cargo[good] >= 0.01


def sell(state: Any, good: int, share: float) -> None:
    """Sell a part of what there is; the price falls with every unit, and recovers in time."""
    station = docked(state)
    units = state.cargo[good] * share
    if state.cargo[good] - units < 0.1:
        units = state.cargo[good]
    price = state.price[station, good]
    fallen = maximum(price * (1.0 - IMPACT * units), LEAST_PRICE)
    state.ship[CREDITS] += units * BASE_PRICE[good] * 0.5 * (price + fallen)
    state.price[station, good] = fallen
    load(state, good, -units)


def can_fuel(state: Any) -> bool:
    """Docked, room in the tank, and a credit."""
    return (
        docked(state) >= 0
        and state.ship[FUEL] + 0.5 <= tank_size(state)
        and state.ship[CREDITS] >= 1.0
    )


def buy_fuel(state: Any, units: float) -> None:
    """As much as was asked for, fits and can be paid."""
    room = tank_size(state) - state.ship[FUEL]
    bought = minimum(minimum(units, room), state.ship[CREDITS] / FUEL_PRICE)
    state.ship[FUEL] += bought
    state.ship[CREDITS] = maximum(state.ship[CREDITS] - bought * FUEL_PRICE, 0.0)


def can_repair(state: Any) -> bool:
    """Docked, a hull that needs it, and a credit."""
    return docked(state) >= 0 and state.ship[HULL] <= 0.995 and state.ship[CREDITS] >= 1.0


def repair(state: Any, part: float) -> None:
    """As much as was asked for, is broken and can be paid."""
    mended = minimum(minimum(part, 1.0 - state.ship[HULL]), state.ship[CREDITS] / HULL_PRICE)
    state.ship[HULL] = minimum(state.ship[HULL] + mended, 1.0)
    state.ship[CREDITS] = maximum(state.ship[CREDITS] - mended * HULL_PRICE, 0.0)


def upgrade_price(state: Any, part: int) -> float:
    """Credits for the next level."""
    return UPGRADE_PRICE[part] * to_float(state.levels[part] + 1)


def can_upgrade(state: Any, part: int) -> bool:
    """Docked, not at the highest level, and enough credits."""
    return (
        docked(state) >= 0
        and state.levels[part] < MAX_LEVEL
        and state.ship[CREDITS] >= upgrade_price(state, part)
    )


def upgrade(state: Any, part: int) -> None:
    """Pay, and have it for the rest of the season."""
    price = upgrade_price(state, part)
    state.ship[CREDITS] = maximum(state.ship[CREDITS] - price, 0.0)
    state.ship[PARTS] += RESALE * price
    state.levels[part] += 1


# --- Refining, anywhere, also in flight ---------------------------------------------------------
BATCH = 6.0
"""Units that go in at a time."""
FUEL_FROM_ICE, HULL_FROM_IRON, HEAT_FROM_CARBON = 5.0, 0.08, 0.4
PLATINUM_FROM_NICKEL, IRIDIUM_FROM_PLATINUM, COIN_FROM_IRIDIUM = 4.2, 4.3, 90.0


def can_refine(state: Any, good: int) -> bool:
    """A batch in the hold, a use for what comes out, and not too hot (coolant: hot enough)."""
    if state.cargo[good] < BATCH:
        return False
    if good == CARBON:
        return state.ship[HEAT] >= 0.3
    if state.ship[HEAT] > SCORCH:
        return False
    if good == ICE:
        return state.ship[FUEL] + 0.5 <= tank_size(state)
    if good == IRON:
        return state.ship[HULL] <= 0.99
    return True


def refine(state: Any, good: int) -> None:
    """Turn a batch into what the ship needs, or into something dearer and smaller."""
    skill = 1.0 + 0.18 * to_float(state.levels[REFINERY])
    load(state, good, -BATCH)
    if good == CARBON:
        state.ship[HEAT] = maximum(state.ship[HEAT] - HEAT_FROM_CARBON * skill, 0.0)
        return
    warm(state, 0.08)
    if good == ICE:
        state.ship[FUEL] = minimum(state.ship[FUEL] + FUEL_FROM_ICE * skill, tank_size(state))
    elif good == IRON:
        state.ship[HULL] = minimum(state.ship[HULL] + HULL_FROM_IRON * skill, 1.0)
    elif good == NICKEL:
        load(state, good + 1, PLATINUM_FROM_NICKEL * skill)
    elif good == PLATINUM:
        load(state, good + 1, IRIDIUM_FROM_PLATINUM * skill)
    else:
        state.ship[CREDITS] += COIN_FROM_IRIDIUM


# --- The beacon ---------------------------------------------------------------------------------
TUG_FUEL, TUG_SHARE, TUG_WATCHES, START_BEACONS = 20.0, 0.3, 4, 2


def can_call_tug(state: Any) -> bool:
    """Somewhere without a station, with a beacon left."""
    return state.log[FLIGHT] == 0 and docked(state) < 0 and state.log[BEACONS] > 0


def call_tug(state: Any) -> None:
    """A tug brings fuel, takes the ship to the nearest station, and 30 % of the credits."""
    state.log[BEACONS] -= 1
    state.ship[CREDITS] -= TUG_SHARE * state.ship[CREDITS]
    state.ship[FUEL] = maximum(state.ship[FUEL], TUG_FUEL)
    state.log[PLACE] = NEAREST_STATION[state.log[PLACE]]
    state.log[FLIGHT] = TUG_WATCHES


# --- Orders -------------------------------------------------------------------------------------
def allowed(state: Any, action: int) -> bool:
    """Whether an action does anything."""
    if action < SCAN:
        return can_travel(state, action - TRAVEL)
    if action < MINE:
        return can_scan(state, action - SCAN)
    if action < SELL:
        return can_mine(state, (action - MINE) // 2, (action - MINE) % 2)
    if action < REFUEL:
        return can_sell(state, (action - SELL) // 3)
    if action < REPAIR:
        return can_fuel(state)
    if action < UPGRADE:
        return can_repair(state)
    if action < REFINE:
        return can_upgrade(state, action - UPGRADE)
    if action < WAIT:
        return can_refine(state, action - REFINE)
    return action == WAIT or can_call_tug(state)


def obey(state: Any, action: int) -> None:
    """Do what an allowed action says."""
    if action < SCAN:
        travel(state, action - TRAVEL)
    elif action < MINE:
        scan_with(state, action - SCAN)
    elif action < SELL:
        mine(state, (action - MINE) // 2, (action - MINE) % 2)
    elif action < REFUEL:
        sell(state, (action - SELL) // 3, SHARES[(action - SELL) % 3])
    elif action < REPAIR:
        buy_fuel(state, FUEL_UNITS[action - REFUEL])
    elif action < UPGRADE:
        repair(state, REPAIRS[action - REPAIR])
    elif action < REFINE:
        upgrade(state, action - UPGRADE)
    elif action < WAIT:
        refine(state, action - REFINE)
    elif action == BEACON:
        call_tug(state)
