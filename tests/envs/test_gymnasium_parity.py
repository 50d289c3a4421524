"""The five classic-control environments against Gymnasium's own classes, in float64.

Same start, same actions, no correction on the way. Tolerances are relative to 1 + |value|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest

import operant
from operant.check.env_check import random_actions

BACKENDS = ("reference", "cpu")
EPISODES = 32


@dataclass(frozen=True)
class Case:
    env_id: str
    # Signed distance of a float64 state from the nearest threshold that ends an episode.
    margin: Callable[[np.ndarray], float]
    tolerance_50: float = 1e-5


def _cartpole_margin(s: np.ndarray) -> float:
    return float(max(abs(s[0]) - 2.4, abs(s[2]) - 12 * 2 * np.pi / 360))


CASES = [
    Case("CartPole-v1", _cartpole_margin),
    Case("MountainCar-v0", lambda s: float(s[0] - 0.5)),
    Case("MountainCarContinuous-v0", lambda s: float(s[0] - 0.45)),
    # Near upright a pendulum falls away from itself as exp(3.9 t): differences of float32's size
    # grow with each pass through the top. Seen: 2.1e-5.
    Case("Pendulum-v1", lambda s: -np.inf, 5e-5),
    Case("Acrobot-v1", lambda s: float(-np.cos(s[0]) - np.cos(s[1] + s[0]) - 1.0)),
]


@pytest.fixture(params=CASES, ids=lambda case: case.env_id)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def _oracles(env_id: str, states: np.ndarray) -> list[Any]:
    oracles = []
    for state in states:
        oracle = gymnasium.make(env_id).unwrapped
        oracle.reset(seed=0)
        oracle.state = state.astype(np.float64)
        oracles.append(oracle)
    return oracles


def _states(env: operant.VecEnv) -> np.ndarray:
    state = env.get_state()
    return np.stack([state[f"state.{name}"] for name in env.rules.fields], axis=1)


def _oracle_action(actions: np.ndarray, i: int) -> Any:
    return int(actions[i]) if actions.ndim == 1 else actions[i]


def _error(ours: np.ndarray, theirs: np.ndarray) -> float:
    theirs = np.asarray(theirs, np.float64)
    return float(np.max(np.abs(ours - theirs) / (1.0 + np.abs(theirs))))


def test_spaces_and_limits_are_gymnasiums(case: Case) -> None:
    ours, theirs = operant.make(case.env_id), gymnasium.make(case.env_id)
    assert ours.single_observation_space == theirs.observation_space
    assert ours.single_action_space == theirs.action_space
    assert ours.max_episode_steps == theirs.spec.max_episode_steps
    assert ours.rules.env.reward_threshold == theirs.spec.reward_threshold
    registered = gymnasium.spec(f"operant/{case.env_id}")
    assert registered.max_episode_steps == theirs.spec.max_episode_steps
    assert registered.reward_threshold == theirs.spec.reward_threshold


@pytest.mark.parametrize("backend", BACKENDS)
def test_fifty_steps_stay_close(case: Case, backend: str) -> None:
    env = operant.make(case.env_id, num_envs=EPISODES, backend=backend)
    env.reset(seed=1)
    oracles = _oracles(case.env_id, _states(env))
    running = np.ones(EPISODES, bool)
    worst = 0.0
    for step in range(50):
        actions = random_actions(env.rules.action, EPISODES, step)
        obs, reward, terminated, _, _ = env.step(actions)
        for i in np.flatnonzero(running):
            theirs = oracles[i].step(_oracle_action(actions, i))
            worst = max(worst, _error(obs[i], theirs[0]), _error(reward[i], theirs[1]))
            assert terminated[i] == theirs[2], f"environment {i} at step {step}"
            running[i] = not theirs[2]
    assert running.sum() < EPISODES or case.env_id != "CartPole-v1"
    assert worst <= case.tolerance_50


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_step_of_whole_episodes(case: Case, backend: str) -> None:
    """Each step starts from our state: nothing accumulates, so the tolerance is float32's own, and
    so the slow backend's episodes may be short."""
    num_envs = 8
    limit = {"max_episode_steps": 100} if backend == "reference" else {}
    env = operant.make(
        case.env_id, num_envs=num_envs, backend=backend, autoreset_mode="Disabled", **limit
    )
    env.reset(seed=2)
    running = np.ones(num_envs, bool)
    oracles = _oracles(case.env_id, _states(env))
    steps = 0
    while running.any():
        before = _states(env).astype(np.float64)
        actions = random_actions(env.rules.action, num_envs, 1000 + steps)
        obs, reward, terminated, truncated, _ = env.step(actions)
        steps += 1
        for i in np.flatnonzero(running):
            oracle = oracles[i]
            oracle.state = before[i]
            oracle.steps_beyond_terminated = None
            theirs = oracle.step(_oracle_action(actions, i))
            assert _error(obs[i], theirs[0]) <= 3e-6
            assert _error(reward[i], theirs[1]) <= 3e-6
            if abs(case.margin(np.asarray(oracle.state, np.float64))) > 1e-5:
                assert terminated[i] == theirs[2]
        assert truncated[running].all() == (steps == env.max_episode_steps)
        done = terminated | truncated
        running &= ~done
        if done.any():
            env.reset(options={"reset_mask": done})
    assert steps <= env.max_episode_steps


