"""What cannot be used is refused with a sentence, and leaves no trace."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

import operant
from operant.envs import CartPole
from operant.lang import to_float

BACKENDS = ("reference", "cpu")
N = 5


class Levers(operant.Env):
    """MultiDiscrete actions with bounds of their own."""

    class State(NamedTuple):
        total: int

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = MultiDiscrete([3, 4], start=[-3, 1])
    max_episode_steps = 6

    def reset():
        return Levers.State(0)

    def step(state, action):
        return Levers.State(state.total + action[0] * action[1]), 1.0, state.total > 30

    def observe(state):
        return (to_float(state.total),)


def advance(env: operant.VecEnv, steps: int, seed: int) -> list[np.ndarray]:
    env.action_space.seed(seed)
    results: list[np.ndarray] = []
    for _ in range(steps):
        *arrays, info = env.step(env.action_space.sample())
        results += arrays
        if info:
            results += [info["_episode"], info["episode"]["r"], info["episode"]["l"]]
    return results


class Twins:
    """Two equal batches; the second never sees the bad call."""

    def __init__(self, which: Any, backend: str, **options: Any) -> None:
        options = {"max_episode_steps": 4, "seed": 1} | options
        self.env, self.twin = (operant.make(which, N, backend=backend, **options) for _ in range(2))
        for env in (self.env, self.twin):
            env.reset()
            advance(env, 6, 0)

    def assert_equal(self) -> None:
        """As if the call had not happened: the state, three episodes, and the resets after them."""
        ours, theirs = self.env.get_state(), self.twin.get_state()
        for name in ours:
            assert ours[name].tobytes() == theirs[name].tobytes(), name
        pairs = [(advance(self.env, 12, 1), advance(self.twin, 12, 1))]
        pairs.append(([self.env.reset()[0]], [self.twin.reset()[0]]))
        pairs.append((advance(self.env, 2, 2), advance(self.twin, 2, 2)))
        for one, two in pairs:
            assert len(one) == len(two)
            for a, b in zip(one, two, strict=True):
                assert a.tobytes() == b.tobytes()


# Actions ----------------------------------------------------------------------------------------

FLOATS = np.zeros((N, 1), np.float32)


def replaced(array: Any, index: Any, value: Any) -> np.ndarray:
    array = np.array(array)
    array[index] = value
    return array


BAD_ACTIONS: list[tuple[str, Any, Any, type[Exception], str]] = [
    # Shapes.
    ("short", "CartPole-v1", np.zeros(4, int), ValueError, r"shape \(5,\).*got shape \(4,\)"),
    ("long", "CartPole-v1", np.zeros(6, int), ValueError, r"shape \(5,\).*got shape \(6,\)"),
    ("column", "CartPole-v1", np.zeros((5, 1), int), ValueError, r"\(5,\).*got shape \(5, 1\)"),
    ("number", "CartPole-v1", 1, ValueError, r"shape \(5,\).*Discrete\(2\).*got shape \(\)"),
    ("empty", "CartPole-v1", [], ValueError, r"shape \(5,\).*got shape \(0,\)"),
    ("flat", "Pendulum-v1", np.zeros(5, "f"), ValueError, r"shape \(5, 1\).*Box.*shape \(5,\)"),
    ("wide", "Pendulum-v1", np.zeros((5, 2), "f"), ValueError, r"\(5, 1\).*shape \(5, 2\)"),
    ("transposed", Levers, np.ones((2, 5), int), ValueError, r"\(5, 2\).*got shape \(2, 5\)"),
    ("ragged", "CartPole-v1", [[1], [1, 2], 3, 4, 5], TypeError, r"shape \(5,\), got list"),
    # Kinds.
    ("float32", "CartPole-v1", np.zeros(5, "f"), TypeError, "must be integers, got float32"),
    ("float64", "CartPole-v1", np.zeros(5), TypeError, r"Discrete\(2\) must be integers.*float64"),
    ("floats", "CartPole-v1", [0.0, 1.0, 0.0, 1.0, 0.0], TypeError, "integers, got float64"),
    ("strings", "CartPole-v1", ["a"] * 5, TypeError, "must be integers, got <U1"),
    ("text", "CartPole-v1", "hello", ValueError, r"shape \(5,\).*got shape \(\)"),
    ("objects", "CartPole-v1", np.array([None] * 5), TypeError, "integers, got object"),
    ("none", "CartPole-v1", None, ValueError, r"shape \(5,\).*got shape \(\)"),
    ("bools", "CartPole-v1", np.zeros(5, bool), TypeError, "must be integers, got bool"),
    ("complex", "CartPole-v1", np.zeros(5, complex), TypeError, "integers, got complex128"),
    ("multi float", Levers, np.ones((5, 2)), TypeError, "must be integers, got float64"),
    ("box bools", "Pendulum-v1", FLOATS.astype(bool), TypeError, "must be floats, got bool"),
    ("box text", "Pendulum-v1", [["a"]] * 5, TypeError, "must be floats, got <U1"),
    ("box objects", "Pendulum-v1", FLOATS.astype(object), TypeError, "floats, got object"),
    ("box complex", "Pendulum-v1", FLOATS.astype(complex), TypeError, "floats, got complex128"),
    # Values.
    ("above", "CartPole-v1", replaced([0] * 5, 3, 2), ValueError, r"action 2 of environment 3"),
    ("below", "CartPole-v1", replaced([0] * 5, 4, -1), ValueError, r"action -1 of environment 4"),
    ("far", "CartPole-v1", replaced([0] * 5, 0, 2**32), ValueError, "action 4294967296 of .* 0 "),
    ("int32", "CartPole-v1", np.full(5, 7, "i"), ValueError, r"7 of environment 0.*Discrete\(2\)"),
    ("int8", "CartPole-v1", np.full(5, -7, "b"), ValueError, "action -7 of environment 0"),
    ("uint8", "CartPole-v1", np.full(5, 255, "B"), ValueError, "action 255 of environment 0"),
    (
        "uint64",
        "CartPole-v1",
        np.full(5, 2**64 - 1, np.uint64),
        ValueError,
        "action 18446744073709551615 of environment 0",
    ),
    (
        "uint64 that would wrap into range",
        Levers,
        replaced(np.ones((5, 2), np.uint64), (slice(None), 0), 2**64 - 1),
        ValueError,
        r"action \[18446744073709551615, 1\] of environment 0",
    ),
    ("strided", "CartPole-v1", np.full(10, 3)[::2], ValueError, "action 3 of environment 0"),
    ("lever 0", Levers, replaced([[-1, 1]] * 5, (2, 0), 0), ValueError, r"\[0, 1\] of .* 2 "),
    ("lever 0 low", Levers, replaced([[-1, 1]] * 5, (2, 0), -4), ValueError, r"\[-4, 1\].* 2 "),
    ("lever 1", Levers, replaced([[-1, 1]] * 5, (4, 1), 0), ValueError, r"\[-1, 0\] of .* 4 "),
    ("lever 1 high", Levers, replaced([[-1, 1]] * 5, (1, 1), 5), ValueError, r"\[-1, 5\].* 1 "),
    ("nan", "Pendulum-v1", replaced(FLOATS, 2, np.nan), ValueError, "nan.*environment 2.*finite"),
    ("inf", "Pendulum-v1", replaced(FLOATS, 1, np.inf), ValueError, "inf.*environment 1.*finite"),
    ("-inf", "Pendulum-v1", replaced(FLOATS, 4, -np.inf), ValueError, "-inf.*environment 4"),
    ("nan in float64", "Pendulum-v1", np.full((5, 1), np.nan), ValueError, "nan.*environment 0"),
    ("too large for float32", "Pendulum-v1", np.full((5, 1), 1e300), ValueError, "finite"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("which", "actions", "kind", "message"),
    [row[1:] for row in BAD_ACTIONS],
    ids=[row[0] for row in BAD_ACTIONS],
)
def test_bad_actions(
    backend: str, which: Any, actions: Any, kind: type[Exception], message: str
) -> None:
    twins = Twins(which, backend)
    for _ in range(2):
        with pytest.raises(kind, match=message) as caught:
            twins.env.step(actions)
        assert type(caught.value) is kind
    twins.assert_equal()


@pytest.mark.parametrize("backend", BACKENDS)
def test_finite_torques_outside_the_bounds_are_limited(backend: str) -> None:
    """As in Gymnasium's Pendulum."""
    twins = Twins("Pendulum-v1", backend)
    wild = np.array([[-1e30], [-2.5], [0.5], [3.0], [3e38]], np.float32)
    for _ in range(4):
        results = twins.env.step(wild)
        limited = twins.twin.step(np.clip(wild, -2.0, 2.0))
        for a, b in zip(results[:4], limited[:4], strict=True):
            assert a.tobytes() == b.tobytes()
    twins.assert_equal()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_action_of_an_environment_that_awaits_its_reset(backend: str) -> None:
    """It will not be used, but it is refused all the same."""
    twins = Twins("CartPole-v1", backend, max_episode_steps=1)
    while not twins.env.get_state()["done"].all():
        advance(twins.env, 1, 0)
        advance(twins.twin, 1, 0)
    with pytest.raises(ValueError, match="action 9 of environment 2"):
        twins.env.step(replaced([0] * 5, 2, 9))
    twins.assert_equal()


