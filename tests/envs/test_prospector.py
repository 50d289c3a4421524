"""Prospector's contract: layout, bounds, mask, books, and trajectories that may not change."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import operant
from operant.envs.prospector import belt, ship
from operant.envs.prospector import prospector as game
from operant.envs.prospector.pilots import greedy_pilot, play, random_pilot
from operant.envs.prospector.prospector import FINE, SEASON, Prospector

GOLDEN = {
    ("reference", 0): "6f517b37c3d9e6f48045907ced32273c9966744a467f0e1a27057cfddd0c39d7",
    ("reference", 1): "cc73ed41a3663d0817f15aad7ef19abea741b5bd9c0b3920c2044f28e89ab5c5",
    ("cpu", 0): "58fbcfc3d3f9bd522a385555227b0fb5b7661ca7e9c539d28e602b1410b41987",
    ("cpu", 7): "2db5e07ac5ccc9615c7dff2586fa1b9e9c300c47e5dbebdee00344983ce47ffb",
    ("cpu", 2026): "ccd9d4a4331698c11b32fb9a1efb2859c4e2496bc3d282ce9624c6d115b74966",
}
"""SHA-256 of everything that a batch hands out, under `steady`. A change of these is a change of
the game: it needs a new version of the environment, not a new hash."""
SHAPE = {"reference": (2, 40), "cpu": (64, 2 * SEASON + 20)}
"""Environments and steps."""


def steady(masks: np.ndarray, step: int) -> np.ndarray:
    """Allowed actions that depend on nothing but the step and the environment's place."""
    lanes = np.arange(len(masks))
    wanted = (step * 7919 + lanes * 104_729 + step * step * 31) % masks.sum(axis=1)
    return (masks & (masks.cumsum(axis=1) == wanted[:, None] + 1)).argmax(axis=1)


def stream(backend: str, seed: int, **options: int) -> Iterator[tuple[np.ndarray, ...]]:
    num_envs, steps = SHAPE[backend]
    batch = operant.make("Prospector-v0", num_envs, backend=backend, seed=seed, **options)
    obs, _ = batch.reset()
    yield (obs, batch.action_masks())
    for step in range(steps):
        obs, reward, terminated, truncated, _ = batch.step(steady(batch.action_masks(), step))
        yield obs, reward, terminated, truncated, batch.action_masks()
    batch.close()


def digest(backend: str, seed: int, **options: int) -> str:
    found = hashlib.sha256()
    for arrays in stream(backend, seed, **options):
        for array in arrays:
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@pytest.mark.parametrize(("backend", "seed"), GOLDEN)
def test_golden_trajectories(backend: str, seed: int) -> None:
    assert digest(backend, seed) == GOLDEN[backend, seed]


def test_another_number_of_workers_changes_nothing() -> None:
    assert digest("cpu", 0, workers=2) == GOLDEN["cpu", 0]


