"""Pilots for Prospector that need no training: what a policy has to beat.

A pilot takes a batch of observations (float32 ``[n, 260]``) and of masks (bool ``[n, 69]``) and
returns actions (int64 ``[n]``). It sees what a policy sees, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant.envs.prospector.belt import (
    BASE_PRICE,
    BEACON,
    CARBON,
    CARGO,
    DRILL,
    FLIGHT_FUEL,
    FLIGHT_TIME,
    HOLD,
    ICE,
    MARKET,
    MAX_LEVEL,
    MINE,
    N_GOODS,
    N_SITES,
    N_STATIONS,
    NICKEL,
    PLATINUM,
    REFINE,
    REFUEL,
    REPAIR,
    SCAN,
    SEASON_PART,
    SELL,
    SITE,
    SITE_SIZE,
    SOFTNESS,
    STATION_SITES,
    SURVEY,
    SWEEP_NEAR,
    TANK,
    TRAVEL,
    UPGRADE,
    UPGRADE_PRICE,
    WAIT,
)
from operant.envs.prospector.prospector import SEASON
from operant.envs.prospector.ship import (
    BATCH,
    HOLD_STEP,
    HOLD_UNITS,
    IRIDIUM_FROM_PLATINUM,
    MOST_PRICE,
    PLATINUM_FROM_NICKEL,
    TANK_STEP,
    TANK_UNITS,
)

Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Actions = NDArray[np.int64]
Pilot = Callable[[Floats, Masks], Actions]

_BASE = np.array(BASE_PRICE, np.float32)
_SOFT = np.array(SOFTNESS, np.float32)
_FUEL = np.array(FLIGHT_FUEL, np.float32)
_TIME = np.array(FLIGHT_TIME, np.float32)
_TO_STATION = _FUEL[:, STATION_SITES].min(axis=1)


def random_pilot(seed: int = 0) -> Pilot:
    """Any allowed action, each as likely as the others."""
    generator = np.random.default_rng(seed)

    def fly(obs: Floats, mask: Masks) -> Actions:
        chosen: Actions = np.where(mask, generator.random(mask.shape), -1.0).argmax(axis=1)
        return chosen

    return fly


class Seen:
    """A batch of observations, read back into the units of the game."""

    def __init__(self, obs: Floats) -> None:
        ship, rows = obs[:, :CARGO], np.arange(len(obs))
        self.tank, self.hull, self.heat, self.room = ship[:, :4].T
        self.credits = 500.0 * ship[:, 4] / np.maximum(1.0 - ship[:, 4], 1e-6)
        self.flight = 4.0 * ship[:, 6]
        self.here = ship[:, 8:14]
        self.levels = np.rint(MAX_LEVEL * ship[:, 14:20])
        self.fuel = self.tank * (TANK_UNITS + TANK_STEP * self.levels[:, TANK])
        units = HOLD_UNITS + HOLD_STEP * self.levels[:, HOLD]
        self.cargo = obs[:, CARGO:MARKET] * units[:, None]
        market = obs[:, MARKET:SITE].reshape(-1, N_STATIONS, N_GOODS, 2)
        self.prices = MOST_PRICE * market[..., 0] * _BASE  # [n, station, good], credits a unit
        self.price = self.prices.max(axis=1)
        sites = obs[:, SITE:SEASON_PART].reshape(-1, N_SITES, SITE_SIZE)
        self.ore, self.known = sites[..., :N_GOODS], sites[..., 6]
        self.hazard = sites[..., 8:11].sum(axis=-1)
        self.place = sites[..., 11].argmin(axis=1)
        self.docked = obs[:, SEASON_PART + 2 : SEASON_PART + 5] > 0
        self.price_here = self.prices[rows, self.docked.argmax(axis=1)]
        self.watches_left = SEASON * (1.0 - obs[:, SEASON_PART])


def greedy_pilot(obs: Floats, mask: Masks) -> Actions:
    """What a careful captain does who looks one trip ahead.

    Docked: sells all that pays here, mends, fills the tank, buys a better drill when it costs less
    than two thirds of the credits, then flies to the known site that promises most for the time it
    takes. There: surveys, and drills what is worth most, hard while the ship is cool. Moves on when
    the ore is thin; home when the hold is full, the hull weak, the fuel just enough or the season
    nearly over, to the station where this hold brings most. In flight the ship smelts what is worth
    more smelted.
    """
    seen = Seen(np.asarray(obs, np.float32))
    orders = _Orders(mask)
    home = _best_station(seen)
    target, promise = _best_site(seen)
    docked, flying = seen.docked.any(axis=1), seen.flight > 0

    for good, made in ((NICKEL, PLATINUM_FROM_NICKEL), (PLATINUM, IRIDIUM_FROM_PLATINUM)):
        gain = made * seen.price[:, good + 1] > BATCH * seen.price[:, good]
        orders.give(flying & gain, REFINE + good)

    value = seen.cargo * seen.price_here
    orders.give(docked & (value.max(axis=1) > 0), SELL + 3 * value.argmax(axis=1) + 2)
    orders.give(docked & (seen.hull < 0.7), REPAIR + 2)
    orders.give(docked & (seen.tank < 0.8), REFUEL + 2)
    drill = UPGRADE_PRICE[DRILL] * (seen.levels[:, DRILL] + 1)
    orders.give(docked & (seen.watches_left > 60) & (1.5 * drill < seen.credits), UPGRADE + DRILL)
    orders.give(docked, SCAN + SWEEP_NEAR)
    orders.give(docked & (promise > 0), TRAVEL + target)

    fuel_home = _TO_STATION[seen.place]
    enough = (seen.room < 0.03) | (seen.hull < 0.35) | (seen.fuel < fuel_home + 1.0)
    enough |= seen.watches_left < _TIME[seen.place, home] + 6
    orders.give(enough, TRAVEL + home)
    orders.give(seen.fuel < fuel_home, REFINE + ICE)
    orders.give(seen.fuel < fuel_home, BEACON)
    orders.give(True, SCAN + SURVEY)
    yields = np.where(mask[:, MINE:SELL:2], seen.here * seen.price * _SOFT, 0.0)
    best, rate = yields.argmax(axis=1), yields.max(axis=1)
    rich = rate > np.maximum(0.7 * promise, 0.5)
    orders.give(rich & (seen.heat < 0.75), MINE + 2 * best + 1)
    orders.give(rich & (seen.heat < 0.9), MINE + 2 * best)
    orders.give(rich & (seen.heat > 0.8), REFINE + CARBON)
    orders.give(rich & (seen.heat > 0.8), WAIT)
    orders.give((seen.room < 0.4) | (promise <= 0), TRAVEL + home)
    orders.give(promise > 0, TRAVEL + target)
    orders.give(True, TRAVEL + home)
    orders.give(True, WAIT)
    return orders.chosen


class _Orders:
    """Actions of a batch: the first order whose condition holds and that the mask allows."""

    def __init__(self, mask: Masks) -> None:
        self._mask = mask
        self.chosen = np.full(len(mask), -1, np.int64)

    def give(self, condition: Any, action: Any) -> None:
        """Where none was given yet."""
        actions = np.broadcast_to(np.asarray(action, np.int64), self.chosen.shape)
        free = (self.chosen < 0) & condition & self._mask[np.arange(len(actions)), actions]
        self.chosen[free] = actions[free]


def _best_station(seen: Seen) -> Actions:
    """The site of the station where this hold brings most, less what the way there costs."""
    stations = np.array(STATION_SITES)
    fuel, time = _FUEL[seen.place][:, stations], _TIME[seen.place][:, stations]
    income = (seen.cargo[:, None, :] * seen.prices).sum(axis=2) - 1.5 * fuel - 8.0 * time
    best = np.where(fuel > seen.fuel[:, None], -1e6 - fuel, income).argmax(axis=1)
    sites: Actions = stations[best]
    return sites


def _best_site(seen: Seen) -> tuple[Actions, Floats]:
    """The known site with the best ore for the way, and what a unit of it brings; 0: none."""
    best_ore = (seen.ore * (seen.price * _SOFT)[:, None, :]).max(axis=2)  # [n, site]
    fuel, time = _FUEL[seen.place], _TIME[seen.place]
    safe = fuel + _TO_STATION[None, :] + 1.0 <= seen.fuel[:, None]
    promise = best_ore * (10.0 / (10.0 + time)) - 0.5 * seen.hazard
    promise = np.where(safe & (seen.known > 0) & (best_ore > 1.0), np.maximum(promise, 0.01), 0.0)
    rows = np.arange(len(promise))
    promise[rows, seen.place] = 0.0
    best = promise.argmax(axis=1)
    return best, promise[rows, best].astype(np.float32)


def play(pilot: Pilot, episodes: int = 256, seed: int = 0, **params: Any) -> Floats:
    """The scores of a pilot: one episode in each of so many environments."""
    from operant.vector.make import make

    batch = make("Prospector-v0", episodes, backend="cpu", seed=seed, **params)
    obs, _ = batch.reset()
    scores, running = np.zeros(episodes, np.float32), np.ones(episodes, np.bool_)
    while running.any():
        obs, reward, terminated, truncated, _ = batch.step(pilot(obs, batch.action_masks()))
        scores += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    batch.close()
    return scores
