"""Prospector-v0: a season of mining and trading in an asteroid belt.

Sixteen sites; thirteen hold ore of six kinds, three have a station in orbit, where ore is sold and
the ship is fuelled, mended and improved. A season has 240 watches, and an action takes one. Fly to
a site, look at what is there, drill it, bring it to a station that pays for it. What is in the way:
the tank is small, the drill runs hot, prices fall while you sell and move while you fly, richer
sites are more dangerous, and a watch spent on one thing is not spent on another.

`belt` has the vocabulary and the map, `ship` what the player does, `sensors` what is seen; here is
what the belt does by itself, and what it is worth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from operant.envs.prospector.belt import (
    ABUNDANCE,
    ACTIONS,
    BASE_PRICE,
    BEACON,
    DEBRIS,
    MINE,
    N_ACTIONS,
    N_GOODS,
    N_HAZARDS,
    N_NEAR,
    N_SITES,
    N_STATIONS,
    N_UPGRADES,
    NEAR,
    OBS_DIM,
    OBSERVATIONS,
    PIRATES,
    RADIATION,
    RADIATOR,
    REFINE,
    REFUEL,
    REPAIR,
    SCAN,
    SEASON_PART,
    SELL,
    SHIELD,
    STATION_AT,
    STATION_SITES,
    TRAVEL,
    UPGRADE,
    WAIT,
)
from operant.envs.prospector.sensors import observe_markets, observe_ship, observe_sites
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
    LEAST_PRICE,
    MOST_PRICE,
    PARTS,
    PLACE,
    SCORCH,
    START_BEACONS,
    SURVEYED,
    UNKNOWN,
    allowed,
    can_call_tug,
    can_fuel,
    can_mine,
    can_refine,
    can_repair,
    can_scan,
    can_sell,
    can_travel,
    can_upgrade,
    capacity,
    docked,
    net_worth,
    obey,
    see,
)
from operant.lang import Arrays, clip, float32, int32, maximum, minimum, to_float
from operant.lang.env import Env
from operant.render.canvas import Canvas

__all__ = ["ACTIONS", "N_ACTIONS", "OBSERVATIONS", "OBS_DIM", "SEASON", "Prospector"]

SEASON = 240
"""Watches; then the season is over, and the broker takes what is left in the hold."""
REWARD_CREDITS = 100.0
"""Net worth that counts as one point."""
FINE = 0.01
"""Points that an action costs which is not allowed; the ship waits instead."""
HOME_STRETCH = 24
"""Watches before the end from which an observation counts down."""


# --- A new belt ---------------------------------------------------------------------------------
START_CREDITS, START_FUEL = 120.0, 30.0


def lay_ore(state: Any, random: Any, site: int) -> None:
    """Fill a site with ore; what is worth more draws more danger."""
    lure = 0.0
    for good in range(N_GOODS):
        ore = ABUNDANCE[good] * clip(random.uniform(-0.5, 1.0), 0.0, 1.0)
        state.ore[site, good] = ore
        state.left[site] += ore
        lure += ore * BASE_PRICE[good]
    state.danger[site] = clip(0.012 * lure + random.uniform(0.0, 0.4), 0.0, 0.8)
    for kind in range(N_HAZARDS):
        state.hazard[site, kind] = state.danger[site] * random.uniform(0.3, 1.5)


def open_markets(state: Any, random: Any) -> None:
    """Prices and demand of every station, in parts of the base price."""
    for station in range(N_STATIONS):
        for good in range(N_GOODS):
            state.demand[station, good] = random.uniform(0.5, 1.5)
            state.price[station, good] = state.demand[station, good] * random.uniform(0.8, 1.2)


# --- What the belt does by itself, each watch ---------------------------------------------------
COOLING, COOLING_STEP = 0.04, 0.025
"""Heat that goes in a watch, and more of it for each level of the radiator."""
SHOCK = 0.05
"""Chance in a watch that a station suddenly wants much more of a commodity, or much less."""


def drift_prices(state: Any, random: Any, volatility: float) -> None:
    """One commodity a watch, in turn: prices follow demand, demand wanders back to normal."""
    good = state.log[CLOCK] % N_GOODS
    for station in range(N_STATIONS):
        demand = state.demand[station, good]
        wander = volatility * random.uniform(-0.15, 0.15)
        demand = clip(demand + 0.1 * (1.0 - demand) + wander, 0.3, 2.5)
        price = state.price[station, good]
        price = price + 0.4 * (demand - price) + 0.2 * wander
        state.demand[station, good] = demand
        state.price[station, good] = clip(price, LEAST_PRICE, MOST_PRICE)
    if random.chance(SHOCK * volatility):
        wanted = random.uniform(0.3, 2.5)
        state.demand[random.integers(N_STATIONS), good] = wanted


def drift_hazards(state: Any, random: Any) -> None:
    """One site a watch, in turn; stations are patrolled."""
    site = state.log[CLOCK] % N_SITES
    if STATION_AT[site] < 0:
        for kind in range(N_HAZARDS):
            hazard = state.hazard[site, kind]
            hazard = hazard + 0.3 * (state.danger[site] - hazard) + random.uniform(-0.3, 0.3)
            state.hazard[site, kind] = clip(hazard, 0.0, 1.0)


def strike(state: Any, random: Any, danger: float) -> None:
    """Radiation gnaws at the hull, debris hits it, pirates shoot at it and take a third of all."""
    here = state.log[PLACE]
    damage = 0.0
    if state.ship[HEAT] > SCORCH:
        damage = 0.02
    if STATION_AT[here] < 0:
        exposure = danger if state.log[FLIGHT] == 0 else 0.5 * danger
        damage += 0.008 * exposure * state.hazard[here, RADIATION]
        if random.chance(0.1 * exposure * state.hazard[here, DEBRIS]):
            damage += random.uniform(0.05, 0.2)
        bait = 0.2 + 0.8 * state.ship[HELD] / capacity(state)
        if random.chance(0.12 * exposure * bait * state.hazard[here, PIRATES]):
            damage += random.uniform(0.05, 0.1)
            for good in range(N_GOODS):
                state.cargo[good] *= 0.667
            state.ship[HELD] *= 0.667
    damage = damage * (1.0 - 0.25 * to_float(state.levels[SHIELD]))
    state.ship[HULL] -= damage
    state.ship[ALARM] = minimum(5.0 * damage, 1.0)


def cool(state: Any, order: int) -> None:
    """The ship radiates; twice as much when it does nothing else."""
    cooling = COOLING + COOLING_STEP * to_float(state.levels[RADIATOR])
    if order == WAIT:
        cooling = 2.0 * cooling
    state.ship[HEAT] = maximum(state.ship[HEAT] - cooling, 0.0)


def fly(state: Any) -> None:
    """A watch nearer; on arrival the site is seen."""
    if state.log[FLIGHT] > 0:
        state.log[FLIGHT] -= 1
        if state.log[FLIGHT] == 0:
            see(state, state.log[PLACE])


def lose_ship(state: Any) -> None:
    """The hold and the parts are gone, and half of the credits with them."""
    state.cargo[:] = 0.0
    state.ship[HELD] = 0.0
    state.ship[HULL] = 0.0
    state.ship[PARTS] = 0.0
    state.ship[CREDITS] *= 0.5


class Prospector(Env):
    """Mine, trade and survive for a season; the return is the net worth gained, in hundreds."""

    class Params(NamedTuple):
        """How rough the season is; the shipped figures are for 1."""

        danger: float = 1.0
        volatility: float = 1.0

    class State(Arrays):
        """About a kilobyte; the names of the first two arrays' elements are in `ship`."""

        ship = float32[7]
        log = int32[5]
        levels = int32[N_UPGRADES]
        cargo = float32[N_GOODS]
        price = float32[N_STATIONS, N_GOODS]
        demand = float32[N_STATIONS, N_GOODS]
        ore = float32[N_SITES, N_GOODS]
        left = float32[N_SITES]
        danger = float32[N_SITES]
        hazard = float32[N_SITES, N_HAZARDS]
        known = int32[N_SITES]

    env_id = "Prospector-v0"
    observation_space = Box(0.0, 1.0, (OBS_DIM,), np.float32)
    action_space = Discrete(N_ACTIONS)
    max_episode_steps = SEASON  # never cuts an episode short: the rules end it in that very watch
    reward_threshold = 45.0
    render_size = (960, 600)
    render_fps = 6
    training = {  # above the threshold with five seeds of five: docs/prospector.md
        "env.num_envs": 512,
        "policy.hidden": [128, 128],  # with 64, some seeds stayed at 42
        "policy.normalize_obs": True,
        "ppo.num_steps": 64,
        "ppo.epochs": 2,
        "ppo.minibatches": 16,
        "ppo.learning_rate": 1.5e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.998,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.03,  # with less, one seed of five settled for 40
        "ppo.normalize_reward": True,
        "run.total_steps": 12_000_000,
    }

    @staticmethod
    def reset(state: Any, random: Any) -> None:
        """A new belt, new markets, and a ship docked at one of the stations."""
        for site in range(N_SITES):
            if STATION_AT[site] < 0:
                lay_ore(state, random, site)
            else:
                state.known[site] = SURVEYED
        open_markets(state, random)
        here = STATION_SITES[random.integers(N_STATIONS)]
        state.log[PLACE] = here
        state.log[BEACONS] = START_BEACONS
        state.log[UNKNOWN] = N_SITES - N_STATIONS
        for k in range(N_NEAR):
            see(state, NEAR[here, k])
        state.ship[FUEL] = START_FUEL
        state.ship[HULL] = 1.0
        state.ship[CREDITS] = START_CREDITS

    @staticmethod
    def step(state: Any, action: int, random: Any, params: Params) -> tuple[float, bool]:
        """A watch: the order, then the belt; over when the season is, or the ship."""
        before = net_worth(state)
        order = action
        fine = 0.0
        if not allowed(state, action):
            order = WAIT
            fine = FINE
        obey(state, order)
        cool(state, order)
        strike(state, random, params.danger)
        fly(state)
        drift_prices(state, random, params.volatility)
        drift_hazards(state, random)
        state.log[CLOCK] += 1
        lost = state.ship[HULL] <= 0.0
        if lost:
            lose_ship(state)
        reward = (net_worth(state) - before) / REWARD_CREDITS - fine
        return reward, lost or state.log[CLOCK] >= SEASON

    @staticmethod
    def observe(state: Any, obs: Any) -> None:
        """All 260 numbers are between 0 and 1; `OBSERVATIONS` names them."""
        observe_ship(state, obs)
        observe_markets(state, obs)
        observe_sites(state, obs)
        clock = state.log[CLOCK]
        obs[SEASON_PART + 0] = clip(to_float(clock) / SEASON, 0.0, 1.0)
        obs[SEASON_PART + 1] = clip(
            to_float(clock + HOME_STRETCH - SEASON) / HOME_STRETCH, 0.0, 1.0
        )
        if docked(state) >= 0:
            obs[SEASON_PART + 2 + docked(state)] = 1.0
        obs[SEASON_PART + 5] = clip(state.ship[ALARM], 0.0, 1.0)

    @staticmethod
    def action_mask(state: Any, mask: Any) -> None:
        """What does something now; waiting always does."""
        for site in range(N_SITES):
            mask[TRAVEL + site] = can_travel(state, site)
        for scan in range(3):
            mask[SCAN + scan] = can_scan(state, scan)
        for good in range(N_GOODS):
            mask[MINE + 2 * good] = can_mine(state, good, 0)
            mask[MINE + 2 * good + 1] = can_mine(state, good, 1)
            sell = can_sell(state, good)
            for k in range(3):
                mask[SELL + 3 * good + k] = sell
            mask[REFINE + good] = can_refine(state, good)
        for part in range(N_UPGRADES):
            mask[UPGRADE + part] = can_upgrade(state, part)
        fuel = can_fuel(state)
        repair = can_repair(state)
        for k in range(3):
            mask[REFUEL + k] = fuel
            mask[REPAIR + k] = repair
        mask[BEACON] = can_call_tug(state)

    @staticmethod
    def render(state: Any, canvas: Canvas, params: Params) -> None:
        """The belt, the ship's gauges, the hold and the markets."""
        from operant.envs.prospector.scene import draw

        draw(state, canvas, SEASON)