def test_outcomes_agree_until_rounding_decides(case: Case) -> None:
    """Whole episodes without correction: both end at the same step, or on a threshold's edge."""
    num_envs = 24
    env = operant.make(case.env_id, num_envs=num_envs, backend="cpu")
    env.reset(seed=3)
    oracles = _oracles(case.env_id, _states(env))
    running = np.ones(num_envs, bool)
    compared = 0
    for step in range(env.max_episode_steps):
        actions = random_actions(env.rules.action, num_envs, 5000 + step)
        obs, _, terminated, _, _ = env.step(actions)
        for i in np.flatnonzero(running):
            theirs = oracles[i].step(_oracle_action(actions, i))
            drift = _error(obs[i], theirs[0])
            if drift > 1e-2:  # chaos has won: from here on the two are different episodes
                assert case.env_id in ("Acrobot-v1", "Pendulum-v1")
                running[i] = False
                continue
            if terminated[i] != theirs[2]:
                margin = case.margin(np.asarray(oracles[i].state, np.float64))
                assert abs(margin) <= 10 * drift + 1e-6, f"environment {i}, step {step}"
            compared += 1
            running[i] = not (terminated[i] or theirs[2])
        if not running.any():
            break
    assert compared > 400


@pytest.mark.parametrize("backend", BACKENDS)
def test_resets_are_distributed_as_gymnasiums(case: Case, backend: str) -> None:
    """Two-sample Kolmogorov-Smirnov test of each state component, at the 0.1 % level."""
    count = 20_000 if backend == "cpu" else 4_000
    env = operant.make(case.env_id, num_envs=count, backend=backend)
    env.reset(seed=4)
    ours = _states(env)
    oracle = gymnasium.make(case.env_id).unwrapped
    oracle.reset(seed=5)
    theirs = []
    for _ in range(4_000):
        oracle.reset()
        theirs.append(np.asarray(oracle.state, np.float64))
    for k in range(ours.shape[1]):
        column = np.array([state[k] for state in theirs])
        both = np.concatenate([ours[:, k], column])
        cdf_ours = np.searchsorted(np.sort(ours[:, k]), both, "right") / count
        cdf_theirs = np.searchsorted(np.sort(column), both, "right") / len(column)
        distance = np.abs(cdf_ours - cdf_theirs).max()
        assert distance * np.sqrt(count * len(column) / (count + len(column))) < 1.95
    correlation = np.corrcoef(ours[:, ours.std(axis=0) > 0].T)
    off_diagonal = np.atleast_2d(correlation) - np.eye(np.atleast_2d(correlation).shape[0])
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(count)


def test_pendulum_limits_actions_as_gymnasium_does() -> None:
    env = operant.make("Pendulum-v1", num_envs=2)
    env.reset(seed=0)
    oracle = _oracles("Pendulum-v1", _states(env))[0]
    obs, reward, *_ = env.step(np.array([[7.5], [2.0]], np.float32))
    theirs = oracle.step(np.array([7.5], np.float32))
    assert _error(obs[0], theirs[0]) < 1e-6
    assert _error(reward[0], theirs[1]) < 1e-6


def test_parameters_change_the_physics_as_gymnasiums_do() -> None:
    env = operant.make("Pendulum-v1", num_envs=4, g=3.5)
    env.reset(seed=0)
    states = _states(env)
    oracle = gymnasium.make("Pendulum-v1", g=3.5).unwrapped
    oracle.reset(seed=0)
    actions = random_actions(env.rules.action, 4, 0)
    obs, *_ = env.step(actions)
    for i in range(4):
        oracle.state = states[i].astype(np.float64)
        assert _error(obs[i], oracle.step(actions[i])[0]) < 1e-6

    barto = operant.make("CartPole-v1", num_envs=64, sutton_barto_reward=True)
    barto.reset(seed=0)
    rewards, ends = [], []
    for step in range(40):
        _, reward, terminated, _, _ = barto.step(np.full(64, step % 2 // 2))
        rewards.append(reward)
        ends.append(terminated)
    np.testing.assert_array_equal(np.stack(rewards), -np.stack(ends).astype(np.float32))


def test_semi_implicit_cartpole() -> None:
    env = operant.make("CartPole-v1", num_envs=8, kinematics_integrator="semi-implicit euler")
    env.reset(seed=0)
    oracles = _oracles("CartPole-v1", _states(env))
    for step in range(8):
        actions = random_actions(env.rules.action, 8, step)
        obs, *_ = env.step(actions)
        for i, oracle in enumerate(oracles):
            oracle.kinematics_integrator = "semi-implicit euler"
            assert _error(obs[i], oracle.step(int(actions[i]))[0]) < 1e-6
