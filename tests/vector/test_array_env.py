"""Environments with a state of arrays behind the vector API, on both backends of the host."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.backends.reference.stream import Stream
from operant.check.env_check import check_env
from operant.compiler.compile_error import FallbackWarning
from operant.compiler.philox import uniforms
from operant.lang import (
    Arrays,
    LanguageError,
    boolean,
    float32,
    int32,
    sin,
    to_float,
    to_int,
    uint8,
)
from operant.lang.arrays import Cells
from operant.lang.integers import Int64
from operant.models import PPO
from operant.toolchain.errors import CompileError
from operant.vector.env import Steps, VecEnv

BACKENDS = ("reference", "cpu")
MODES = ("NextStep", "SameStep", "Disabled")
SIZE = 5
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
seen: list[Any] = []


def drop(state: Any, random: Any) -> None:
    y = random.integers(SIZE)
    x = random.integers(SIZE)
    while state.board[y, x] != 0:
        y = random.integers(SIZE)
        x = random.integers(SIZE)
    state.board[y, x] = 2


class Grid(operant.Env):
    """Walk to the food; energy runs out."""

    observation_space = Box(-1, 3, (SIZE * SIZE + 1,), np.float32)
    action_space = Discrete(4)
    max_episode_steps = 12
    render_size = (30, 20)

    class Params(NamedTuple):
        cost: float = 0.05

    class State(Arrays):
        board = uint8[SIZE, SIZE]
        head = int32[2]
        energy = float32[1]

    def reset(state: Any, random: Any) -> None:
        state.head[0], state.head[1] = random.integers(SIZE), random.integers(SIZE)
        state.board[state.head[0], state.head[1]] = 1
        state.energy[0] = random.uniform(0.5, 1.0) + 0.01 * random.normal()
        drop(state, random)

    def step(state: Any, action: Any, random: Any, params: Any) -> Any:
        y = state.head[0] + MOVES[action, 0]
        x = state.head[1] + MOVES[action, 1]
        state.energy[0] -= params.cost * (1.0 + sin(state.energy[0] * 3.0))
        if y < 0 or y >= SIZE or x < 0 or x >= SIZE:
            return -1.0, random.chance(0.7)
        reward = 0.0
        if state.board[y, x] == 2:
            reward = 1.0 + 0.1 * to_float(y)
            state.energy[0] = min(state.energy[0] + 0.3, 1)
            drop(state, random)
        state.board[state.head[0], state.head[1]] = 0
        state.head[0] = y
        state.head[1] = x
        state.board[y, x] = 1
        return reward, state.energy[0] < 0.0

    def observe(state: Any, obs: Any) -> None:
        for y in range(SIZE):
            for x in range(SIZE):
                obs[y * SIZE + x] = state.board[y, x]
        obs[SIZE * SIZE] = state.energy[0]

    def action_mask(state: Any, mask: Any) -> None:
        for k in range(4):
            y = state.head[0] + MOVES[k, 0]
            mask[k] = 0 <= y < SIZE

    def render(state: Any, canvas: Any, params: Any) -> None:
        seen.append((state, params))
        canvas.circle(15.0, 10.0, 5.0, "red")


class Knobs(operant.Env):
    """MultiDiscrete actions, Discrete observations, neither from 0; `reach` leads astray."""

    observation_space = Discrete(60, start=-3)
    action_space = MultiDiscrete([2, 3], start=[1, -1])

    class Params(NamedTuple):
        reach: float = 1.0

    class State(Arrays):
        before = int32[4]
        table = int32[3]
        drawn = float32[9]
        after = boolean[4]

    def reset(state: Any, random: Any) -> None:
        for k in range(9):
            state.drawn[k] = random.uniform()

    def step(state: Any, action: Any, random: Any, params: Any) -> Any:
        turn, push = action
        for k in range(9):
            state.drawn[k] = random.uniform()
        place = to_int(params.reach * turn)
        state.table[place] = state.table[place] + push + 2
        return 0.5 * push, state.table[1] + state.table[2] > 30

    def observe(state: Any, obs: Any) -> None:
        obs[0] = state.table[1] - 3 + state.table[2]


class Push(operant.Env):
    """Box actions of two components, MultiDiscrete observations; all kinds of draws."""

    observation_space = MultiDiscrete([50, 3])
    action_space = Box(-1.0, 1.0, (2,))
    max_episode_steps = 4

    class State(Arrays):
        x = float32[2]
        drawn = float32[6]

    def reset(state: Any) -> None:
        state.x[:] = 0.5

    def step(state: Any, action: Any, random: Any) -> Any:
        state.x[0] += 0.3 * action[0]
        state.x[1] *= action[1]
        state.drawn[0] = random.uniform(2.0)
        state.drawn[1] = random.uniform(-1.0, 3.0)
        state.drawn[2] = random.integers(1000)
        state.drawn[3] = random.integers(-5, 6)
        state.drawn[4] = to_float(random.chance(0.5))
        state.drawn[5] = random.normal()
        return state.x[0] - state.x[1], state.x[0] > 1.0

    def observe(state: Any, obs: Any) -> None:
        obs[0] = to_int(max(state.x[0] * 10.0, 0.0))
        obs[1] = 1


def actions_for(batch: Any, steps: int, seed: int = 0) -> np.ndarray:
    """Random actions, ``[steps, num_envs, ...]``."""
    layout, random = batch.rules.action, np.random.default_rng(seed)
    shape = (steps, batch.num_envs, *layout.shape)
    if layout.dtype == "float":
        return random.uniform(-1, 1, shape).astype(np.float32)
    return random.integers(*[np.reshape(v, layout.shape) for v in (layout.low, layout.high)], shape)


def made(env: Any, num_envs: int, backend: str, **options: Any) -> VecEnv:
    return VecEnv(env, num_envs, backend=backend, **({"seed": 3} | options))


def same_states(a: VecEnv, b: VecEnv, but: tuple[str, ...] = ()) -> None:
    first, second = a.get_state(), b.get_state()
    assert first.keys() == second.keys()
    for key in first.keys() - set(but):
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)


# Backends, modes and workers ----------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env", [Grid, Knobs, Push])
def test_backends_agree_to_the_bit(env: Any, mode: str) -> None:
    a, b = (made(env, 7, backend, autoreset_mode=mode) for backend in BACKENDS)
    np.testing.assert_array_equal(a.reset()[0], b.reset()[0])
    ended = 0
    for actions in actions_for(a, 40):
        (*ours, info), (*theirs, other) = a.step(actions), b.step(actions)
        for mine, yours in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, yours)
            assert mine.dtype == yours.dtype
        assert info.keys() == other.keys()
        done = ours[2] | ours[3]
        ended += int(done.sum())
        if "final_obs" in info:
            np.testing.assert_array_equal(info["final_obs"][done], other["final_obs"][done])
        if info:
            for key in ("r", "l"):
                np.testing.assert_array_equal(info["episode"][key], other["episode"][key])
        if a.action_masks() is not None:
            np.testing.assert_array_equal(a.action_masks(), b.action_masks())
        same_states(a, b)
        if mode == "Disabled" and done.any():
            for batch in (a, b):
                batch.reset(options={"reset_mask": done})
    assert ended > 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_modes_tell_the_same_first_episodes(backend: str) -> None:
    batches = {mode: made(Grid, 30, backend, autoreset_mode=mode) for mode in MODES}
    for batch in batches.values():
        batch.reset()
    running = np.ones(30, np.bool_)
    ends = [0, 0]
    for actions in actions_for(batches["NextStep"], 13):
        results = {mode: batch.step(actions) for mode, batch in batches.items()}
        obs, reward, terminated, truncated, _ = results["NextStep"]
        for mode in MODES[1:]:
            last, *others, info = results[mode]
            if "final_obs" in info:
                done = info["_final_obs"][:, None]
                last = np.where(done, info["final_obs"], last)
            for mine, yours in zip(
                (last, *others), (obs, reward, terminated, truncated), strict=True
            ):
                np.testing.assert_array_equal(mine[running], yours[running])
        ends[0] += int((terminated & running).sum())
        ends[1] += int((truncated & running).sum())
        running &= ~(terminated | truncated)
        done = results["Disabled"][2] | results["Disabled"][3]
        if done.any():
            batches["Disabled"].reset(options={"reset_mask": done})
    assert not running.any()  # max_episode_steps
    assert min(ends) > 0


@pytest.mark.parametrize("num_envs", [1, 5, 64, 130])
def test_workers_change_no_bit(num_envs: int) -> None:
    batches = [made(Grid, num_envs, "cpu", workers=w, autoreset_mode="SameStep") for w in (1, 2, 3)]
    for batch in batches:
        batch.reset()
    for actions in actions_for(batches[0], 25):
        for batch in batches:
            batch.step(actions)
        for batch in batches[1:]:
            same_states(batches[0], batch)
    for batch in batches:
        batch.close()


def test_the_size_of_a_batch_changes_nothing_and_a_seed_all() -> None:
    small, large, other = made(Grid, 3, "cpu"), made(Grid, 70, "cpu"), made(Grid, 3, "cpu", seed=4)
    first = [batch.reset()[0][:3] for batch in (small, large, other)]
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != first[2]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_max_episode_steps(backend: str) -> None:
    for options, limit in (({}, 12), ({"max_episode_steps": 3}, 3)):
        batch = made(Grid, 20, backend, cost=0.0, autoreset_mode="SameStep", **options)
        batch.reset()
        lengths = []
        for actions in actions_for(batch, 26):
            *_, truncated, info = batch.step(actions)
            if info:
                lengths += info["episode"]["l"][info["_episode"]].tolist()
                np.testing.assert_array_equal(info["episode"]["l"][truncated], limit)
        assert max(lengths) == limit


def test_float_parameters_need_no_compiler() -> None:
    from operant.backends.cpu.kernels import load_kernels

    cheap, dear = (made(Grid, 4, "cpu", cost=cost) for cost in (0.01, 0.2))
    assert load_kernels(cheap.rules) is load_kernels(dear.rules)
    for batch in (cheap, dear):
        batch.reset()
        batch.step(np.zeros(4, np.int32))
    assert (cheap.get_state()["state.energy"] > dear.get_state()["state.energy"]).all()


# States -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_goes_on_elsewhere(backend: str) -> None:
    other = BACKENDS[1 - BACKENDS.index(backend)]
    batch, twin, alike = (
        made(Grid, 6, backend),
        made(Grid, 6, other, seed=9),
        made(Grid, 6, backend),
    )
    batch.reset()
    for actions in actions_for(batch, 9):
        batch.step(actions)
    state = batch.get_state()
    assert state["state.board"].shape == (6, SIZE, SIZE)
    assert state["state.board"].dtype == np.uint8
    for there in (twin, alike):
        np.testing.assert_array_equal(there.set_state(state), state["obs"])
        same_states(batch, there)
        np.testing.assert_array_equal(there.action_masks(), batch.action_masks())
    for actions in actions_for(batch, 20, seed=1):
        for there in (batch, twin, alike):
            there.step(actions)
        same_states(batch, twin)
        same_states(batch, alike)
    state["state.board"][:] = 9  # a copy
    assert (batch.get_state()["state.board"] <= 2).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_the_state(backend: str) -> None:
    batch = made(Grid, 3, backend)
    batch.reset()
    head = np.array([[0, 0], [2, 2], [4, 4]], np.int32)
    obs = batch.set_state({"state.head": head, "state.energy": np.full((3, 1), 0.25, np.float32)})
    np.testing.assert_array_equal(obs[:, -1], 0.25)
    expected = [[True, True, True, False], [True] * 4, [True, False, True, True]]
    np.testing.assert_array_equal(batch.action_masks(), expected)
    with pytest.raises(ValueError, match="head"):
        batch.set_state({"state.head": head[:, :1]})
    same = made(Grid, 3, backend)
    same.reset()
    same.set_state({"state.head": head, "state.energy": np.full((3, 1), 0.25, np.float32)})
    same_states(batch, same)


@pytest.mark.parametrize("backend", BACKENDS)
def test_render_is_handed_arrays(backend: str) -> None:
    batch = made(Grid, 3, backend, render_mode="rgb_array", cost=0.125)
    batch.reset()
    seen.clear()
    pictures = batch.render()
    assert [picture.shape for picture in pictures] == [(20, 30, 3)] * 3
    boards = batch.get_state()["state.board"]
    for (state, params), board in zip(seen, boards, strict=True):
        assert isinstance(state.board, Cells)
        np.testing.assert_array_equal(state.board, board)
        assert type(state.energy[0]) is np.float32
        assert params.cost == 0.125
        state.board[0, 0] = 77  # a copy: pictures change nothing
    np.testing.assert_array_equal(batch.get_state()["state.board"], boards)


# Several at once ----------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_step_many_is_step_by_step(backend: str, mode: str) -> None:
    batch, twin = (made(Grid, 9, backend, autoreset_mode=mode) for _ in range(2))
    batch.reset()
    twin.reset()
    out = None
    for part in np.split(actions_for(batch, 30), 3):
        again = batch.step_many(part, out)
        assert out is None or again is out
        out = again
        for k, actions in enumerate(part):
            obs, reward, terminated, truncated, info = twin.step(actions)
            for name, wanted in zip(
                Steps._fields, (obs, reward, terminated, truncated), strict=False
            ):
                np.testing.assert_array_equal(getattr(out, name)[k], wanted, err_msg=name)
            report = info.get("episode", {"r": np.zeros(9), "l": np.zeros(9)})
            np.testing.assert_array_equal(out.episode_return[k], report["r"])
            np.testing.assert_array_equal(out.episode_length[k], report["l"])
            if "final_obs" in info:
                done = info["_final_obs"]
                np.testing.assert_array_equal(out.final_obs[k][done], info["final_obs"][done])
        same_states(batch, twin)
        assert all(array.flags.c_contiguous for array in out)
    assert out.obs.shape == (10, 9, SIZE * SIZE + 1)


def test_step_many_refuses_wrong_shapes() -> None:
    batch = made(Grid, 4, "cpu")
    with pytest.raises(ValueError, match="reset"):
        batch.step_many(np.zeros((2, 4), np.int64))
    batch.reset()
    before = batch.get_state()
    out = batch.step_many(np.zeros((3, 4), np.int64))
    batch.set_state(before)
    for actions in (
        np.zeros((2, 5), np.int64),
        np.zeros((2, 4, 1), np.int64),
        np.zeros(4, np.int64),
    ):
        with pytest.raises(ValueError, match="shape"):
            batch.step_many(actions)
    with pytest.raises(ValueError, match="at least one step"):
        batch.step_many(np.zeros((0, 4), np.int64))
    with pytest.raises(TypeError):
        batch.step_many(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"made for \(2, 4\), got \(3, 4\)"):
        batch.step_many(np.zeros((2, 4), np.int64), out)
    for key, array in batch.get_state().items():
        np.testing.assert_array_equal(array, before[key])
    with pytest.raises(ValueError, match="action"):
        batch.step_many(np.array([[0, 1, 2, 3], [0, 1, 2, 4]]))
    assert (batch.get_state()["steps"] == before["steps"] + 1).all()  # the first was taken


def test_step_many_stops_where_episodes_end_and_nobody_begins_new_ones() -> None:
    batch = made(Grid, 4, "cpu", autoreset_mode="Disabled", max_episode_steps=3, cost=0.0)
    batch.reset()
    with pytest.raises(ValueError, match="autoreset is disabled"):
        batch.step_many(np.zeros((9, 4), np.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_reset_many(backend: str) -> None:
    batch = made(Grid, 4, backend)
    first = batch.reset_many(seeds=11)
    np.testing.assert_array_equal(first, made(Grid, 4, backend).reset(seed=11)[0])
    batch.step(np.zeros(4, np.int64))
    before = batch.get_state()
    mask = np.array([False, True, False, True])
    obs = batch.reset_many(mask, [None, 5, None, None])
    after = batch.get_state()
    for key in ("state.board", "steps", "seed", "obs"):
        np.testing.assert_array_equal(after[key][~mask], before[key][~mask])
    np.testing.assert_array_equal(after["steps"][mask], 0)
    np.testing.assert_array_equal(obs, after["obs"])
    alone = made(Grid, 4, backend)
    np.testing.assert_array_equal(alone.reset_many(seeds=[5, 5, 5, 5])[1], obs[1])
    with pytest.raises(TypeError, match="reset_mask must be a bool array"):
        batch.reset_many([True] * 4)
    with pytest.raises(ValueError, match="shape"):
        batch.reset_many(np.ones(3, np.bool_))


# Which backend ------------------------------------------------------------------------------------
def test_impl() -> None:
    for impl, backend in (("reference", "reference"), ("native", "cpu"), ("auto", "cpu")):
        assert VecEnv(Grid, 2, impl=impl).backend == backend
        assert VecEnv(Grid, 2, impl=impl, backend="auto").backend == backend
    assert operant.make(Grid, 2, impl="reference").backend == "reference"
    assert VecEnv(Grid, 2, impl="native", backend="cpu").backend == "cpu"
    for maker in (VecEnv, operant.make):
        with pytest.raises(
            ValueError, match="impl must be 'reference', 'native' or 'auto', got 'C'"
        ):
            maker(Grid, 2, impl="C")
        for impl, backend, meant in (
            ("native", "reference", "the compiled implementation"),
            ("reference", "cpu", "plain Python"),
        ):
            with pytest.raises(ValueError) as caught:
                maker(Grid, 2, impl=impl, backend=backend)
            assert str(caught.value) == (
                f"impl={impl!r} is {meant}, but backend={backend!r} was given; leave one out"
            )
        assert maker(Grid, 2, impl="auto", backend="reference").backend == "reference"


def test_the_compiled_implementation_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """``impl="native"`` is compiled code, on whichever backend; alone it is the host's."""
    asked = []
    monkeypatch.setattr("operant.vector.make._on_gpu", lambda *given: asked.append(given))
    monkeypatch.setattr("operant.vector.make.why_not_cuda", lambda: None)
    monkeypatch.setattr("operant.vector.make.interpreted", lambda: False)
    operant.make(Grid, 2, impl="native", backend="cuda:1", seed=3)
    assert asked == [(Grid, 2, "cuda:1", {"seed": 3})]
    for impl in ("native", "auto"):
        assert operant.make(Grid, 2, impl=impl).backend == "cpu"
    with pytest.raises(ValueError, match="impl='reference' is plain Python, but backend='cuda'"):
        operant.make(Grid, 2, impl="reference", backend="cuda")


