"""`action_masks`: which actions are allowed, on every backend, after whatever led to the state."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import operant
from operant.compiler.emit.numba_arguments import table_layout
from operant.compiler.emit.numba_array_kernels import array_kernels_source
from operant.compiler.emit.numba_kernels import kernels_source
from operant.compiler.spec.array_rules import ArrayRules
from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.rules import Rules
from operant.envs import env_ids, get_env
from operant.lang import abs, logical_not, to_float
from operant.vector import registry
from operant.vector.single import SingleEnv

from .. import environments

BACKENDS = ("reference", "cpu")
MODES = ("NextStep", "SameStep", "Disabled")
N = 70


class Walk(environments.Walk):
    """The walk with a mask that depends on all of the state and on parameters."""

    class Params(NamedTuple):
        reach: float = 3.0
        rests: bool = True

    def action_mask(state, params):
        left = to_float(state.place) - 0.5 * state.energy > -params.reach
        return (left, params.rests, state.lucky | (state.place < 1) | logical_not(left))


class Levers(Walk):
    """The same walk with two components: how far, and whether to pay for it."""

    action_space = MultiDiscrete([4, 2], start=[-2, 0])

    def step(state, action, random):
        after, reward, over = Walk.step(state, action[0], random)
        return after, reward - 0.25 * to_float(action[1]), over

    def action_mask(state):
        steps = [abs(state.place + k) < 4 for k in (-2, -1, 0, 1)]
        return [*steps[:2], True, steps[3], state.energy > 0.5, True]


class Switches(Walk):
    action_space = MultiBinary(2)

    def step(state, action, random):
        return Walk.step(state, action[0] - action[1], random)

    def action_mask(state):
        return (True, state.place < 2, True, state.place > -2)


ENVS = (Walk, Levers, Switches)


def masks_of(env: operant.VecEnv) -> np.ndarray:
    masks = env.action_masks()
    assert masks is not None
    return masks


def expected(env: operant.VecEnv) -> np.ndarray:
    """The author's function on the state of one environment after the other, in plain Python."""
    state = env.get_state()
    rules, fields = env.rules.env, [state[f"state.{name}"] for name in env.rules.fields]
    rows = []
    with np.errstate(all="ignore"):
        for values in zip(*fields, strict=True):
            given: dict[str, Any] = {"state": rules.State(*values)}
            if rules is Walk:
                given["params"] = env.rules.params
            rows.append([bool(allowed) for allowed in rules.action_mask(**given)])
    return np.array(rows)


def advance(env: operant.VecEnv, steps: int, seed: int) -> int:
    """Random steps, the masks compared after each; how many episodes finished."""
    env.action_space.seed(seed)
    finished = 0
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        np.testing.assert_array_equal(masks_of(env), expected(env))
        ended = terminated | truncated
        finished += int(ended.sum())
        if ended.any() and env.autoreset_mode.value == "Disabled":
            env.reset(options={"reset_mask": ended})
            np.testing.assert_array_equal(masks_of(env), expected(env))
    return finished


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 7, 65, 130])
def test_masks_of_whole_episodes(env: type[operant.Env], mode: str, num_envs: int) -> None:
    """On the reference backend and with one and two workers, compared among them and by hand."""
    setups: list[dict[str, Any]] = [
        {"backend": "reference"},
        {"backend": "cpu"},
        {"backend": "cpu", "workers": 2},
    ]
    batches = [operant.make(env, num_envs, autoreset_mode=mode, **setup) for setup in setups]
    size = batches[0].rules.mask_size
    seen = set()
    for batch in batches:
        batch.reset(seed=5)
        assert masks_of(batch).shape == (num_envs, size)
        assert masks_of(batch).dtype == np.bool_
        np.testing.assert_array_equal(masks_of(batch), expected(batch))
        assert advance(batch, 40, 1) >= 3 * num_envs - 1
        seen.add(masks_of(batch).tobytes())
        batch.close()
    assert len(seen) == 1
    if num_envs > 60:
        variety = np.frombuffer(seen.pop(), np.bool_).reshape(num_envs, size)
        assert len(np.unique(variety, axis=0)) >= 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_same_step_tells_of_the_new_episode_and_next_step_of_the_last_state(backend: str) -> None:
    same, later = (
        operant.make(Levers, N, backend=backend, autoreset_mode=mode)
        for mode in ("SameStep", "NextStep")
    )
    for env in (same, later):
        env.reset(seed=0)
    ended = np.zeros(N, np.bool_)
    actions = np.stack([np.ones(N, np.int64), np.zeros(N, np.int64)], axis=1)
    while not ended.any():
        _, _, terminated, truncated, _ = same.step(actions)
        later.step(actions)
        ended = terminated | truncated
    assert not masks_of(later)[ended, 3].any()  # beyond the right end: no further
    fresh = masks_of(same)
    assert fresh[ended].any(axis=1).all()
    assert (fresh[ended] != masks_of(later)[ended]).any()
    later.step(actions)  # resets those that ended, without a step
    np.testing.assert_array_equal(masks_of(later)[ended], fresh[ended])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_masked_action_is_taken_all_the_same(backend: str) -> None:
    env = operant.make(Walk, N, backend=backend, rests=False)
    env.reset(seed=0)
    assert not masks_of(env)[:, 1].any()
    before = env.get_state()["state.place"]
    env.step(np.zeros(N, np.int64))
    assert (env.get_state()["state.place"] >= before).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_count(backend: str) -> None:
    narrow, wide = (operant.make(Walk, N, backend=backend, reach=reach) for reach in (0.0, 9.0))
    for env in (narrow, wide):
        env.reset(seed=0)
        advance(env, 5, 0)
    assert masks_of(wide)[:, 0].all()
    assert not masks_of(narrow)[:, 0].all()