# Reset ------------------------------------------------------------------------------------------

MASK = np.array([True, False, True, False, False])
BAD_RESETS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"seed": -1}, ValueError, r"seed must be between 0 and 2\*\*64 - 1, got -1"),
    ({"seed": 2**64}, ValueError, r"between 0 and 2\*\*64 - 1, got 18446744073709551616"),
    ({"seed": 1.5}, TypeError, "seed must be an int, got float 1.5"),
    ({"seed": 1.0}, TypeError, "seed must be an int, got float 1.0"),
    ({"seed": "a"}, TypeError, "seed must be an int, got str 'a'"),
    ({"seed": b"abcde"}, TypeError, "seed must be an int, got bytes"),
    ({"seed": True}, TypeError, "seed must be an int, got bool True"),
    ({"seed": np.bool_(True)}, TypeError, "seed must be an int, got bool"),
    ({"seed": {1, 2, 3, 4, 5}}, TypeError, "seed must be an int, got set"),
    ({"seed": [1, 2, 3]}, ValueError, "one for each of 5 environments, got 3"),
    ({"seed": []}, ValueError, "one for each of 5 environments, got 0"),
    ({"seed": [1, 2, 3, 4, -5]}, ValueError, r"between 0 and 2\*\*64 - 1, got -5"),
    ({"seed": [1, 2, 3, 4, 2**64]}, ValueError, "got 18446744073709551616"),
    ({"seed": [1, 2, 3, 4, 0.5]}, TypeError, "seed must be an int, got float 0.5"),
    ({"seed": [1, 2, 3, 4, "5"]}, TypeError, "seed must be an int, got str '5'"),
    ({"seed": [1, 2, 3, 4, True]}, TypeError, "seed must be an int, got bool True"),
    ({"seed": np.linspace(0, 1, 5)}, TypeError, "seed must be an int, got float 0.0"),
    ({"seed": np.zeros((5, 2), int)}, TypeError, r"seed must be an int, got list \[0, 0\]"),
    ({"seed": np.array(0.5)}, TypeError, "seed must be an int, got float 0.5"),
    ({"seed": np.array([True] * 5)}, TypeError, "seed must be an int, got bool True"),
    ({"seed": [1, [2], 3, 4, 5]}, TypeError, r"seed must be an int, got list \[2\]"),
    ({"options": {"low": 1.0}}, ValueError, "unknown reset option 'low'.*'reset_mask'"),
    (
        {"seed": 3, "options": {"reset_mask": MASK, "hi": 1}},
        ValueError,
        "unknown reset option 'hi'.*'reset_mask'",
    ),
    ({"options": {"reset_mask": MASK[:4]}}, ValueError, r"shape \(5,\), got \(4,\)"),
    ({"options": {"reset_mask": MASK[None]}}, ValueError, r"shape \(5,\), got \(1, 5\)"),
    ({"options": {"reset_mask": MASK.astype(int)}}, TypeError, "must be a bool array, got"),
    ({"options": {"reset_mask": MASK.tolist()}}, TypeError, r"bool array, got \[True, False"),
    ({"options": {"reset_mask": None}}, TypeError, "must be a bool array, got None"),
    ({"options": {"reset_mask": MASK & False}}, ValueError, "selects no environment"),
    ({"seed": 4, "options": {"reset_mask": MASK & False}}, ValueError, "selects no environment"),
    ({"seed": -4, "options": {"reset_mask": MASK}}, ValueError, "got -4"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("arguments", "kind", "message"), BAD_RESETS, ids=[str(row[0]) for row in BAD_RESETS]
)
def test_bad_resets(
    backend: str, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    twins = Twins("CartPole-v1", backend)
    with pytest.raises(kind, match=message) as caught:
        twins.env.reset(**arguments)
    assert type(caught.value) is kind
    twins.assert_equal()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", [-1, "a", [1, 2, 3, 4, -5], [1]])
def test_a_refused_first_reset_leaves_the_seed_of_make_in_force(backend: str, seed: Any) -> None:
    env, twin = (operant.make("CartPole-v1", N, backend=backend, seed=1) for _ in range(2))
    with pytest.raises((TypeError, ValueError), match="seed"):
        env.reset(seed=seed)
    with pytest.raises(ValueError, match=r"step\(\) before reset\(\)"):
        env.step(np.zeros(N, np.int64))
    assert env.reset()[0].tobytes() == twin.reset()[0].tobytes()


# Too early, too late ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_step_before_reset(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", N, backend=backend, seed=1) for _ in range(2))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"step\(\) before reset\(\): call reset\(\) first"):
            env.step(np.zeros(N, np.int64))
    with pytest.raises(ValueError, match=r"nothing to render yet: call reset\(\) first"):
        env.render_one(0)
    assert env.reset()[0].tobytes() == twin.reset()[0].tobytes()
    assert env.step(np.zeros(N, np.int64))[0].tobytes() == (
        twin.step(np.zeros(N, np.int64))[0].tobytes()
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("used", [True, False])
def test_nothing_works_after_close(backend: str, used: bool) -> None:
    env = operant.make("CartPole-v1", N, backend=backend, seed=1, workers=2)
    if used:
        env.reset()
    state = env.get_state()
    env.close()
    env.close()
    calls: list[Any] = [
        lambda: env.step(np.zeros(N, np.int64)),
        env.reset,
        lambda: env.reset(seed=1),
        env.get_state,
        lambda: env.set_state(state),
        lambda: env.render_one(0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="this environment is closed; make a new one"):
            call()


# Making -----------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_envs": 0}, ValueError, "num_envs must be between 1 and .*, got 0"),
    ({"num_envs": -1}, ValueError, "num_envs must be between 1 and .*, got -1"),
    ({"num_envs": 2**40}, ValueError, "num_envs must be between 1 and .*, got 1099511627776"),
    ({"num_envs": 1.5}, TypeError, "num_envs must be an int, got float 1.5"),
    ({"num_envs": 2.0}, TypeError, "num_envs must be an int, got float 2.0"),
    ({"num_envs": True}, TypeError, "num_envs must be an int, got bool True"),
    ({"num_envs": "4"}, TypeError, "num_envs must be an int, got str '4'"),
    ({"num_envs": None}, TypeError, "num_envs must be an int, got NoneType None"),
    ({"workers": 0}, ValueError, "workers must be between 1 and .*, got 0"),
    ({"workers": -1}, ValueError, "workers must be between 1 and .*, got -1"),
    ({"workers": 10**6}, ValueError, "workers must be between 1 and .*, got 1000000"),
    ({"workers": "2"}, ValueError, "workers must be an int or 'auto', got '2'"),
    ({"workers": 2.0}, TypeError, "workers must be an int, got float 2.0"),
    ({"workers": True}, TypeError, "workers must be an int, got bool True"),
    ({"workers": None}, TypeError, "workers must be an int, got NoneType None"),
    ({"seed": -1}, ValueError, r"seed must be between 0 and 2\*\*64 - 1, got -1"),
    ({"seed": 2**64}, ValueError, r"seed must be between 0 and 2\*\*64 - 1, got 1844674407370"),
    ({"seed": 1.5}, TypeError, "seed must be an int, got float 1.5"),
    ({"seed": "a"}, TypeError, "seed must be an int, got str 'a'"),
    ({"seed": True}, TypeError, "seed must be an int, got bool True"),
    ({"seed": [1]}, TypeError, r"seed must be an int, got list \[1\]"),
    ({"backend": "gpu9"}, ValueError, "backend must be .*'reference'.*'cpu'.*, got 'gpu9'"),
    ({"backend": None}, ValueError, "backend must be .*, got None"),
    ({"backend": "CPU"}, ValueError, "backend must be .*'cpu'.*, got 'CPU'"),
    (
        {"autoreset_mode": "Sometimes"},
        ValueError,
        "autoreset_mode must be one of 'NextStep', 'SameStep', 'Disabled', got 'Sometimes'",
    ),
    ({"autoreset_mode": None}, ValueError, "autoreset_mode must be one of .*, got None"),
    ({"autoreset_mode": True}, ValueError, "autoreset_mode must be one of .*, got True"),
    (
        {"render_mode": "human"},
        ValueError,
        "'rgb_array' or None, got 'human'; to watch: `operant",
    ),
    ({"render_mode": True}, ValueError, "render_mode must be 'rgb_array' or None, got True"),
    ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be between 1 and .*, got 0"),
    ({"max_episode_steps": -5}, ValueError, "max_episode_steps must be between 1 .*, got -5"),
    ({"max_episode_steps": 2**31}, ValueError, "max_episode_steps must be .*, got 2147483648"),
    ({"max_episode_steps": 1.5}, TypeError, "max_episode_steps must be an int, got float 1.5"),
    ({"max_episode_steps": "9"}, TypeError, "max_episode_steps must be an int, got str '9'"),
    ({"max_episode_steps": True}, TypeError, "max_episode_steps must be an int, got bool True"),
    ({"n_envs": 2}, TypeError, "CartPole has no parameter 'n_envs'; write num_envs=..."),
    ({"num_workers": 2}, TypeError, "has no parameter 'num_workers'; write workers=..."),
    ({"max_steps": 9}, TypeError, "no parameter 'max_steps'; write max_episode_steps=..."),
    ({"gravty": 1.0}, TypeError, "no parameter 'gravty'; did you mean 'gravity'"),
    ({"qqqq": 1.0}, TypeError, "CartPole has no parameter 'qqqq'.*it has: gravity, masscart"),
    ({"gravity": "strong"}, TypeError, "'gravity' of CartPole must be float, got 'strong'"),
    ({"gravity": True}, TypeError, "'gravity' of CartPole must be float, got True"),
    ({"gravity": None}, TypeError, "'gravity' of CartPole must be float, got None"),
    ({"gravity": float("nan")}, ValueError, "'gravity' of CartPole must be .*finite.*, got nan"),
    ({"gravity": float("inf")}, ValueError, "'gravity' of CartPole must be .*finite.*, got inf"),
    ({"sutton_barto_reward": 1}, TypeError, "'sutton_barto_reward' of CartPole must be bool"),
    ({"kinematics_integrator": 3}, TypeError, "'kinematics_integrator' of CartPole must be str"),
]


@pytest.mark.parametrize(
    ("options", "kind", "message"), BAD_OPTIONS, ids=[str(row[0]) for row in BAD_OPTIONS]
)
def test_bad_options(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    threads = threading.active_count()
    for env in ("CartPole-v1", CartPole):
        with pytest.raises(kind, match=message) as caught:
            operant.make(env, **{"num_envs": 130, "workers": 2, **options})
        assert type(caught.value) is kind
    if "num_envs" not in options and "workers" not in options:
        with pytest.raises(kind, match=message):
            operant.envs.CartPoleVecEnv(130, 2, **options)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", "unknown environment 'CartPol-v1'; did you mean CartPole-v1"),
        ("cartpole-v1", "unknown environment 'cartpole-v1'; did you mean CartPole-v1"),
        ("CartPole-v2", "unknown environment 'CartPole-v2'; did you mean CartPole-v1"),
        ("operant/Pendulm", "unknown environment 'operant/Pendulm'; did you mean Pendulum-v1"),
        ("", "unknown environment ''; there are Acrobot-v1, CartPole-v1, "),
    ],
)
def test_unknown_ids_name_the_nearest(env_id: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operant.make(env_id)


@pytest.mark.parametrize("env", [None, 3, CartPole.State, object, ["CartPole-v1"]])
def test_what_is_no_environment(env: Any) -> None:
    with pytest.raises(TypeError, match=r"env must be an id, a subclass of operant\.Env or a "):
        operant.make(env)


def test_rules_have_no_instances() -> None:
    with pytest.raises(TypeError, match=r"run it with operant\.make\(CartPole"):
        CartPole()


def test_numpy_integers_are_integers() -> None:
    env = operant.make(
        "CartPole-v1",
        np.int64(3),
        backend="reference",
        workers=np.int32(1),
        seed=np.uint8(7),
        max_episode_steps=np.int16(9),
        gravity=np.float32(5.0),
    )
    twin = operant.make("CartPole-v1", 3, backend="reference", seed=7, gravity=5)
    assert env.reset()[0].tobytes() == twin.reset()[0].tobytes()
    assert env.max_episode_steps == 9
    assert env.rules.params == twin.rules.params
