"""Action masks in training: what is not allowed is never done, on every engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.lang import floor, to_float, where
from operant.models import PPO
from operant.models.distributions import Categorical, masked
from operant.ppo.config import Config
from operant.ppo.loss import normalized, ppo_loss
from operant.training.evaluate import evaluate


class Door(operant.Env):
    """Thirty doors, two of them open: the one of this step's number and the next. Only the first
    pays, and a closed one ends the episode."""

    class State(NamedTuple):
        time: int

    observation_space = Box(0.0, 30.0, (1,))
    action_space = Discrete(30)
    max_episode_steps = 12

    def reset(random):
        return Door.State(0)

    def step(state, action):
        open_ = (action == state.time) | (action == state.time + 1)
        reward = where(action == state.time, 1.0, 0.0)
        return Door.State(state.time + 1), reward, where(open_, False, True)

    def observe(state):
        return (to_float(state.time),)

    def action_mask(state):
        return tuple((state.time == k) | (state.time + 1 == k) for k in range(30))


class Locks(operant.Env):
    """Two choices; which values are allowed depends on the time."""

    class State(NamedTuple):
        time: int

    observation_space = Box(0.0, 30.0, (1,))
    action_space = MultiDiscrete([3, 2])
    max_episode_steps = 7

    def reset(random):
        return Locks.State(0)

    def step(state, action):
        return Locks.State(state.time + 1), to_float(action[0] == action[1]), False

    def observe(state):
        return (to_float(state.time),)

    def action_mask(state):
        odd = (state.time & 1) == 1
        return (odd, state.time > 3, True, True, odd)


class Chance(NamedTuple):
    x: float
    y: float


def by_chance(state: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """About half of each choice's values, and always its last."""
    allowed = []
    for size in sizes:
        for k in range(size):
            number = floor(370.0 * state.x * (k + 1) + 77.0 * state.y * (k + 3))
            allowed.append((number - 2.0 * floor(0.5 * number) < 0.5) | (k == size - 1))
    return tuple(allowed)


class Lottery(operant.Env):
    """Fifty doors; which are open is another matter in every environment and step."""

    State = Chance
    sizes = (50,)
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(50)
    max_episode_steps = 6

    def reset(random):
        return Chance(random[0], random[1])

    def step(state, action, random):
        reward = 0.1 * to_float(action) + state.x
        return Chance(random[0], random[1]), reward, random[1] > 0.9

    def observe(state):
        return state.x, state.y

    def action_mask(state):
        return by_chance(state, (50,))


class Lotteries(Lottery):
    """Four choices; the second crosses the end of a word of the packed mask, which has 24 bits."""

    sizes = (5, 26, 1, 20)
    action_space = MultiDiscrete([5, 26, 1, 20])

    def step(state, action, random):
        reward = 0.1 * to_float(action[1]) + state.x
        return Chance(random[0], random[1]), reward, random[1] > 0.9

    def action_mask(state):
        return by_chance(state, (5, 26, 1, 20))


# PPO without what the defaults add to it: nothing normalised, no entropy, one learning rate.
PLAIN: dict[str, Any] = {
    "minibatches": 4,
    "normalize_obs": False,
    "normalize_reward": False,
    "entropy_coef": 0.0,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
}


def trainer(env: type[operant.Env], engine: str, **options: Any) -> PPO:
    given = {"num_envs": 70, "num_steps": 20, "minibatches": 2, "epochs": 2, "seed": 5}
    settings = {**PLAIN, **given, **options}
    if "policy" in options:  # which has its own way with observations
        del settings["normalize_obs"]
    return PPO(env, Config(), engine=engine, **settings)


ENGINES = ("eager", "fused")
ENVS = (Door, Locks, Lottery, Lotteries)
SIZES = {Door: (30,), Locks: (3, 2), Lottery: (50,), Lotteries: Lotteries.sizes}


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("engine", ENGINES)
def test_only_allowed_actions_are_taken(env: type[operant.Env], engine: str) -> None:
    ppo = trainer(env, engine, entropy_coef=0.01)
    assert ppo.engine.name == engine
    ppo.learn(3 * 1400)
    buffer = ppo.engine.buffer
    mask = buffer.arrays["action_mask"]
    assert 0 < mask.mean() < 1
    assert mask.shape == (20, 70, sum(SIZES[env]))
    actions = buffer.arrays["action"].reshape(20, 70, -1)
    first = 0
    for k, size in enumerate(SIZES[env]):
        part = mask[:, :, first : first + size]
        assert np.take_along_axis(part, actions[:, :, k : k + 1], -1).all()
        first += size
    assert np.isfinite(buffer.arrays["log_prob"]).all()


