"""The eager engine: each part against a plain computation of the same thing."""

from __future__ import annotations

from math import nan
from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import operant
from operant.lang import where
from operant.models import PPO
from operant.training.guard import NonFiniteError
from operant.training.noise import shuffled

SMALL = {
    "num_envs": 6,
    "num_steps": 9,
    "epochs": 3,
    "minibatches": 4,
    "hidden": (8, 8),
    "backend": "reference",
    "threads": 1,
    "max_episode_steps": 4,
    "seed": 2,
}


PLAIN = {name: value for name, value in SMALL.items() if name != "hidden"}


def collected(env: str, **options) -> PPO:
    ppo = PPO(env, **{**SMALL, **options})
    ppo.learn(2 * 54)  # so that episodes are under way
    ppo.engine.collect(ppo.iteration, 2 * 9)
    return ppo


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_rollout_is_what_policy_and_environment_do(env):
    ppo = PPO(env, **SMALL)
    start = ppo.env.get_state()
    ppo.engine.collect(0, 0)
    buffer = ppo.engine.buffer
    twin = operant.make(env, 6, backend="reference", autoreset_mode="SameStep", max_episode_steps=4)
    np.testing.assert_array_equal(twin.set_state(start), buffer.arrays["obs"][0])
    with torch.no_grad():
        for t in range(9):
            head, value = ppo.policy(buffer.obs[t])
            log_prob, _ = ppo.distribution.evaluate(head, buffer.action[t])
            torch.testing.assert_close(buffer.value[t], value)
            torch.testing.assert_close(buffer.log_prob[t], log_prob)
            action = ppo.distribution.to_env(buffer.action[t]).numpy()
            obs, reward, terminated, truncated, info = twin.step(action)
            np.testing.assert_array_equal(buffer.arrays["obs"][t + 1], obs)
            np.testing.assert_array_equal(buffer.arrays["reward"][t], reward)
            np.testing.assert_array_equal(buffer.arrays["terminated"][t], terminated)
            np.testing.assert_array_equal(buffer.arrays["truncated"][t], truncated)
            for i in np.flatnonzero(truncated & ~terminated):
                last = ppo.policy.value(torch.from_numpy(info["final_obs"][i : i + 1]))
                torch.testing.assert_close(buffer.final_value[t, i], last[0])
        torch.testing.assert_close(buffer.last_value, ppo.policy.value(buffer.obs[9]))
    assert buffer.truncated.any()


@pytest.mark.parametrize("slice_size", [5, 4096])
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"entropy_coef": 0.02}),
        ("CartPole-v1", {"value_clip": 0.05, "shared": True, "normalize_advantage": False}),
        ("Pendulum-v1", {"entropy_coef": 0.01, "max_grad_norm": 0.0, "normalize_obs": True}),
        ("Pendulum-v1", {"squash": True, "entropy_coef": 0.01}),
    ],
)
def test_an_update_is_plain_ppo(env, options, slice_size, monkeypatch):
    monkeypatch.setattr("operant.ppo.engines.eager.SLICE", slice_size)
    ppo = collected(env, **options)
    ppo.engine.advantages()
    twin = PPO(env, ppo.config)
    twin.policy.load_state_dict(ppo.policy.state_dict())
    expected = plain_update(twin, ppo, learning_rate=3e-3, clip=0.2)
    ppo.engine.update(ppo.iteration, 3e-3, 0.2)
    for (name, ours), theirs in zip(ppo.policy.named_parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6, msg=lambda m, n=name: n + m)


def plain_update(twin: PPO, ppo: PPO, learning_rate: float, clip: float) -> list[torch.Tensor]:
    """The same minibatches with autograd, `torch.optim.Adam` and no slices."""
    options, buffer, policy = ppo.config.ppo, ppo.engine.buffer, twin.policy
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate, eps=options.adam_eps)
    begin = 0
    for parameter in policy.parameters():  # the moments of the updates before
        piece = slice(begin, begin := begin + parameter.numel())
        optimizer.state[parameter] = {
            "step": torch.tensor(float(ppo.optimizer.count)),
            "exp_avg": ppo.optimizer.exp_avg[piece].clone().view_as(parameter),
            "exp_avg_sq": ppo.optimizer.exp_avg_sq[piece].clone().view_as(parameter),
        }
    obs = buffer.obs[:-1].flatten(0, 1)
    action = buffer.action.flatten(0, 1)
    rest = [buffer.log_prob, buffer.advantage, buffer.target, buffer.value]
    old_log_prob, advantages, targets, old_value = (x.flatten() for x in rest)
    for epoch in range(options.epochs):
        order = torch.from_numpy(shuffled(len(buffer), ppo.config.run.seed, ppo.iteration, epoch))
        for index in order.tensor_split(options.minibatches):
            advantage = advantages[index]
            if options.normalize_advantage:
                advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
            head, value = policy(obs[index])
            log_prob, entropy = ppo.distribution.evaluate(head, action[index])
            ratio = torch.exp(log_prob - old_log_prob[index])
            gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            error = (value - targets[index]) ** 2
            if options.value_clip:
                change = (value - old_value[index]).clamp(-options.value_clip, options.value_clip)
                error = torch.max(error, (old_value[index] + change - targets[index]) ** 2)
            loss = -gain.mean() + options.value_coef * 0.5 * error.mean()
            loss = loss - options.entropy_coef * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            if options.max_grad_norm:
                nn.utils.clip_grad_norm_(policy.parameters(), options.max_grad_norm)
            optimizer.step()
    return [p.detach() for p in policy.parameters()]


