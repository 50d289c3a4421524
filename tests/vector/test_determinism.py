"""The same seed, the same bits: whatever the workers, the batch, the process or the backend."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, sin, uniform

BACKENDS = ("reference", "cpu")
ROOT = Path(__file__).parents[2]


def load_lander() -> type[operant.Env]:
    spec = importlib.util.spec_from_file_location("lander", ROOT / "examples" / "lander.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    env: type[operant.Env] = module.Lander
    return env


ENVS: dict[str, Any] = {
    name: name
    for name in operant.envs.env_ids()
    if not issubclass(operant.envs.get_env(name).State, Arrays)
} | {"Lander": load_lander()}
"""Without those of arrays, which have tests like these of their own: with Prospector, plain Python
took three minutes."""


def random_actions(env: operant.VecEnv, steps: int, seed: int = 0) -> list[np.ndarray]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def trajectory(
    env: operant.VecEnv, steps: int = 40, actions: Any = None, seed: Any = 5
) -> list[np.ndarray]:
    """Observations, rewards and flags of a run, and all that the future depends on."""
    results = [env.reset(seed=seed)[0]]
    for action in random_actions(env, steps) if actions is None else actions:
        *arrays, info = env.step(action)
        results += arrays
        if info:
            results += [info["_episode"], info["episode"]["r"], info["episode"]["l"]]
    return [*results, *env.get_state().values()]


def assert_same(one: list[np.ndarray], two: list[np.ndarray]) -> None:
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()  # the bits: NaN and the sign of zero too


def digest(results: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in results)).hexdigest()


def differs(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return digest(one) != digest(two)


# Workers, batch, process ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CartPole-v1", "Lander"])
@pytest.mark.parametrize("num_envs", [1, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_workers_change_nothing(name: str, num_envs: int, mode: str) -> None:
    runs = []
    for workers in (1, 2, 3, 5):
        env = operant.make(
            ENVS[name],
            num_envs,
            backend="cpu",
            workers=workers,
            autoreset_mode=mode,
            max_episode_steps=20,
        )
        assert env.workers == workers
        runs.append(trajectory(env))
        env.close()
    for run in runs[1:]:
        assert_same(runs[0], run)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", list(ENVS))
def test_the_same_seed_again_and_another_seed(backend: str, name: str) -> None:
    env = operant.make(ENVS[name], 65, backend=backend, max_episode_steps=15)
    first = trajectory(env, seed=5)
    assert_same(first, trajectory(env, seed=5))
    other = trajectory(env, seed=6)
    assert (first[0] != other[0]).any(axis=1).all()


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import test_determinism as t
workers = int(sys.argv[1])
for backend in t.BACKENDS:
    for name in ("CartPole-v1", "Lander"):
        env = t.operant.make(t.ENVS[name], 200, backend=backend, workers=workers)
        print(t.digest(t.trajectory(env)))
"""


