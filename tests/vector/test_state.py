"""`get_state` and `set_state`: the whole of a batch, out and in again, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import operant

from ..environments import Walk

BACKENDS = ("reference", "cpu")
MODES = ("NextStep", "SameStep", "Disabled")
N = 70
BUILT_IN = operant.envs.env_ids()
COMMON = {
    "steps": np.int32,
    "episode_return": np.float32,
    "done": np.bool_,
    "seed": np.uint64,
    "index": np.uint32,
    "episode": np.uint32,
    "reward": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
}


def make(backend: str, mode: str = "NextStep", **options: Any) -> operant.VecEnv:
    return operant.make(Walk, N, backend=backend, autoreset_mode=mode, **options)


def advance(env: operant.VecEnv, steps: int, seed: int) -> list[Any]:
    """Random steps; in mode Disabled finished environments are reset by mask."""
    env.action_space.seed(seed)
    results: list[Any] = []
    for _ in range(steps):
        *arrays, info = env.step(env.action_space.sample())
        results += [array.copy() for array in arrays]
        if info:
            report = info["_episode"], info["episode"]["r"], info["episode"]["l"]
            results += [array.copy() for array in report]
        if "final_obs" in info:
            results.append(info["final_obs"][info["_final_obs"]])
        finished = arrays[2] | arrays[3]
        if env.metadata["autoreset_mode"].value == "Disabled" and finished.any():
            results.append(env.reset(options={"reset_mask": finished})[0])
    return results


def run_to_a_finish(env: operant.VecEnv, seed: int = 0) -> None:
    """Steps until some environments, not all, have just finished."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    low, high = env.rules.action.low[0], env.rules.action.high[0]
    while True:
        _, _, terminated, truncated, _ = env.step(rng.integers(low, high, env.num_envs))
        finished = terminated | truncated
        if finished.any() and not finished.all():
            return
        if finished.any():
            env.reset()


