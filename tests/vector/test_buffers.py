"""What `step` hands out: whose memory it is, its shape and dtype, and what it costs."""

from __future__ import annotations

import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces

import operant
from operant.compiler.philox import uniforms
from operant.lang import clip, minimum, randint, to_float, to_int, where

BACKENDS = ("reference", "cpu")
N = 65


def advance(env: operant.VecEnv, steps: int) -> None:
    for _ in range(steps):
        env.step(env.action_space.sample())


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [array for part in value.values() for array in arrays_in(part)]
    return [value]


# Whose memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_copies_are_independent_of_later_steps(backend: str, mode: str) -> None:
    env = operant.make("CartPole-v1", N, backend=backend, autoreset_mode=mode, max_episode_steps=5)
    env.action_space.seed(0)
    results = [env.reset(seed=0)[0]]
    for _ in range(12):
        *arrays, info = env.step(env.action_space.sample())
        results += arrays + arrays_in(info)
    kept = [array.copy() for array in results]
    for array in results:
        assert array.flags.owndata
    advance(env, 12)
    env.reset(seed=1)
    for array, before in zip(results, kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writing_to_a_copy_changes_nothing(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", N, backend=backend, seed=3) for _ in range(2))
    for e in (env, twin):
        e.reset()
        e.action_space.seed(0)
    for _ in range(40):
        results, others = (e.step(e.action_space.sample()) for e in (env, twin))
        for a, b in zip(results[:4], others[:4], strict=True):
            assert a.tobytes() == b.tobytes()
        for array in (*results[:4], *arrays_in(results[4])):
            array[...] = 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_views_are_the_same_memory_in_every_step(backend: str, mode: str) -> None:
    env = operant.make(
        "CartPole-v1",
        N,
        backend=backend,
        autoreset_mode=mode,
        copy=False,
        max_episode_steps=5,
    )
    env.action_space.seed(0)
    first_obs, _ = env.reset(seed=0)
    addresses = set()
    infos: dict[int, set[int]] = {}
    for _ in range(12):
        *arrays, info = env.step(env.action_space.sample())
        addresses.add(tuple(array.ctypes.data for array in arrays))
        for k, array in enumerate(arrays_in(info)):
            infos.setdefault(k, set()).add(array.ctypes.data)
        for array in arrays:
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert not array.flags.owndata
    assert len(addresses) == 1
    assert first_obs.ctypes.data in addresses.pop()
    assert len(infos) == (4 if mode == "NextStep" else 11)
    assert all(len(found) == 1 for found in infos.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_copies_hold_the_same_numbers(backend: str) -> None:
    views, copies = (
        operant.make(
            "CartPole-v1", N, backend=backend, seed=3, copy=copy, autoreset_mode="SameStep"
        )
        for copy in (False, True)
    )
    views.reset()
    copies.reset()
    views.action_space.seed(0)
    reports = 0
    for _ in range(40):
        actions = views.action_space.sample()
        *arrays, info = views.step(actions)
        *copied, copied_info = copies.step(actions)
        assert list(info) == list(copied_info)
        if info:
            reports += 1
            info["episode"].pop("t")
            copied_info["episode"].pop("t")
            arrays += arrays_in(info)
            copied += arrays_in(copied_info)
        for a, b in zip(arrays, copied, strict=True):
            np.testing.assert_array_equal(a, b)
    assert reports > 5


SHARE = {
    "as_tensor": torch.as_tensor,
    "from_numpy": torch.from_numpy,
    "torch.from_dlpack": torch.from_dlpack,
    "np.from_dlpack": np.from_dlpack,
}


def address(array: Any) -> int:
    return int(array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", list(SHARE))
def test_tensors_share_memory_with_the_views(backend: str, how: str) -> None:
    """And so they show the next step without being made again."""
    env = operant.make("CartPole-v1", N, backend=backend, copy=False)
    env.action_space.seed(0)
    env.reset(seed=0)
    arrays = env.step(env.action_space.sample())[:4]
    shared = [SHARE[how](array) for array in arrays]
    for one, two in zip(shared, arrays, strict=True):
        assert address(one) == two.ctypes.data
        assert tuple(one.shape) == two.shape
    before = shared[0].tolist()
    for _ in range(30):
        results = env.step(env.action_space.sample())[:4]
    for one, two in zip(shared, results, strict=True):
        assert one.tolist() == two.tolist()
    assert shared[0].tolist() != before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_outlives_the_environment(backend: str) -> None:
    env = operant.make("CartPole-v1", N, backend=backend, copy=False)
    obs, _ = env.reset(seed=0)
    kept = obs.copy()
    env.close()
    del env
    np.testing.assert_array_equal(obs, kept)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_steps_allocate_nothing(workers: int, mode: str) -> None:
    """At 10,000 environments one copied array of flags alone would be 10,000 bytes."""
    env = operant.make(
        "CartPole-v1",
        10_000,
        backend="cpu",
        copy=False,
        workers=workers,
        autoreset_mode=mode,
    )
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, 10_000) for _ in range(4)]
    for k in range(50):
        env.step(actions[k % 4])
    episodes = 0
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for k in range(1000):
            episodes += bool(env.step(actions[k % 4])[4])
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 8_000
    assert after - before < 4_000
    assert episodes > 900
    env.close()


# Shapes and dtypes ------------------------------------------------------------------------------


class Corridor(operant.Env):
    """Discrete observations; actions that do not begin at zero; int, bool and float state."""

    class State(NamedTuple):
        cell: int
        awake: bool
        charge: float

    observation_space = spaces.Discrete(9, start=-4)
    action_space = spaces.Discrete(3, start=4)
    max_episode_steps = 20

    def reset(random):
        return Corridor.State(randint(random[0], 9) - 4, random[1] < 0.5, 1.0)

    def step(state, action):
        cell = state.cell + where(state.awake, action - 5, 0)
        over = (cell > 4) | (cell < -4)
        cell = clip(cell, -4, 4)
        return Corridor.State(cell, (action != 5) | state.awake, state.charge - 0.125), 1, over

    def observe(state):
        return state.cell


class Grid(operant.Env):
    """MultiDiscrete observations and actions, six random numbers in reset and step."""

    class State(NamedTuple):
        row: int
        column: int
        noise: float

    observation_space = spaces.MultiDiscrete([5, 7, 10])
    action_space = spaces.MultiDiscrete([3, 2], start=[-1, 0])
    max_episode_steps = 15
    random_numbers = 6

    def reset(random):
        return Grid.State(randint(random[4], 5), randint(random[5], 7), random[0])

    def step(state, action, random):
        row = clip(state.row + action[0], 0, 4)
        column = minimum(state.column + action[1], 6)
        after = Grid.State(row, column, random[5])
        return after, to_float(row) - to_float(column), random[4] < 0.125

    def observe(state):
        return state.row, state.column, to_int(state.noise * 10.0)


class Switches(operant.Env):
    """MultiBinary actions; an observation of two dimensions."""

    class State(NamedTuple):
        a: bool
        b: bool
        c: bool
        flips: int

    observation_space = spaces.Box(-1.0, 100.0, (2, 2), np.float32)
    action_space = spaces.MultiBinary(3)
    max_episode_steps = 10

    def reset(random):
        return Switches.State(random[0] < 0.5, random[1] < 0.5, random[2] < 0.5, 0)

    def step(state, action):
        a, b, c = (s ^ (k == 1) for s, k in zip(state[:3], action, strict=True))
        flips = state.flips + action[0] + action[1] + action[2]
        return Switches.State(a, b, c, flips), to_float(flips), a & b & c

    def observe(state):
        return [to_float(value) for value in state]


class Thrusters(operant.Env):
    """A Box of two dimensions as the action, one number as the observation."""

    class State(NamedTuple):
        total: float

    observation_space = spaces.Box(-np.inf, np.inf, (), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2, 2), np.float32)
    max_episode_steps = 10
    random_numbers = 0

    def reset():
        return Thrusters.State(0.5)

    def step(state, action):
        a, b, c, d = action
        return Thrusters.State(state.total + a + 2.0 * b + 4.0 * c + 8.0 * d), a, False

    def observe(state):
        return state.total


SHAPES: list[tuple[Any, tuple[int, ...], Any, tuple[int, ...], Any]] = [
    (Corridor, (), np.int64, (), np.int64),
    (Grid, (3,), np.int64, (2,), np.int64),
    (Switches, (2, 2), np.float32, (3,), np.int8),
    (Thrusters, (), np.float32, (2, 2), np.float32),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(("which", "obs_shape", "obs_dtype", "shape", "dtype"), SHAPES)
def test_shapes_and_dtypes(
    backend: str, copy: bool, which: Any, obs_shape: Any, obs_dtype: Any, shape: Any, dtype: Any
) -> None:
    env = operant.make(which, N, backend=backend, copy=copy, autoreset_mode="SameStep")
    env.action_space.seed(0)
    assert env.single_observation_space == env.rules.observation.space
    assert env.observation_space.shape == (N, *obs_shape)
    assert env.action_space.shape == (N, *shape)
    obs, _ = env.reset(seed=1)
    assert env.observation_space.contains(obs)
    episodes = 0
    for _ in range(25):
        actions = env.action_space.sample()
        assert actions.dtype == dtype
        obs, reward, terminated, truncated, info = env.step(actions)
        assert (obs.shape, obs.dtype) == ((N, *obs_shape), obs_dtype)
        assert env.observation_space.contains(obs)
        assert (reward.shape, reward.dtype) == ((N,), np.float32)
        assert (terminated.shape, terminated.dtype) == ((N,), np.bool_)
        assert (truncated.shape, truncated.dtype) == ((N,), np.bool_)
        if info:
            episodes += int(info["_episode"].sum())
            assert (info["final_obs"].shape, info["final_obs"].dtype) == (obs.shape, obs.dtype)
            report = info["episode"]
            assert (report["r"].shape, report["r"].dtype) == ((N,), np.float32)
            assert (report["l"].shape, report["l"].dtype) == ((N,), np.int32)
            assert (report["t"].shape, report["t"].dtype) == ((N,), np.float32)
        for array in (obs, reward, terminated, truncated):
            assert array.flags.c_contiguous
            assert array.flags.writeable
    assert episodes >= N


@pytest.mark.parametrize("which", [row[0] for row in SHAPES])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_backends_agree_on_every_kind_of_space(which: Any, mode: str) -> None:
    """These environments are exact in float32: the reference is met to the bit."""
    envs = [
        operant.make(which, N, backend=backend, seed=4, autoreset_mode=mode) for backend in BACKENDS
    ]
    reference, cpu = envs
    assert reference.reset()[0].tobytes() == cpu.reset()[0].tobytes()
    rng = np.random.default_rng(0)
    reference.action_space.seed(0)
    for _ in range(60):
        actions = reference.action_space.sample()
        if actions.dtype == np.float32:
            actions = rng.integers(-4, 5, actions.shape).astype(np.float32) / 4
        for a, b in zip(reference.step(actions)[:4], cpu.step(actions)[:4], strict=True):
            assert a.tobytes() == b.tobytes()
    for name, value in reference.get_state().items():
        assert value.tobytes() == cpu.get_state()[name].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_component_of_an_action_reaches_its_place(backend: str) -> None:
    env = operant.make(Thrusters, 3, backend=backend, seed=0)
    env.reset()
    actions = np.arange(12, dtype=np.float32).reshape(3, 2, 2) / 8
    obs, reward, *_ = env.step(actions)
    np.testing.assert_array_equal(obs, 0.5 + actions.reshape(3, 4) @ [1, 2, 4, 8])
    np.testing.assert_array_equal(reward, actions[:, 0, 0])

    grid = operant.make(Grid, 4, backend=backend, seed=0)
    grid.reset()
    grid.set_state({"state.row": np.full(4, 2), "state.column": np.full(4, 3)})
    obs, *_ = grid.step(np.array([[-1, 0], [0, 1], [1, 0], [1, 1]]))
    assert obs[:, :2].tolist() == [[1, 3], [2, 4], [3, 3], [3, 4]]

    switches = operant.make(Switches, 3, backend=backend, seed=0)
    switches.reset()
    switches.set_state({f"state.{name}": np.zeros(3, np.bool_) for name in "abc"})
    obs, *_ = switches.step(np.eye(3, dtype=np.int8))
    assert obs.reshape(3, 4)[:, :3].tolist() == np.eye(3).tolist()

    corridor = operant.make(Corridor, 3, backend=backend, seed=0)
    corridor.reset()
    corridor.set_state({"state.cell": np.array([-1, 0, 1]), "state.awake": np.ones(3, np.bool_)})
    obs, *_ = corridor.step(np.array([4, 5, 6]))
    assert obs.tolist() == [-2, 0, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_fifth_and_sixth_random_number_are_the_second_block(backend: str) -> None:
    env = operant.make(Grid, N, backend=backend)
    obs, _ = env.reset(seed=6)
    zeros, index = np.zeros(N, np.uint32), np.arange(N)
    draws = uniforms(np.full(N, 6, np.uint64), index, zeros, zeros, 6)
    np.testing.assert_array_equal(obs[:, 0], np.floor(draws[4] * 5))
    np.testing.assert_array_equal(obs[:, 1], np.floor(draws[5] * 7))
    np.testing.assert_array_equal(env.get_state()["state.noise"], draws[0])
    _, _, terminated, _, _ = env.step(np.zeros((N, 2), np.int64))
    draws = uniforms(np.full(N, 6, np.uint64), index, zeros, zeros + 1, 6)
    np.testing.assert_array_equal(env.get_state()["state.noise"], draws[5])
    np.testing.assert_array_equal(terminated, draws[4] < 0.125)


# What may be passed as actions ------------------------------------------------------------------

SAME_ACTIONS: list[Any] = [
    lambda a: a.tolist(),
    lambda a: tuple(a.tolist()),
    lambda a: a.astype(np.int8),
    lambda a: a.astype(np.int32),
    lambda a: a.astype(np.uint8),
    lambda a: a.astype(np.uint32),
    lambda a: a.astype(np.uint64),
    lambda a: a.astype(">i8"),
    lambda a: a.astype(">i4"),
    lambda a: np.repeat(a, 2)[::2],
    lambda a: a[::-1].copy()[::-1],
    torch.from_numpy,
    lambda a: torch.from_numpy(a).int(),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("convert", SAME_ACTIONS, ids=range(len(SAME_ACTIONS)))
def test_integers_of_any_kind_are_the_same_actions(backend: str, convert: Any) -> None:
    env, twin = (operant.make("CartPole-v1", N, backend=backend, seed=1) for _ in range(2))
    env.reset()
    twin.reset()
    rng = np.random.default_rng(0)
    for _ in range(3):
        actions = rng.integers(0, 2, N)
        assert env.step(convert(actions))[0].tobytes() == twin.step(actions)[0].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a.astype(np.float64),
        lambda a: a.astype(np.float16),
        lambda a: a.astype(">f4"),
        lambda a: a.tolist(),
        lambda a: np.asfortranarray(np.repeat(a, 2, axis=1))[:, :1],
        torch.from_numpy,
    ],
    ids=range(6),
)
def test_floats_of_any_kind_are_the_same_actions(backend: str, convert: Any) -> None:
    env, twin = (operant.make("Pendulum-v1", N, backend=backend, seed=1) for _ in range(2))
    env.reset()
    twin.reset()
    rng = np.random.default_rng(0)
    for _ in range(3):
        actions = (rng.integers(-8, 9, (N, 1)) / 4).astype(np.float32)
        assert env.step(convert(actions))[0].tobytes() == twin.step(actions)[0].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_read_only_actions_are_taken_and_actions_are_never_written(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", N, backend=backend, seed=1) for _ in range(2))
    env.reset()
    twin.reset()
    actions = np.random.default_rng(0).integers(0, 2, N)
    locked = actions.copy()
    locked.flags.writeable = False
    for _ in range(20):
        assert env.step(locked)[0].tobytes() == twin.step(actions)[0].tobytes()
    np.testing.assert_array_equal(actions, locked)


@pytest.mark.parametrize("backend", BACKENDS)
def test_multi_binary_actions_are_zeros_and_ones(backend: str) -> None:
    env = operant.make(Switches, 3, backend=backend, seed=1)
    env.reset()
    before = env.get_state()
    for wrong in (2, -1):
        actions = np.zeros((3, 3), np.int8)
        actions[1, 2] = wrong
        with pytest.raises(ValueError, match=rf"action \[0, 0, {wrong}\] of environment 1"):
            env.step(actions)
    with pytest.raises(TypeError, match=r"MultiBinary\(3\) must be integers, got float64"):
        env.step(np.ones((3, 3)))
    for name, value in env.get_state().items():
        np.testing.assert_array_equal(value, before[name])
    env.step(np.ones((3, 3), np.int8))