# Whose memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_are_independent_of_later_steps(backend: str) -> None:
    env = operant.make(Walk, N, backend=backend)
    env.reset(seed=0)
    first = masks_of(env)
    kept = first.copy()
    assert first.flags.owndata
    advance(env, 10, 0)
    assert (masks_of(env) != kept).any()
    np.testing.assert_array_equal(first, kept)
    first[:] = False
    np.testing.assert_array_equal(masks_of(env), expected(env))


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_the_same_memory_in_every_step(backend: str) -> None:
    env = operant.make(Walk, N, backend=backend, copy=False)
    env.reset(seed=0)
    view = masks_of(env)
    assert view.flags.c_contiguous
    advance(env, 10, 0)
    assert masks_of(env).ctypes.data == view.ctypes.data
    np.testing.assert_array_equal(view, expected(env))


def test_engines_find_the_masks_among_the_compiled_arrays() -> None:
    env = operant.make(Walk, N, backend="cpu", copy=False)
    env.reset(seed=0)
    assert env.compiled is not None
    array = env.compiled.arrays["action_mask"]
    assert array.shape == (128, 3)
    assert array.ctypes.data == masks_of(env).ctypes.data
    assert table_layout(env.rules)["action_mask"] == "u8"


def test_buffers_begin_with_every_action_allowed() -> None:
    buffers = Buffers.allocate(Rules.of(Levers), 65)
    assert buffers.action_mask.shape == (128, 6)
    assert buffers.action_mask.dtype == np.bool_
    assert buffers.action_mask.all()


# Without a mask ---------------------------------------------------------------------------------


class Unmasked(Walk):
    action_mask = None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env", [Unmasked, get_env("CartPole-v1")])
def test_without_a_mask_there_is_none(backend: str, env: type[operant.Env]) -> None:
    batch = operant.make(env, N, backend=backend)
    batch.reset(seed=0)
    assert batch.action_masks() is None
    batch.step(batch.action_space.sample())
    assert batch.action_masks() is None
    assert batch.rules.mask is None
    assert batch.rules.mask_size == 0
    assert Buffers.allocate(batch.rules, N).action_mask.shape == (128, 0)


@pytest.mark.parametrize(
    "env_id", [env_id for env_id in env_ids() if get_env(env_id).action_mask is None]
)
def test_kernels_of_environments_without_a_mask_do_not_know_of_masks(env_id: str) -> None:
    rules = Rules.of(get_env(env_id))
    assert "action_mask" not in table_layout(rules)
    if isinstance(rules, ArrayRules):
        source, _ = array_kernels_source(rules, "1.0")
    else:
        source = kernels_source(rules, "1.0")
    assert not re.search("action_mask|write_mask", source)


@pytest.mark.parametrize("env", [Walk, Unmasked])
def test_masks_are_refused_before_reset_and_after_close(env: type[operant.Env]) -> None:
    batch = operant.make(env, N, backend="reference")
    with pytest.raises(ValueError, match=r"no action masks yet: call reset\(\) first"):
        batch.action_masks()
    batch.reset(seed=0)
    batch.close()
    with pytest.raises(ValueError, match="this environment is closed"):
        batch.action_masks()