def test_plain_python_and_compiled_code_agree_to_the_bit() -> None:
    """A whole season and the beginning of the next, with good play, any play and bad play."""
    plain, native = (
        operant.make("Prospector-v0", 3, backend=b, seed=4) for b in ("reference", "cpu")
    )
    obs, _ = plain.reset()
    native.reset()
    for step in range(SEASON + 10):
        masks = plain.action_masks()
        actions = steady(masks, step)
        actions[0], actions[2] = greedy_pilot(obs, masks)[0], (7 * step) % 69
        found, wanted = native.step(actions), plain.step(actions)
        for one, other in zip(found[:4], wanted[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(native.action_masks(), plain.action_masks())
        obs = wanted[0]
    for name, array in plain.get_state().items():
        np.testing.assert_array_equal(native.get_state()[name], array, err_msg=name)


# --- Layout -------------------------------------------------------------------------------------
def test_observation_and_actions_add_up() -> None:
    assert 20 + 6 + 3 * 6 * 2 + 16 * 12 + 6 == 260 == belt.OBS_DIM == len(belt.OBSERVATIONS)
    assert 16 + 3 + 6 * 2 + 6 * 3 + 3 + 3 + 6 + 6 + 1 + 1 == 69 == belt.N_ACTIONS
    assert len(belt.ACTIONS) == len(set(belt.ACTIONS)) == 69
    assert len(set(belt.OBSERVATIONS)) == 260
    batch = operant.make("operant/Prospector-v0", 1, backend="reference")
    assert batch.single_observation_space.shape == (260,)
    assert batch.single_action_space.n == 69
    assert batch.rules.mask_size == 69


@pytest.mark.parametrize(
    ("index", "name"),
    [
        (0, "ship: fuel"),
        (8, "ship: ice here"),
        (19, "ship: level of the refinery"),
        (20, "cargo: ice"),
        (26, "market: ice at Anchorage, price"),
        (61, "market: iridium at Kestrel, demand"),
        (62, "Anchorage: ice"),
        (253, "Pyre: distance"),
        (254, "season: season gone"),
        (259, "season: alarm"),
    ],
)
def test_names_of_observations(index: int, name: str) -> None:
    assert belt.OBSERVATIONS[index] == name


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (15, "travel to Pyre"),
        (16, "survey this site"),
        (20, "mine ice hard"),
        (48, "sell all iridium"),
        (51, "fill the tank"),
        (54, "repair everything"),
        (60, "upgrade the refinery"),
        (66, "mint iridium into coin"),
        (67, "wait"),
        (68, "light the distress beacon"),
    ],
)
def test_names_of_actions(action: int, name: str) -> None:
    assert belt.ACTIONS[action] == name


# --- Whole games --------------------------------------------------------------------------------
@pytest.mark.parametrize("masked", [True, False])
def test_everything_stays_within_its_bounds(masked: bool) -> None:
    """Thousands of seasons, also with actions that are not allowed, and in a rough belt."""
    batch = operant.make(
        "Prospector-v0", 2048, backend="cpu", seed=5, copy=False, danger=2.0, volatility=2.0
    )
    generator = np.random.default_rng(0)
    pilot = random_pilot(1)
    obs, _ = batch.reset()
    ended = np.zeros(2048, int)
    for step in range(SEASON + 30):
        actions = pilot(obs, batch.action_masks()) if masked else generator.integers(69, size=2048)
        obs, reward, terminated, truncated, _ = batch.step(actions)
        assert ((obs >= 0.0) & (obs <= 1.0)).all()
        assert np.isfinite(reward).all()
        assert batch.action_masks()[:, belt.WAIT].all()
        assert (terminated >= truncated).all()
        ended += terminated
        if step % 15 == 0:
            check_books(batch.get_state())
    assert (ended >= 1).all()
    assert ended.sum() > 2048  # some ships were lost before the season ended


def check_books(state: dict[str, np.ndarray]) -> None:
    now, levels = state["state.ship"], state["state.levels"]
    assert (now[:, ship.FUEL] >= 0.0).all()
    tank = ship.TANK_UNITS + ship.TANK_STEP * levels[:, belt.TANK]
    assert (now[:, ship.FUEL] <= tank + 1e-4).all()
    assert (now[:, ship.CREDITS] >= 0.0).all()
    assert ((now[:, ship.HULL] >= 0.0) & (now[:, ship.HULL] <= 1.0)).all()
    assert ((now[:, ship.HEAT] >= 0.0) & (now[:, ship.HEAT] <= 1.0)).all()
    cargo, hold = state["state.cargo"], ship.HOLD_UNITS + ship.HOLD_STEP * levels[:, belt.HOLD]
    assert (cargo >= 0.0).all()
    np.testing.assert_allclose(cargo.sum(axis=1), now[:, ship.HELD], atol=1e-3)
    assert (now[:, ship.HELD] <= hold + 1e-3).all()
    assert ((levels >= 0) & (levels <= belt.MAX_LEVEL)).all()
    assert ((state["state.ore"] >= 0.0) & (state["state.ore"] <= 1.0)).all()
    np.testing.assert_allclose(state["state.ore"].sum(axis=2), state["state.left"], atol=1e-3)
    price = state["state.price"]
    assert ((price >= ship.LEAST_PRICE - 1e-6) & (price <= ship.MOST_PRICE)).all()
    assert ((state["state.hazard"] >= 0.0) & (state["state.hazard"] <= 1.2)).all()