def test_two_processes_give_the_same_bits(unmeasured: Callable[[], dict[str, str]]) -> None:
    here = [
        digest(trajectory(operant.make(ENVS[name], 200, backend=backend)))
        for backend in BACKENDS
        for name in ("CartPole-v1", "Lander")
    ]
    script = SCRIPT.format(folder=str(Path(__file__).parent))
    for workers in ("1", "2"):
        path = os.pathsep.join(p for p in sys.path if p)
        there = subprocess.run(
            [sys.executable, "-c", script, workers],
            env=unmeasured() | {"PYTHONPATH": path, "PYTHONHASHSEED": workers},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert there.returncode == 0, there.stderr
        assert there.stdout.split() == here
    assert len(set(here)) == 4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", list(ENVS))
def test_an_environment_is_the_same_in_a_batch_of_any_size(backend: str, name: str) -> None:
    few = operant.make(ENVS[name], 100, backend=backend, max_episode_steps=25)
    many = operant.make(ENVS[name], 1000, backend=backend, max_episode_steps=25, workers=2)
    actions = random_actions(many, 60)
    np.testing.assert_array_equal(few.reset(seed=9)[0], many.reset(seed=9)[0][:100])
    for action in actions:
        for a, b in zip(few.step(action[:100])[:4], many.step(action)[:4], strict=True):
            assert a.tobytes() == b[:100].tobytes()
    many.close()


# Backends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ENVS))
def test_backends_begin_every_episode_from_the_same_bits(name: str) -> None:
    envs = [operant.make(ENVS[name], 999, backend=backend, seed=3) for backend in BACKENDS]
    seen = []
    for _ in range(5):
        (reference, _), (cpu, _) = (env.reset() for env in envs)
        assert reference.tobytes() == cpu.tobytes()
        states = [env.get_state() for env in envs]
        for entry in states[0]:
            assert states[0][entry].tobytes() == states[1][entry].tobytes(), entry
        seen.append(reference)
    assert len({obs.tobytes() for obs in seen}) == 5


@pytest.mark.parametrize("name", list(ENVS))
def test_backends_reset_to_the_same_bits_inside_step(name: str) -> None:
    """Every episode lasts one step, so every observation after a step is that of a reset."""
    envs = [
        operant.make(
            ENVS[name], 333, backend=backend, max_episode_steps=1, autoreset_mode="SameStep"
        )
        for backend in BACKENDS
    ]
    for env in envs:
        env.reset(seed=2**40 + 1)
    for actions in random_actions(envs[0], 6):
        reference, cpu = (env.step(actions) for env in envs)
        assert (reference[2] | reference[3]).all()
        assert reference[0].tobytes() == cpu[0].tobytes()


class Compass(operant.Env):
    """Its reset and its observation would round differently with fused multiply-adds."""

    class State(NamedTuple):
        angle: float

    observation_space = Box(-10.0, 10.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(random):
        return Compass.State(uniform(random[0], -3.1415927, 3.1415927))

    def step(state, action):
        return Compass.State(state.angle * 0.99 + 0.1), 1.0, False

    def observe(state):
        return (state.angle * 1.1 + 0.3,)


def test_the_kernel_compiled_first_changes_nothing() -> None:
    """A batch that begins with `set_state` compiles ``step`` before ``reset``.

    Numba hands a caller's fastmath to what it compiles on the way: resets inside ``step`` must
    not inherit it, or they would depend on what was compiled, or found in the cache, before.
    """
    options: Any = {"max_episode_steps": 1, "autoreset_mode": "SameStep"}
    reference, cpu = (
        operant.make(Compass, 200, backend=backend, **options) for backend in BACKENDS
    )
    reference.reset(seed=1)
    cpu.set_state(reference.get_state())
    for _ in range(4):
        actions = np.zeros(200, np.int64)
        assert reference.step(actions)[0].tobytes() == cpu.step(actions)[0].tobytes()
    assert reference.reset()[0].tobytes() == cpu.reset()[0].tobytes()


# Seeds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_seed_in_a_list_is_that_of_environment_0_of_a_batch(backend: str, kind: Any) -> None:
    env = operant.make(ENVS["Lander"], 4, backend=backend, max_episode_steps=10)
    seeds = [7, 0, 7, 2**63 - 1]
    actions = np.random.default_rng(0).integers(0, 2, (30, 1)).repeat(4, axis=1)
    together = trajectory(env, actions=actions, seed=kind(seeds))
    for i, seed in enumerate(seeds):
        alone = operant.make(ENVS["Lander"], 1, backend=backend, max_episode_steps=10)
        results = trajectory(alone, actions=actions[:, :1], seed=seed)
        for a, b in zip(together, results, strict=True):
            assert a[i].tobytes() == b[0].tobytes()
    for array in together:
        assert array[0].tobytes() == array[2].tobytes()
    assert (together[0][0] != together[0][1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_seeds_in_a_list_give_equal_environments(backend: str) -> None:
    env = operant.make("CartPole-v1", 2, backend=backend)
    actions = np.random.default_rng(0).integers(0, 2, (60, 1)).repeat(2, axis=1)
    for array in trajectory(env, actions=actions, seed=[7, 7]):
        assert array[0].tobytes() == array[1].tobytes()
    obs, _ = env.reset(seed=7)
    assert (obs[0] != obs[1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_none_in_a_list_leaves_the_stream_alone(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", 3, backend=backend, seed=1) for _ in range(2))
    env.reset()
    twin.reset()
    obs, _ = env.reset(seed=[None, 50, None])
    undisturbed, _ = twin.reset()
    assert obs[[0, 2]].tobytes() == undisturbed[[0, 2]].tobytes()
    assert (obs[1] != undisturbed[1]).all()
    alone = operant.make("CartPole-v1", 1, backend=backend)
    assert obs[1].tobytes() == alone.reset(seed=50)[0][0].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_none_in_the_list_of_the_first_reset_is_the_seed_of_make(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", 4, backend=backend, seed=1) for _ in range(2))
    obs, _ = env.reset(seed=[None, 50, None, None])
    others = [0, 2, 3]
    assert obs[others].tobytes() == twin.reset()[0][others].tobytes()

    unseeded = operant.make("CartPole-v1", 4, backend=backend)
    obs, _ = unseeded.reset(seed=[None, 50, None, None])
    assert len({row.tobytes() for row in obs}) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_partial_first_reset_seeds_everyone(backend: str) -> None:
    """Nobody can be left without an episode; the others get the seed of ``make``."""
    env, twin = (operant.make("CartPole-v1", 4, backend=backend, seed=1) for _ in range(2))
    mask = np.array([False, True, False, False])
    obs, _ = env.reset(seed=8, options={"reset_mask": mask})
    assert obs[~mask].tobytes() == twin.reset()[0][~mask].tobytes()
    assert obs[mask].tobytes() == twin.reset(seed=8)[0][mask].tobytes()
    env.step(np.zeros(4, np.int64))

    unseeded = operant.make("CartPole-v1", 4, backend=backend)
    obs, _ = unseeded.reset(seed=8, options={"reset_mask": mask})
    assert len({row.tobytes() for row in obs}) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_without_a_seed_goes_on_with_the_stream(backend: str) -> None:
    env, twin = (operant.make("CartPole-v1", 70, backend=backend) for _ in range(2))
    beginnings = [e.reset(seed=4)[0] for e in (env, twin)]
    for _ in range(4):
        obs, again = env.reset()[0], twin.reset()[0]
        assert obs.tobytes() == again.tobytes()
        beginnings.append(obs)
    assert len({row.tobytes() for obs in beginnings[1:] for row in obs}) == 5 * 70
    assert env.reset(seed=4)[0].tobytes() == beginnings[0].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_seed_of_make_is_that_of_the_first_reset(backend: str) -> None:
    seeded = operant.make("CartPole-v1", 70, backend=backend, seed=12)
    by_reset = operant.make("CartPole-v1", 70, backend=backend)
    assert seeded.reset()[0].tobytes() == by_reset.reset(seed=12)[0].tobytes()
    assert seeded.reset()[0].tobytes() == by_reset.reset()[0].tobytes()

    overridden = operant.make("CartPole-v1", 70, backend=backend, seed=12)
    assert overridden.reset(seed=13)[0].tobytes() == by_reset.reset(seed=13)[0].tobytes()
    assert overridden.reset()[0].tobytes() == by_reset.reset()[0].tobytes()


def test_without_any_seed_runs_differ() -> None:
    first, second = (operant.make("CartPole-v1", 3, backend="reference") for _ in range(2))
    assert (first.reset()[0] != second.reset()[0]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_resets_of_one_environment_do_not_disturb_another(backend: str) -> None:
    env, twin = (
        operant.make(ENVS["Lander"], 70, backend=backend, seed=1, max_episode_steps=6)
        for _ in range(2)
    )
    env.reset()
    twin.reset()
    mask = np.zeros(70, np.bool_)
    mask[[3, 64]] = True
    differences = 0
    for actions in random_actions(env, 40):
        env.reset(options={"reset_mask": mask})
        for a, b in zip(env.step(actions)[:4], twin.step(actions)[:4], strict=True):
            assert a[~mask].tobytes() == b[~mask].tobytes()
            differences += int((a[mask] != b[mask]).sum())
    assert differences > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_of_64_bits_are_kept_whole(backend: str) -> None:
    env = operant.make("CartPole-v1", 3, backend=backend)
    seeds = [1, 1 + 2**32, 1 + 2**63, 2**64 - 1]
    beginnings = {env.reset(seed=seed)[0].tobytes() for seed in seeds}
    for seed in (np.uint64(2**64 - 1), np.array(1), np.array(2**64 - 1, np.uint64)):
        beginnings.add(env.reset(seed=seed)[0].tobytes())
    assert len(beginnings) == 4


def test_gymnasiums_generator_is_seeded_too() -> None:
    env = operant.make("CartPole-v1", 2, backend="reference")
    env.reset(seed=123)
    draw = env.np_random.random()
    env.reset(seed=123)
    assert env.np_random.random() == draw
    assert env.np_random_seed == 123


def test_words_on_parameters_give_the_same_resets_everywhere() -> None:
    class Parametric(operant.Env):
        class Params(NamedTuple):
            p: float = 0.3
            q: float = 0.1

        class State(NamedTuple):
            x: float
            y: float

        observation_space = Box(-100.0, 100.0, (2,))
        action_space = Discrete(2)

        def reset(random, params):
            return Parametric.State(
                sin(params.p) + random[0], 1.0 // params.q + params.p % params.q
            )

        def step(state, action, params):
            return state._replace(x=state.x + params.p * action), 0.0, False

        def observe(state):
            return state

    reference, cpu = (operant.make(Parametric, 64, backend=name) for name in ("reference", "cpu"))
    np.testing.assert_array_equal(reference.reset(seed=0)[0], cpu.reset(seed=0)[0])