# State ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("given", [True, False])
def test_set_state_brings_the_masks_along(
    env: type[operant.Env], backend: str, given: bool
) -> None:
    """Whether or not the observations are given; they then stay as they were given."""
    source = operant.make(env, N, backend=backend)
    source.reset(seed=0)
    advance(source, 7, 0)
    state = source.get_state()
    assert not any("mask" in name for name in state)
    target = operant.make(env, N, backend=backend)
    target.reset(seed=1)
    assert (masks_of(target) != masks_of(source)).any()
    if given:
        state["obs"] = np.full_like(state["obs"], 0.125)
    else:
        del state["obs"]
    obs = target.set_state(state)
    np.testing.assert_array_equal(masks_of(target), masks_of(source))
    np.testing.assert_array_equal(obs, state["obs"] if given else source.get_state()["obs"])
    np.testing.assert_array_equal(target.get_state()["obs"], obs)
    advance(target, 5, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fresh_batch_has_masks_after_set_state(backend: str) -> None:
    env, fresh = (operant.make(Levers, N, backend=backend) for _ in range(2))
    env.reset(seed=0)
    advance(env, 7, 0)
    fresh.set_state(env.get_state())
    np.testing.assert_array_equal(masks_of(fresh), masks_of(env))


@pytest.mark.parametrize("backend", BACKENDS)
def test_observations_given_as_a_view_of_themselves_are_kept(backend: str) -> None:
    env = operant.make(Walk, N, backend=backend, copy=False)
    obs, _ = env.reset(seed=0)
    obs[:] = 0.125
    env.set_state({"state.place": np.full(N, -50), "obs": obs})
    assert (obs == 0.125).all()
    assert not masks_of(env)[:, 0].any()


@pytest.fixture(scope="module")
def pairs() -> list[tuple[operant.VecEnv, ...]]:
    batches = [tuple(operant.make(env, 9, backend=backend) for backend in BACKENDS) for env in ENVS]
    for pair in batches:
        for batch in pair:
            batch.reset(seed=0)
    return batches


@settings(deadline=None, max_examples=60)
@given(
    place=arrays(np.int32, 9, elements=st.integers(-1000, 1000) | st.integers(-4, 4)),
    energy=arrays(np.float32, 9, elements=st.floats(width=32)),
    lucky=arrays(np.bool_, 9),
)
def test_any_state_has_the_mask_the_author_wrote(
    pairs: list[tuple[operant.VecEnv, ...]],
    place: np.ndarray,
    energy: np.ndarray,
    lucky: np.ndarray,
) -> None:
    for pair in pairs:
        for batch in pair:
            batch.set_state({"state.place": place, "state.energy": energy, "state.lucky": lucky})
            np.testing.assert_array_equal(masks_of(batch), expected(batch))


class Balance(operant.Env):
    """z is minus the rounded product of x and y: only a fused multiply-add finds a difference."""

    class State(NamedTuple):
        x: float
        y: float
        z: float

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 5

    def reset(random):
        x, y = 1.0 + random[0], 1.0 + random[1]
        return Balance.State(x, y, -(x * y))

    def step(state, action):
        return state, 1.0, False

    def observe(state):
        return (state.x,)

    def action_mask(state):
        return (state.x * state.y + state.z == 0.0, True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_is_rounded_the_same_after_reset_step_and_set_state(backend: str) -> None:
    env = operant.make(Balance, 200, backend=backend)
    env.reset(seed=0)
    assert masks_of(env).all()
    for _ in range(7):
        env.step(np.zeros(200, np.int64))
        assert masks_of(env).all()
    env.set_state(env.get_state())
    assert masks_of(env).all()


# One environment --------------------------------------------------------------------------------


def test_the_single_environment_has_masks() -> None:
    env = SingleEnv(Walk)
    with pytest.raises(ValueError, match="no action masks yet"):
        env.action_masks()
    obs, _ = env.reset(seed=3)
    masks = set()
    for _ in range(50):
        state = Walk.State(int(obs[0]), float(obs[1]), bool(obs[2]))
        mask = env.action_masks()
        assert mask is not None
        assert (mask.dtype, mask.shape) == (np.bool_, (3,))
        assert mask.tolist() == list(Walk.action_mask(state, Walk.Params()))
        masks.add(tuple(mask.tolist()))
        obs, _, terminated, _, _ = env.step(1)
        if terminated:
            obs, _ = env.reset()
    assert len(masks) >= 2
    unmasked = SingleEnv(Unmasked)
    unmasked.reset()
    assert unmasked.action_masks() is None


def test_gymnasium_reaches_the_masks_through_its_wrappers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})  # other tests list what is registered
    operant.register("MaskedWalk-v0", Walk)
    env = gymnasium.make("operant/MaskedWalk-v0")
    env.reset(seed=0)
    mask = env.get_wrapper_attr("action_masks")()
    assert (mask.dtype, mask.shape) == (np.bool_, (3,))


# Machine code -----------------------------------------------------------------------------------

ASSEMBLY = """
import operant
from gymnasium.spaces import Discrete
from operant.envs import CartPole
from operant.backends.cpu.kernels import inspect_assembly

def masked(count):
    class Masked(CartPole):
        action_space = Discrete(count)

        def step(state, action, params):
            return CartPole.step(state, action, params)

        def action_mask(state):
            return [state.x + 0.25 * k > 0.0 for k in range(count)]

    return Masked

for count in (2, 40):
    env = operant.make(masked(count), num_envs=64)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    print(inspect_assembly(env.rules), "END OF KERNELS")
"""


def _has_fma() -> bool:
    try:
        return " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not _has_fma(), reason="looks for x86 fused multiply-adds")
def test_the_step_stays_packed_single_precision(
    tmp_path: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLY],
        env={**unmeasured(), "OPERANT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    few, many, _ = done.stdout.split("END OF KERNELS")
    for assembly in (few, many):
        packed = re.findall(r"\bvfn?m(?:add|sub)\w*ps\b.*%[yz]mm", assembly)
        assert len(packed) >= 10