def test_score_is_the_gain_in_net_worth() -> None:
    """With allowed actions only: the return times 100 is what the ship is worth more at the end."""
    batch = operant.make("Prospector-v0", 256, backend="cpu", seed=3, autoreset_mode="Disabled")
    obs, _ = batch.reset()
    scores = np.zeros(256)
    for _ in range(SEASON):
        obs, reward, terminated, _, _ = batch.step(greedy_pilot(obs, batch.action_masks()))
        scores += reward
        if terminated.any():
            break
    state = batch.get_state()
    worth = state["state.ship"][:, ship.CREDITS] + state["state.ship"][:, ship.PARTS]
    worth = worth + ship.BROKER * (state["state.cargo"] * belt.BASE_PRICE).sum(axis=1)
    gained = (worth - game.START_CREDITS) / game.REWARD_CREDITS
    np.testing.assert_allclose(scores, gained, atol=1e-2)


def test_a_season_ends_the_episode() -> None:
    batch = operant.make("Prospector-v0", 4, backend="cpu", seed=0)
    batch.reset()
    waits = np.full(4, belt.WAIT)
    for _ in range(SEASON - 1):
        _, _, terminated, truncated, _ = batch.step(waits)
        assert not (terminated | truncated).any()
    _, _, terminated, truncated, info = batch.step(waits)
    assert terminated.all()
    assert truncated.all()  # of that very watch: nothing is left to bootstrap from
    np.testing.assert_array_equal(info["episode"]["l"], SEASON)


def test_a_lost_ship_ends_the_episode_and_costs_half_of_the_credits() -> None:
    batch = operant.make("Prospector-v0", 1, backend="cpu", seed=0)
    batch.reset()
    state = batch.get_state()
    state["state.ship"][0, [ship.HULL, ship.HEAT, ship.CREDITS]] = 0.001, 1.0, 1000.0
    batch.set_state(state)
    _, reward, terminated, truncated, _ = batch.step([belt.SCAN + belt.SWEEP_FAR])
    assert terminated[0]
    assert not truncated[0]
    assert reward[0] == pytest.approx(-5.0)


# --- The mask -----------------------------------------------------------------------------------
def test_what_the_mask_forbids_is_a_wait_with_a_fine() -> None:
    """From states of many games: every forbidden action leaves the state that waiting leaves."""
    batch = operant.make("Prospector-v0", 69, backend="cpu", seed=2)
    pilot = random_pilot(4)
    obs, _ = batch.reset()
    forbidden = 0
    for step in range(200):
        before = batch.get_state()
        if step % 20 == 0:
            lane = step % 69
            same = {
                name: np.repeat(array[lane : lane + 1], 69, 0) for name, array in before.items()
            }
            batch.set_state(same)
            mask = batch.action_masks()[0]
            _, reward, *_ = batch.step(np.arange(69))
            after = batch.get_state()
            barred = np.flatnonzero(~mask)
            forbidden += len(barred)
            fined = np.float32(reward[belt.WAIT]) - np.float32(FINE)
            np.testing.assert_allclose(reward[barred], fined, atol=1e-6)
            for name in (key for key in after if key.startswith("state.")):
                wanted = np.repeat(after[name][belt.WAIT : belt.WAIT + 1], len(barred), 0)
                np.testing.assert_array_equal(after[name][barred], wanted, err_msg=name)
            batch.set_state(before)
        obs, *_ = batch.step(pilot(obs, batch.action_masks()))
    assert forbidden > 300