def test_figures_are_means_over_the_minibatches():
    ppo = collected("CartPole-v1", epochs=1, minibatches=1)
    ppo.engine.advantages()
    figures = ppo.engine.update(ppo.iteration, 1e-9, 0.2)
    assert figures["kl"] == pytest.approx(0, abs=1e-6)  # nothing has moved yet
    assert figures["clip_fraction"] == 0
    error = ppo.engine.buffer.value - ppo.engine.buffer.target
    assert figures["value_loss"] == pytest.approx(0.5 * error.square().mean().item(), rel=1e-4)
    assert 0 < figures["entropy"] <= np.log(2) + 1e-6


# The NaN guard ------------------------------------------------------------------------------
class Poison(operant.Env):
    """A counter that is not a number once it reaches 7, in one of the environments."""

    class State(NamedTuple):
        count: float
        sick: float

    observation_space = Box(-np.inf, np.inf, (1,))
    action_space = Discrete(2)
    max_episode_steps = 100

    def reset(random):
        return Poison.State(0.0, where(random[0] < 0.3, 1.0, 0.0))

    def step(state, action):
        return Poison.State(state.count + 1.0, state.sick), 1.0, False

    def observe(state):
        return (where((state.count >= 7.0) & (state.sick > 0.0), nan, state.count),)


class PoisonReward(Poison):
    def step(state, action):
        bad = (state.count >= 6.0) & (state.sick > 0.0)
        return Poison.State(state.count + 1.0, state.sick), where(bad, nan, 1.0), False

    def observe(state):
        return (state.count,)


@pytest.mark.parametrize(("env", "what"), [(Poison, "observation"), (PoisonReward, "reward")])
def test_the_environment_is_named(env, what):
    ppo = PPO(env, num_envs=16, num_steps=5, backend="reference", threads=1, seed=1)
    sick = np.flatnonzero(ppo.env.get_state()["state.sick"])
    assert len(sick)
    with pytest.raises(NonFiniteError) as error:
        ppo.learn(1000)
    assert error.value.what == what
    assert (error.value.iteration, error.value.env_index) == (1, sick[0])
    said = str(error.value)
    assert said.startswith(f"iteration 1: the {what} of environment {sick[0]} is not finite:")
    assert "nan" in said
    for parameter in ppo.policy.parameters():
        assert torch.isfinite(parameter).all()


def test_without_the_guard_nothing_is_said():
    options = {"num_envs": 16, "num_steps": 5, "backend": "reference", "threads": 1, "seed": 1}
    ppo = PPO(PoisonReward, nan_guard=False, **options).learn(16 * 5 * 2)
    assert not torch.isfinite(next(ppo.policy.parameters())).all()


class Brittle(nn.Module):
    """Its head is not a number where the first coordinate of an observation is largest."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.body = nn.Linear(4, 3)
        self.root = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        out = self.body(obs)
        head, value = out[:, :2], out[:, 2]
        if self.mode == "gradient":
            value = value + self.root.sqrt()  # 0, with an infinite slope
        if self.mode == "loss" and torch.is_grad_enabled():
            head = torch.where(obs[:, :1] > 0.02, head * float("nan"), head)
        if self.mode == "value":
            value = torch.where(obs[:, 0] > 0.02, value * float("inf"), value)
        return head, value


def test_a_bad_gradient_is_named_and_moves_nothing():
    ppo = PPO("CartPole-v1", policy=Brittle("gradient"), **PLAIN)
    before = ppo.policy.body.weight.detach().clone()
    with pytest.raises(NonFiniteError, match="iteration 0: the gradient is not finite") as error:
        ppo.learn(1000)
    assert error.value.env_index is None
    assert torch.isfinite(ppo.policy.body.weight).all()
    assert torch.equal(before, ppo.policy.body.weight)


def test_a_bad_loss_is_named_with_an_environment():
    ppo = PPO("CartPole-v1", policy=Brittle("loss"), **PLAIN)
    with pytest.raises(NonFiniteError, match="the loss") as error:
        ppo.learn(1000)
    assert "minibatch" in str(error.value)
    guilty = (ppo.engine.buffer.arrays["obs"][:-1, :, 0] > 0.02).any(0)
    assert guilty[error.value.env_index]
    assert torch.isfinite(ppo.policy.body.weight).all()


def test_a_bad_value_is_named():
    ppo = PPO("CartPole-v1", policy=Brittle("value"), **PLAIN)
    with pytest.raises(NonFiniteError) as error:
        ppo.learn(1000)
    assert error.value.what == "value"
    obs = ppo.engine.buffer.arrays["obs"][:-1, :, 0]
    t = int((obs > 0.02).any(1).argmax())
    assert error.value.env_index == int((obs[t] > 0.02).argmax())


def test_actions_that_are_not_finite_are_the_policys_fault():
    ppo = PPO("Pendulum-v1", **SMALL)
    with torch.no_grad():
        ppo.policy.actor_head.bias.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="the policy's own output") as error:
        ppo.learn(1000)
    assert (error.value.what, error.value.env_index) == ("action", 0)