BROKEN = {
    "this is no Python": "SyntaxError: invalid syntax",
    "raise RuntimeError('no compiler\\nand a long story')": "RuntimeError: no compiler",
    "from numba import cfunc\n@cfunc('int64(int64)')\ndef step(x):\n    return x + nothing": (
        "TypingError: NameError: name 'nothing' is not defined"
    ),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.items(), ids=["syntax", "import", "types"])
def test_plain_python_where_nothing_compiles(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """It is never passed over in silence."""
    monkeypatch.setattr("operant.backends.cpu.kernels.array_kernels_source", lambda *_: (text, []))
    with pytest.warns(FallbackWarning) as warned:
        batch = operant.make(Grid, 3, impl="auto", workers=2, seed=3)
    (one,) = warned
    start = "Grid runs on backend 'reference', in plain Python, slowly: backend 'cpu' does not work"
    assert str(one.message).startswith(f"{start} here: {said}")
    assert one.filename == __file__  # the line that asked for it
    assert (batch.backend, batch.workers) == ("reference", 1)
    assert batch.backend_reason.startswith(f"auto: cpu does not work here: {said}")
    np.testing.assert_array_equal(batch.reset()[0], made(Grid, 3, "reference").reset()[0])
    for asked in ({"backend": "cpu"}, {"impl": "native"}):
        with pytest.raises(CompileError) as caught:
            VecEnv(Grid, 3, **asked)
        message = str(caught.value)
        assert message.startswith(f"Grid cannot be compiled for backend 'cpu': {said}")
        assert "\n" not in message


# Indices outside ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("reach", "index"), [(2.0, 4), (-1.0, -2), (1e9, 2 * 10**9)])
def test_an_index_outside_its_array(reach: float, index: int) -> None:
    batch, reference = (made(Knobs, 5, backend, reach=reach) for backend in ("cpu", "reference"))
    batch.reset()
    before = batch.get_state()
    actions = np.full((5, 2), (2, 1))
    lines = Path(__file__).read_text().splitlines()
    place = next(k for k, line in enumerate(lines, 1) if "state.table[place] =" in line)
    for _ in range(2):  # it is said every time
        with pytest.raises(IndexError) as found:
            batch.step(actions)
        assert str(found.value) == (
            f"{__file__}:{place}: index {index} of state.table is outside 0..2; ask before with "
            "`if`, or write clip(x, 0, 2)"
        )
    after = batch.get_state()
    for name in ("state.before", "state.after", "seed", "index", "episode"):  # its neighbours
        np.testing.assert_array_equal(after[name], before[name])
    np.testing.assert_array_equal(after["state.table"], [[6, 0, 0]] * 5)  # element 0 instead
    reference.reset()
    with pytest.raises(IndexError):
        reference.step(actions)


class Narrow(operant.Env):
    """What is written is `first` and more, by every way of writing."""

    class Params(NamedTuple):
        first: float = 0.0
        way: float = 0.0  # an int would be a kernel of its own for each

    class State(Arrays):
        small = uint8[3]
        wide = int32[3]

    observation_space = Box(-1e10, 1e10, (1,))
    action_space = Discrete(2)

    def reset(state, params):
        state.wide[0] = to_int(params.first)

    def step(state, action, params):
        value = action + to_int(params.first)
        if params.way == 0.0:
            state.small[1] = value
        elif params.way == 1.0:
            state.small[:] = value
        elif params.way == 2.0:
            state.small[2] += value
        elif params.way == 3.0:
            state.wide[1] = value * 8421504
        else:
            state.wide[2] = state.small[0]  # always fits
            state.small[0] = state.wide[0] + action
        return 0.0, False

    def observe(state, obs):
        obs[0] = state.wide[0]


@pytest.mark.parametrize(
    ("way", "line", "label", "said"),
    [
        (0, "state.small[1] = value", "state.small, which is uint8: 0 to 255; declare it", 256),
        (1, "state.small[:] = value", "state.small, which is uint8: 0 to 255; declare it", 256),
        (2, "state.small[2] += value", "state.small, which is uint8: 0 to 255; declare it", 256),
        (3, "state.wide[1] = value", "state.wide, which is int32: -2147483648 to", 2155905024),
        (4, "state.small[0] = state.wide", "state.small, which is uint8: 0 to 255; declare", 256),
    ],
)
def test_an_int_that_does_not_fit(way: int, line: str, label: str, said: int) -> None:
    lines = Path(__file__).read_text().splitlines()
    place = next(k for k, text in enumerate(lines, 1) if text.strip().startswith(line))
    for backend in BACKENDS:
        batch = made(Narrow, 3, backend, first=255.0, way=float(way))
        batch.reset()
        batch.step(np.array([0, 0, 0]))  # 255 fits
        if way == 2:
            batch.reset()
        with pytest.raises(OverflowError) as found:
            batch.step(np.array([0, 1, 0]))
        prefix = "" if backend == "reference" else f"{__file__}:{place}: "
        assert str(found.value).startswith(f"{prefix}{said} does not fit into {label}")
    assert not batch.get_state()["state.small"][1].any() or way == 3  # lowest bits of 256


@pytest.mark.parametrize(
    ("first", "said"), [(-(2**33), "-8589934592"), (-(2**50), "a number beyond -549755813887")]
)
def test_numbers_below_an_array(first: int, said: str) -> None:
    batch = made(Narrow, 2, "cpu", first=float(first))
    with pytest.raises(OverflowError, match=f": {said} does not fit into state.wide, which"):
        batch.reset()


def test_after_an_index_outside_a_batch_goes_on() -> None:
    batch = made(Knobs, 3, "cpu", reach=2.0)
    batch.reset()
    with pytest.raises(IndexError):
        batch.step(np.full((3, 2), (2, 0)))
    batch.step(np.full((3, 2), (1, 0)))
    batch.reset(seed=3)
    twin = made(Knobs, 3, "cpu", reach=2.0)
    twin.reset()
    same_states(batch, twin)


# Random numbers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", BACKENDS)
def test_draws_are_the_stream_in_order(backend: str) -> None:
    batch = made(Knobs, 4, backend)
    batch.reset()
    for episode in range(2):
        for step in range(3):
            state = batch.get_state()
            wanted = uniforms(
                state["seed"], state["index"], state["episode"] - 1, state["steps"], 9
            )
            np.testing.assert_array_equal(state["state.drawn"], np.stack(wanted, axis=1))
            assert (state["episode"] == episode + 1).all()
            assert (state["steps"] == step).all()
            batch.step(np.full((4, 2), (1, 0)))
        batch.reset()


def test_every_kind_of_draw() -> None:
    batches = [made(Push, 5, backend) for backend in BACKENDS]
    f = np.float32
    for batch in batches:
        batch.reset()
        batch.step(np.zeros((5, 2), np.float32))
        state = batch.get_state()
        u = uniforms(state["seed"], state["index"], state["episode"] - 1, state["steps"], 7)
        drawn = state["state.drawn"]
        np.testing.assert_array_equal(drawn[:, 0], f(0) + f(2) * u[0])
        np.testing.assert_array_equal(drawn[:, 1], f(-1) + f(4) * u[1])
        np.testing.assert_array_equal(drawn[:, 2], np.floor(u[2] * f(1000)))
        np.testing.assert_array_equal(drawn[:, 3], np.floor(u[3] * f(11)) - 5)
        np.testing.assert_array_equal(drawn[:, 4], u[4] < f(0.5))
        exact = np.sqrt(-2 * np.log(1 - u[5].astype(float))) * np.cos(
            2 * np.pi * u[6].astype(float)
        )
        np.testing.assert_allclose(drawn[:, 5], exact, rtol=0, atol=3e-6)
    same_states(*batches)


def test_a_stream_is_the_same_however_much_is_drawn() -> None:
    few, many = Stream(2**40 + 7, 3, 1, 2), uniforms(2**40 + 7, 3, 1, 2, 200)
    assert [few.uniform() for _ in range(200)] == [float(number) for number in many]
    draws = Stream(5, 0, 0, 1)
    numbers = [draws.integers(3) for _ in range(300)]
    assert set(numbers) == {0, 1, 2}
    assert all(type(number) is Int64 for number in numbers)
    assert type(draws.uniform(1.0, 2)) is np.float32
    assert type(draws.chance(0.5)) is bool
    assert {draws.integers(4, 5) for _ in range(9)} == {4}


# Speed and insight --------------------------------------------------------------------------------
def test_a_step_allocates_nothing_that_grows_with_the_batch() -> None:
    batch = made(Grid, 4096, "cpu", copy=False, autoreset_mode="SameStep")
    obs, _ = batch.reset()
    actions = actions_for(batch, 4)
    results = batch.step(actions[0])
    addresses = [array.ctypes.data for array in results[:4]]
    assert addresses[0] == obs.ctypes.data
    out = batch.step_many(actions)
    tracemalloc.start()
    for k in range(40):
        results = batch.step(actions[k % 4])
        assert [array.ctypes.data for array in results[:4]] == addresses
    batch.step_many(actions, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096 * 8  # less than a single row of results in double precision


def test_the_printed_rules_can_be_read() -> None:
    text = operant.inspect(Grid).numba
    compile(text, "<numba>", "exec")
    for function in ("step", "drop", "reset", "observe"):
        assert re.search(rf"def f_\d+_{function}\(", text)
    assert "_MOVES" in text
    assert "sin_exact(" in text
    assert operant.inspect(made(Grid, 1, "cpu")).numba == text
    assert f"# {__file__}" not in text  # the text does not depend on where the file lies


def test_what_is_refused_is_refused_by_the_class_statement() -> None:
    with pytest.raises(
        LanguageError, match=rf"{Path(__file__).name}:\d+: index 9 of obs is outside"
    ):

        class Wrong(Push):
            def observe(state: Any, obs: Any) -> None:
                obs[9] = 1


def test_check_env_finds_nothing_wrong() -> None:
    findings = {finding.name: finding for finding in check_env(Grid)}
    assert all(finding.passed for finding in findings.values()), findings
    assert {"actions", "parity", "determinism", "autoreset", "masks"} <= findings.keys()
    assert "equal to the bit" in findings["parity"].detail


# Training -----------------------------------------------------------------------------------------
OPTIONS: dict[str, Any] = {
    "num_envs": 40,
    "num_steps": 16,
    "seed": 5,
    "threads": 1,
    "hidden": (16, 16),
    "backend": "cpu",
}


@pytest.mark.parametrize("env", [Grid, Knobs])
def test_fused_and_eager_rollouts_agree(env: Any) -> None:
    fused, eager = (PPO(env, engine=engine, **OPTIONS) for engine in ("fused", "eager"))
    assert (fused.engine.name, eager.engine.name) == ("fused", "eager")
    for iteration in range(2):
        for ppo in (fused, eager):
            ppo.engine.collect(iteration, iteration * 16)
        ours, theirs = fused.engine.buffer, eager.engine.buffer
        for name in ("action", "obs", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name], err_msg=name)
        np.testing.assert_allclose(ours.arrays["value"], theirs.arrays["value"], 1e-5, 1e-5)
        same_states(fused.env, eager.env)
    if env is Grid:
        assert ours.terminated.any()
        assert (ours.truncated & ~ours.terminated).any()


@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_training_goes_on_to_the_bit(engine: str, tmp_path: Path) -> None:
    def weights(ppo: PPO) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])

    options = {**OPTIONS, "learning_rate_schedule": "constant"}  # the same for 2 and 4 rollouts
    whole = PPO(Grid, engine=engine, **options)
    before = weights(whole)
    whole.learn(4 * 40 * 16)
    assert torch.isfinite(weights(whole)).all()
    assert not torch.equal(before, weights(whole))
    half = PPO(Grid, engine=engine, **options)
    half.learn(2 * 40 * 16)
    half.save(tmp_path)
    loaded = PPO.load(tmp_path, Grid)
    assert loaded.engine.name == engine
    loaded.learn(4 * 40 * 16)
    assert torch.equal(weights(loaded), weights(whole))
    same_states(loaded.env, whole.env)


def test_an_index_outside_stops_training() -> None:
    for engine in ("fused", "eager"):
        ppo = PPO(Knobs, engine=engine, **OPTIONS, **{"env.params": {"reach": 2.0}})
        with pytest.raises(IndexError, match=r"index 4 of state.table is outside 0\.\.2"):
            ppo.learn(40 * 16)


def test_an_int_that_does_not_fit_stops_training() -> None:
    for engine in ("fused", "eager"):
        ppo = PPO(Narrow, engine=engine, **OPTIONS, **{"env.params": {"first": 255.0}})
        with pytest.raises(OverflowError, match=r"256 does not fit into state\.small, which"):
            ppo.learn(40 * 16)
