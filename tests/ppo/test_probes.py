"""Environments so small that the right value of every state is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import where
from operant.models import PPO

pytestmark = pytest.mark.usefixtures("unseen_test")

GAMMA = 0.9


class _Probe(operant.Env):
    """What all probes share: a phase and a coin, both observed."""

    observation_space = Box(-10.0, 10.0, (2,))
    action_space = Discrete(2)

    class State(NamedTuple):
        phase: float
        coin: float

    def reset(random):
        return _Probe.State(0.0, where(random[0] < 0.5, -1.0, 1.0))

    def observe(state):
        return state.phase, state.coin

    def step(state, action):
        return state, 0.0, True


class Constant(_Probe):
    """One step, reward 1."""

    def step(state, action):
        return state, 1.0, True


class TwoSteps(_Probe):
    """Reward 1 at the end of two steps: the first state is worth a discounted 1."""

    def step(state, action):
        return _Probe.State(state.phase + 1.0, state.coin), state.phase, state.phase >= 1.0


class SeesCoin(_Probe):
    """The reward is what is observed."""

    def step(state, action):
        return state, state.coin, True


class ActsRight(_Probe):
    """The reward is +1 for action 1, -1 for action 0."""

    def step(state, action):
        return state, where(action == 1, 1.0, -1.0), True


class MatchesCoin(_Probe):
    """The reward is +1 for doing what the coin says, else -1; the last of two steps counts."""

    def step(state, action):
        right = where(action == 1, 1.0, -1.0) * state.coin
        reward = where(state.phase >= 1.0, right, 0.0)
        return _Probe.State(state.phase + 1.0, state.coin), reward, state.phase >= 1.0


class Forever(_Probe):
    """Reward 1 for ever, in one state; only a time limit ends it."""

    max_episode_steps = 5

    def step(state, action):
        return state, 1.0, False


class FourSteps(_Probe):
    """Reward 1 for four steps, then over; the same limit as a time limit would set."""

    def step(state, action):
        return _Probe.State(state.phase + 1.0, state.coin), 1.0, state.phase >= 3.0


def trained(env: type[operant.Env], **options) -> PPO:
    settings = {
        "num_envs": 32,
        "num_steps": 8,
        "epochs": 4,
        "minibatches": 2,
        "hidden": (32,),
        "learning_rate": 5e-3,
        "gamma": GAMMA,
        "max_grad_norm": 5.0,
        # What the values are of: rewards and observations as they come, and nothing but them.
        "normalize_obs": False,
        "normalize_reward": False,
        "entropy_coef": 0.0,
        "learning_rate_schedule": "constant",
        "backend": "reference",
        "threads": 1,
        "seed": 0,
        **options,
    }
    return PPO(env, **settings).learn(32 * 8 * 80)


def value(ppo: PPO, phase: float, coin: float) -> float:
    with torch.no_grad():
        return ppo.policy.value(torch.tensor([[phase, coin]])).item()


@pytest.mark.parametrize("coin", [-1.0, 1.0])
def test_a_constant_reward(constant, coin):
    assert value(constant, 0.0, coin) == pytest.approx(1.0, abs=0.1)


@pytest.fixture(scope="module")
def constant():
    return trained(Constant)


def test_a_reward_after_two_steps_is_discounted():
    ppo = trained(TwoSteps)
    for coin in (-1.0, 1.0):
        assert value(ppo, 0.0, coin) == pytest.approx(GAMMA, abs=0.1)
        assert value(ppo, 1.0, coin) == pytest.approx(1.0, abs=0.1)


def test_a_value_depends_on_the_observation():
    ppo = trained(SeesCoin)
    assert value(ppo, 0.0, -1.0) == pytest.approx(-1.0, abs=0.1)
    assert value(ppo, 0.0, 1.0) == pytest.approx(1.0, abs=0.1)


def test_the_better_action_is_found():
    ppo = trained(ActsRight)
    obs = np.array([[0.0, -1.0], [0.0, 1.0]], np.float32)
    assert ppo.predict(obs).tolist() == [1, 1]
    assert value(ppo, 0.0, 1.0) == pytest.approx(1.0, abs=0.1)


def test_the_better_action_depends_on_the_observation():
    ppo = trained(MatchesCoin)
    obs = np.array([[1.0, -1.0], [1.0, 1.0]], np.float32)
    assert ppo.predict(obs).tolist() == [0, 1]
    for coin in (-1.0, 1.0):
        assert value(ppo, 0.0, coin) == pytest.approx(GAMMA, abs=0.1)
        assert value(ppo, 1.0, coin) == pytest.approx(1.0, abs=0.1)


FOREVER = 1 / (1 - GAMMA)


def forever() -> PPO:
    """A longer training: the value climbs towards 10 by a tenth of the way at a time."""
    return trained(Forever, learning_rate=1e-2, epochs=8, gae_lambda=0.95)


def test_a_time_limit_does_not_end_the_future():
    ppo = forever()
    for coin in (-1.0, 1.0):
        assert value(ppo, 0.0, coin) == pytest.approx(FOREVER, abs=0.1)


def test_ignoring_truncation_is_noticed(monkeypatch):
    """The test above can fail: with bootstrapping broken, values stay far below."""
    from operant.buffers import rollout

    def broken(reward, value, terminated, truncated, *rest, **options):
        return whole(reward, value, terminated | truncated, truncated, *rest, **options)

    whole = rollout.gae
    monkeypatch.setattr(rollout, "gae", broken)
    found = value(forever(), 0.0, 1.0)
    assert found < FOREVER - 3


def test_a_termination_ends_the_future():
    ppo = trained(FourSteps)
    for phase in range(4):
        known = sum(GAMMA**k for k in range(4 - phase))
        assert value(ppo, float(phase), 1.0) == pytest.approx(known, abs=0.1)