def test_what_the_mask_allows_does_something() -> None:
    """An allowed action other than a wait leaves another state than the wait does."""
    batch = operant.make("Prospector-v0", 69, backend="cpu", seed=8)
    pilot = random_pilot(4)
    obs, _ = batch.reset()
    for step in range(120):
        if step % 10 == 0:
            before = batch.get_state()
            lane = step % 69
            batch.set_state({k: np.repeat(v[lane : lane + 1], 69, 0) for k, v in before.items()})
            allowed = np.flatnonzero(batch.action_masks()[0])
            batch.step(np.arange(69))
            after = batch.get_state()
            names = [name for name in after if name.startswith("state.")]
            for action in allowed[allowed != belt.WAIT]:
                changed = [
                    not np.array_equal(after[name][action], after[name][belt.WAIT])
                    for name in names
                ]
                assert any(changed), belt.ACTIONS[action]
            batch.set_state(before)
        obs, *_ = batch.step(pilot(obs, batch.action_masks()))


# --- By hand ------------------------------------------------------------------------------------
@pytest.fixture
def one() -> Iterator[operant.VecEnv]:
    batch = operant.make("Prospector-v0", 1, backend="reference", seed=1, danger=0.0)
    batch.reset()
    yield batch
    batch.close()


def put(batch: operant.VecEnv, **arrays: object) -> None:
    """Change parts of the state: ``ship={FUEL: 3}`` and so on."""
    state = batch.get_state()
    for name, changes in arrays.items():
        for place, value in changes.items():  # type: ignore[attr-defined]
            state[f"state.{name}"][(0, *np.atleast_1d(place))] = value
    batch.set_state(state)


def test_mining_by_hand(one: operant.VecEnv) -> None:
    """6 units an hour x softness 1 x ore 0.5, surveyed; 0.15 heat less 0.04 of cooling."""
    put(one, log={ship.PLACE: 1}, known={1: ship.SURVEYED}, ore={(1, belt.NICKEL): 0.5})
    one.step([belt.MINE + 2 * belt.NICKEL + 1])
    state = one.get_state()
    assert state["state.cargo"][0, belt.NICKEL] == pytest.approx(3.0)
    assert state["state.ore"][0, 1, belt.NICKEL] == pytest.approx(0.5 - 3.0 * 0.013)
    assert state["state.ship"][0, ship.HEAT] == pytest.approx(0.11)


def test_mining_blindly_brings_up_less(one: operant.VecEnv) -> None:
    put(one, log={ship.PLACE: 1}, known={1: ship.SEEN}, ore={(1, belt.NICKEL): 0.5})
    one.step([belt.MINE + 2 * belt.NICKEL + 1])
    assert one.get_state()["state.cargo"][0, belt.NICKEL] == pytest.approx(0.7 * 3.0)


def test_selling_by_hand(one: operant.VecEnv) -> None:
    """10 units at 1.2 x 22 credits, falling by 1 % a unit: 10 x 22 x (1.2 + 1.08) / 2 = 250.8."""
    put(
        one,
        log={ship.PLACE: belt.STATION_SITES[1]},
        cargo={belt.IRIDIUM: 10.0},
        ship={ship.HELD: 10.0, ship.CREDITS: 0.0},
        price={(1, belt.IRIDIUM): 1.2},
    )
    one.step([belt.SELL + 3 * belt.IRIDIUM + 2])
    state = one.get_state()
    assert state["state.ship"][0, ship.CREDITS] == pytest.approx(250.8)
    assert state["state.price"][0, 1, belt.IRIDIUM] == pytest.approx(1.08)
    assert state["state.cargo"][0, belt.IRIDIUM] == 0.0


def test_refining_in_flight(one: operant.VecEnv) -> None:
    put(
        one,
        log={ship.FLIGHT: 2},
        cargo={belt.NICKEL: 7.0},
        levels={belt.REFINERY: 2},
        ship={ship.HELD: 7.0},
    )
    one.step([belt.REFINE + belt.NICKEL])
    cargo = one.get_state()["state.cargo"][0]
    assert cargo[belt.NICKEL] == pytest.approx(1.0)
    assert cargo[belt.PLATINUM] == pytest.approx(4.2 * 1.36)