def assert_same(one: list[Any], two: list[Any]) -> None:
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def assert_same_state(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert list(one) == list(two)
    assert_same(list(one.values()), list(two.values()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_entries(backend: str) -> None:
    env = make(backend)
    obs, _ = env.reset(seed=1)
    state = env.get_state()
    kinds = {"state.place": np.int32, "state.energy": np.float32, "state.lucky": np.bool_}
    assert {name: array.dtype.type for name, array in state.items()} == kinds | COMMON | {
        "obs": np.float32
    }
    assert all(array.shape == ((N, 3) if name == "obs" else (N,)) for name, array in state.items())
    np.testing.assert_array_equal(state["obs"], obs)
    np.testing.assert_array_equal(state["state.place"], obs[:, 0])
    np.testing.assert_array_equal(state["state.energy"], obs[:, 1])
    np.testing.assert_array_equal(state["state.lucky"], obs[:, 2] == 1.0)
    assert len(set(state["state.place"].tolist())) == 5
    assert set(state["state.lucky"].tolist()) == {True, False}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Walk", "CartPole-v1"])
def test_a_fresh_batch_goes_on_from_the_state(backend: str, mode: str, name: str) -> None:
    """With resets pending, into a batch that was never reset: 50 more steps are equal."""
    which: Any = Walk if name == "Walk" else name
    env, fresh = (
        operant.make(which, N, backend=backend, autoreset_mode=mode, seed=k) for k in range(2)
    )
    run_to_a_finish(env)
    state = env.get_state()
    assert state["done"].any()
    assert not state["done"].all()
    assert fresh.set_state(state).tobytes() == state["obs"].tobytes()
    assert_same_state(state, fresh.get_state())
    if mode == "Disabled":
        for e in (env, fresh):
            with pytest.raises(ValueError, match="has finished and autoreset is disabled"):
                e.step(np.zeros(N, np.int64))
            e.reset(options={"reset_mask": state["done"]})
    assert_same(advance(env, 50, 1), advance(fresh, 50, 1))
    assert_same_state(env.get_state(), fresh.get_state())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_going_back_in_the_same_batch(backend: str, mode: str) -> None:
    env = make(backend, mode)
    run_to_a_finish(env)
    if mode == "Disabled":
        env.reset(options={"reset_mask": env.get_state()["done"]})
    state = env.get_state()
    first = advance(env, 50, 1)
    env.set_state(state)
    assert_same(first, advance(env, 50, 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", BACKENDS)
def test_another_backend_goes_on_from_the_state(mode: str, source: str) -> None:
    target = BACKENDS[1 - BACKENDS.index(source)]
    env, other = make(source, mode), make(target, mode)
    run_to_a_finish(env)
    state = env.get_state()
    assert other.set_state(state).tobytes() == state["obs"].tobytes()
    assert_same_state(other.get_state(), state)
    if mode == "Disabled":
        for e in (env, other):
            e.reset(options={"reset_mask": state["done"]})
    assert_same(advance(env, 50, 1), advance(other, 50, 1))
    assert_same_state(env.get_state(), other.get_state())


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_state_survives_the_journey_through_the_other_backend(name: str) -> None:
    here = operant.make(name, 33, backend="cpu", seed=1, max_episode_steps=13)
    here.reset()
    advance(here, 30, 0)
    state = here.get_state()
    there = operant.make(name, 33, backend="reference")
    there.set_state(state)
    back = operant.make(name, 33, backend="cpu", max_episode_steps=13)
    back.set_state(there.get_state())
    assert_same(advance(here, 30, 1), advance(back, 30, 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_taken_before_the_first_step(backend: str) -> None:
    env, fresh = make(backend, seed=1), make(backend)
    env.reset()
    fresh.set_state(env.get_state())
    assert_same(advance(env, 20, 0), advance(fresh, 20, 0))
    assert env.reset()[0].tobytes() == fresh.reset()[0].tobytes()


# A part -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_the_state_gives_new_observations(backend: str) -> None:
    env = operant.make("Pendulum-v1", N, backend=backend, seed=1)
    env.reset()
    advance(env, 3, 0)
    before = env.get_state()
    theta = np.linspace(-3.0, 3.0, N).astype(np.float32)
    obs = env.set_state({"state.theta": theta})
    np.testing.assert_allclose(obs[:, 0], np.cos(theta), atol=1e-6)
    np.testing.assert_allclose(obs[:, 1], np.sin(theta), atol=1e-6)
    np.testing.assert_array_equal(obs[:, 2], before["state.theta_dot"])
    after = env.get_state()
    np.testing.assert_array_equal(after["obs"], obs)
    np.testing.assert_array_equal(after["state.theta"], theta)
    for name in set(before) - {"obs", "state.theta"}:
        np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize("backend", BACKENDS)
def test_observations_that_are_given_are_kept(backend: str) -> None:
    env = operant.make("Pendulum-v1", N, backend=backend, seed=1)
    env.reset()
    given = np.full((N, 3), 0.5, np.float32)
    np.testing.assert_array_equal(env.set_state({"obs": given}), given)
    assert (env.set_state({}) != given).any()  # none given: computed from the states


@pytest.mark.parametrize("backend", BACKENDS)
def test_wider_numbers_of_the_same_kind_are_accepted(backend: str) -> None:
    env = make(backend, seed=1)
    env.reset()
    energy = np.linspace(0.1, 1.0, N)
    energy[:3] = [np.nan, np.inf, -np.inf]
    obs = env.set_state({"state.energy": energy, "state.place": list(range(N))})
    np.testing.assert_array_equal(obs[:, 0], np.arange(N))
    np.testing.assert_array_equal(obs[:, 1], energy.astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_count_towards_the_limit(backend: str) -> None:
    env = operant.make("Pendulum-v1", N, backend=backend, seed=1)
    env.reset()
    steps = np.where(np.arange(N) % 2 == 0, 199, 10)
    env.set_state({"steps": steps, "episode_return": np.full(N, 100.0)})
    _, reward, _, truncated, info = env.step(np.zeros((N, 1), np.float32))
    assert truncated.tolist() == (steps == 199).tolist()
    np.testing.assert_array_equal(info["episode"]["l"], np.where(truncated, 200, 0))
    np.testing.assert_array_equal(
        info["episode"]["r"], np.where(truncated, np.float32(100) + reward, 0)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_done_makes_a_reset_pending(backend: str) -> None:
    env = make(backend, seed=1)
    env.reset()
    done = np.arange(N) % 3 == 0
    env.set_state({"done": done})
    episodes = env.get_state()["episode"]
    _, reward, *_ = env.step(np.zeros(N, np.int64))
    np.testing.assert_array_equal(env.get_state()["episode"], episodes + done)
    assert (reward[done] == 0).all()

    disabled = make(backend, "Disabled", seed=1)
    disabled.reset()
    disabled.set_state({"done": np.arange(N) == 4})
    with pytest.raises(ValueError, match="environment 4 has finished"):
        disabled.step(np.zeros(N, np.int64))
    disabled.set_state({"done": np.zeros(N, np.bool_)})
    disabled.step(np.zeros(N, np.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_random_stream_can_be_set(backend: str) -> None:
    env, other = make(backend), make(backend)
    env.reset(seed=1)
    other.reset(seed=2)
    state = env.get_state()
    other.set_state({name: state[name] for name in ("seed", "index", "episode")})
    assert env.reset()[0].tobytes() == other.reset()[0].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_reports_of_another_time_do_not_come_back(backend: str, mode: str) -> None:
    """Back to a moment when nobody had finished: later reports hold nothing older."""
    env = make(backend, mode)
    env.reset(seed=0)
    state = env.get_state()
    finished = np.zeros(N, np.bool_)
    while not finished.any():
        _, _, finished, _, _ = env.step(-np.ones(N, np.int64))
    env.set_state(state)
    seen = 0
    for _ in range(20):
        *_, info = env.step(np.ones(N, np.int64))
        if info:
            seen += 1
            for values in info["episode"].values():
                assert (values[~info["_episode"]] == 0).all()
    assert seen


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_of_an_episode_begins_where_the_state_was_set(backend: str) -> None:
    """Not at the beginning of the machine's clock."""
    env, fresh = make(backend, seed=1), make(backend)
    env.reset()
    fresh.set_state(env.get_state())
    for _ in range(15):
        *_, info = fresh.step(np.ones(N, np.int64))
        if info:
            assert (info["episode"]["t"] < 60.0).all()
            return
    raise AssertionError("no episode finished")


# Refusals ---------------------------------------------------------------------------------------

BAD = [
    ({"state.plaice": np.zeros(N, np.int32)}, "unknown entry 'state.plaice'.*'state.place'"),
    ({"stepps": np.zeros(N, np.int32)}, "unknown entry 'stepps'.*did you mean 'steps'"),
    ({"qqq": np.zeros(N)}, "unknown entry 'qqq' in the state; known: state.place, state.energy"),
    ({"state.place": np.zeros(N - 1, np.int32)}, r"'state.place' must have shape \(70,\).*\(69,\)"),
    ({"state.place": 3}, r"'state.place' must have shape \(70,\), got \(\)"),
    ({"obs": np.zeros((N, 2), np.float32)}, r"'obs' must have shape \(70, 3\), got \(70, 2\)"),
    ({"state.place": np.zeros(N, np.float32)}, "'state.place' must be int32, got float32"),
    ({"state.lucky": np.zeros(N, np.int32)}, "'state.lucky' must be bool, got int32"),
    ({"done": np.zeros(N, np.float32)}, "'done' must be bool, got float32"),
    ({"state.energy": np.array(["a"] * N)}, "'state.energy' must be float32, got <U1"),
    ({"steps": np.array([None] * N)}, "'steps' must be int32, got object"),
    ({"seed": np.full(N, -1)}, "'seed' must be uint64, got int64"),
    ({"steps": np.full(N, 2**40)}, "'steps'.*int32.*1099511627776"),
    ({"state.energy": np.full(N, 1e39)}, "'state.energy'.*float32.*1e\\+39"),
    ({"state.place": np.full(N, -(2**31) - 1)}, "'state.place'.*int32.*-2147483649"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("entry", "message"), BAD, ids=[m for _, m in BAD])
def test_a_refused_state_changes_nothing(backend: str, entry: dict[str, Any], message: str) -> None:
    env, twin = make(backend, seed=1), make(backend, seed=1)
    for e in (env, twin):
        e.reset()
        advance(e, 10, 0)
    before = env.get_state()
    good = {name: np.zeros_like(value) for name, value in before.items() if name not in entry}
    for state in ({**good, **entry}, entry | good):
        with pytest.raises(ValueError, match=message):
            env.set_state(state)
        assert_same_state(env.get_state(), before)
    assert_same(advance(env, 20, 1), advance(twin, 20, 1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_that_was_never_reset_needs_the_whole_state(backend: str) -> None:
    env = make(backend, seed=1)
    env.reset()
    state = env.get_state()
    fresh = make(backend)
    part = {k: v for k, v in state.items() if k not in ("episode", "done")}
    with pytest.raises(ValueError, match=r"the state lacks done, episode; .*reset\(\) first"):
        fresh.set_state(part)
    with pytest.raises(ValueError, match=r"step\(\) before reset\(\)"):
        fresh.step(np.zeros(N, np.int64))
    fresh.reset()
    fresh.set_state(part)


# Copies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copy", [True, False])
def test_what_goes_out_and_in_is_copied(backend: str, copy: bool) -> None:
    env, twin = make(backend, seed=1, copy=copy), make(backend, seed=1)
    for e in (env, twin):
        e.reset()
        advance(e, 5, 0)
    state = env.get_state()
    kept = {name: value.copy() for name, value in state.items()}
    advance(env, 5, 1)
    advance(twin, 5, 1)
    assert_same_state(state, kept)  # later steps do not reach it
    for value in state.values():
        value[...] = 1
    assert_same(advance(env, 5, 2), advance(twin, 5, 2))  # nor it them

    given = {name: value.copy() for name, value in kept.items()}
    for e in (env, twin):
        e.set_state(given)
    for value in given.values():
        value[...] = 1
    twin.set_state(kept)
    assert_same(advance(env, 20, 3), advance(twin, 20, 3))