@pytest.mark.parametrize("env", ENVS)
def test_engines_play_the_same(env: type[operant.Env]) -> None:
    eager, fused = (trainer(env, engine).engine for engine in ENGINES)
    eager.collect(0, 0)
    fused.collect(0, 0)
    for name in ("obs", "action", "action_mask", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(eager.buffer.arrays[name], fused.buffer.arrays[name])
    difference = eager.buffer.arrays["log_prob"] - fused.buffer.arrays["log_prob"]
    assert np.abs(difference).max() <= 1e-5


@pytest.mark.parametrize("env", [Lottery, Lotteries])
def test_masks_differ_where_they_may(env: type[operant.Env]) -> None:
    """Otherwise the tests here say little of whose mask is used, and of which word of it."""
    engine = trainer(env, "fused").engine
    engine.collect(0, 0)
    mask = engine.buffer.arrays["action_mask"]
    ends = np.cumsum(SIZES[env]) - 1
    free = np.delete(np.arange(mask.shape[2]), ends)
    assert mask[:, :, ends].all()
    for axis in (0, 1):
        share = mask[:, :, free].mean(axis)
        assert ((share > 0) & (share < 1)).mean() > 0.9


@pytest.mark.parametrize("env", ENVS)
def test_gradient_against_autograd(env: type[operant.Env]) -> None:
    options = {"minibatches": 1, "epochs": 1, "max_grad_norm": 0.0, "entropy_coef": 0.05}
    ppo = trainer(env, "fused", **options)
    ppo.engine.collect(0, 0)
    with torch.no_grad():
        for parameter in ppo.policy.parameters():  # ratios other than 1
            parameter += 0.05 * torch.randn(parameter.shape)
    ppo.engine.advantages()
    ppo.engine.update(0, 0.0, 0.2)
    ppo.policy.double()
    data = ppo.engine.buffer.flat(
        "obs", "action", "action_mask", "log_prob", "advantage", "target", "value"
    )
    obs, action, mask, *rest = data
    old_log_prob, advantage, target, old_value = (x.double() for x in rest)
    ppo.policy.encode = lambda x: x.double()
    head, value = ppo.policy(obs.double())
    log_prob, entropy = ppo.distribution.evaluate(masked(head, mask), action)
    loss = ppo_loss(
        log_prob, entropy, value, old_log_prob, normalized(advantage), target, old_value,
        clip=0.2, value_clip=0.0, value_coef=0.5, entropy_coef=0.05,
    )  # fmt: skip
    wanted = torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss.total, ppo.policy.parameters())]
    )
    found = ppo.optimizer.gradient.double()
    assert (found - wanted).norm() <= 1e-5 * wanted.norm()


@pytest.mark.usefixtures("unseen_test")
@pytest.mark.parametrize("engine", ENGINES)
def test_it_learns_which_open_door_pays(engine: str) -> None:
    """Evaluation uses the mask as well: an untrained policy never runs into a closed door."""
    ppo = trainer(Door, engine, learning_rate=3e-3, minibatches=4, epochs=4)
    before = evaluate(ppo.agent, Door, ppo.config.env, episodes=20, deterministic=False, seed=1)
    assert (before.lengths == 12).all()
    assert before.mean_return < 8
    ppo.learn(60 * 1400)
    after = evaluate(ppo.agent, Door, ppo.config.env, episodes=20, seed=1)
    assert after.mean_return >= 10.5  # chance: 6


def test_predict_takes_masks() -> None:
    ppo = trainer(Locks, "eager")
    allowed = [False, False, True, False, True]
    assert ppo.predict([1.0], action_masks=allowed).tolist() == [2, 1]
    both = np.array([allowed, [True, False, False, True, False]])
    assert ppo.predict([[1.0], [2.0]], action_masks=both).tolist() == [[2, 1], [0, 0]]
    assert ppo.predict([1.0], deterministic=False, action_masks=allowed).tolist() == [2, 1]
    with pytest.raises(ValueError, match=r"action_masks must have shape \(1, 5\), got \(4,\)"):
        ppo.predict([1.0], action_masks=[True] * 4)


def test_a_head_that_the_mask_does_not_fit() -> None:
    class Strange(torch.nn.Module):
        distribution = Categorical(4)

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 4)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.layer(obs), obs[:, 0]

    with pytest.raises(ValueError, match="mask has 30 entries, the policy's head 4"):
        trainer(Door, "eager", policy=Strange())