def test_smelting_never_overfills_the_hold(one: operant.VecEnv) -> None:
    """Six nickel make more than six platinum at the highest level; what has no room is lost."""
    put(
        one,
        cargo={belt.NICKEL: 30.0},
        levels={belt.REFINERY: 3},
        ship={ship.HELD: 30.0},
    )
    one.step([belt.REFINE + belt.NICKEL])
    cargo = one.get_state()["state.cargo"][0]
    assert cargo.tolist() == [0.0, 0.0, 0.0, 24.0, 6.0, 0.0]


def test_the_tug_brings_the_ship_home(one: operant.VecEnv) -> None:
    put(one, log={ship.PLACE: 8}, ship={ship.FUEL: 0.0, ship.CREDITS: 100.0})
    one.step([belt.BEACON])
    for _ in range(3):
        assert one.get_state()["state.log"][0, ship.FLIGHT] > 0
        one.step([belt.WAIT])
    state = one.get_state()
    assert state["state.log"][0, [ship.PLACE, ship.FLIGHT, ship.BEACONS]].tolist() == [10, 0, 1]
    assert state["state.ship"][0, ship.FUEL] == 20.0
    assert state["state.ship"][0, ship.CREDITS] == pytest.approx(70.0)


def test_unseen_ore_is_not_in_the_observation(one: operant.VecEnv) -> None:
    state = one.get_state()
    unseen = [k for k in range(16) if state["state.known"][0, k] == 0]
    assert unseen
    for site in unseen:
        start = belt.SITE + site * belt.SITE_SIZE
        assert (state["obs"][0, start : start + 8] == 0.0).all()
        assert (state["state.ore"][0, site] > 0.0).any()


# --- Pilots and pictures ------------------------------------------------------------------------
def test_greedy_beats_random_and_misses_the_threshold() -> None:
    chance, greedy = play(random_pilot(), 128).mean(), play(greedy_pilot, 128).mean()
    assert chance < 1.0
    assert 33.0 < greedy < 41.0
    assert Prospector.reward_threshold is not None
    assert Prospector.reward_threshold > 1.1 * greedy


def test_pilots_choose_only_what_is_allowed() -> None:
    batch = operant.make("Prospector-v0", 256, backend="cpu", seed=6)
    obs, _ = batch.reset()
    for _ in range(100):
        masks = batch.action_masks()
        for pilot in (random_pilot(), greedy_pilot):
            actions = pilot(obs, masks)
            assert masks[np.arange(256), actions].all()
        obs, *_ = batch.step(actions)


def test_picture_shows_the_state(one: operant.VecEnv) -> None:
    first = one.render_one(0)
    assert first.shape == (600, 960, 3)
    put(one, log={ship.PLACE: 3}, ship={ship.FUEL: 2.0})
    assert (one.render_one(0) != first).any(axis=2).sum() > 1000


# --- The page -----------------------------------------------------------------------------------
def test_the_page_has_the_layout() -> None:
    page = (Path(__file__).parents[2] / "docs" / "prospector.md").read_text(encoding="utf-8")
    starts = {
        "ship": belt.SHIP,
        "cargo": belt.CARGO,
        "markets": belt.MARKET,
        "sites": belt.SITE,
        "season": belt.SEASON_PART,
        "travel": belt.TRAVEL,
        "scan": belt.SCAN,
        "mine": belt.MINE,
        "sell": belt.SELL,
        "fuel": belt.REFUEL,
        "repair": belt.REPAIR,
        "upgrade": belt.UPGRADE,
        "refine": belt.REFINE,
    }
    rows = re.findall(r"^\| (\d+)–(\d+) \| (\w+)", page, re.M)
    assert {name: int(first) for first, _, name in reversed(rows)} == starts
    observed, acted = rows[:7], rows[7:]
    for table, size in ((observed, belt.OBS_DIM), (acted, belt.WAIT)):
        assert int(table[-1][1]) == size - 1
        for (_, last, _), (first, _, _) in itertools.pairwise(table):
            assert int(first) == int(last) + 1
