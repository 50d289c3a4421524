"""Acting computes what it needs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from operant.models import policy_for
from operant.models.distributions import Categorical
from operant.models.outputs import head_of, value_of
from operant.training.agent import Agent


class Both(nn.Module):
    """A policy without `head` and `value`; the latter is a layer of this name."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(4, 1)
        self.actor = nn.Linear(4, 2)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.value(obs)[:, 0]


def test_the_same_as_of_the_whole() -> None:
    obs = torch.randn(5, 4)
    for policy in (policy_for(Box(-1, 1, (4,)), Discrete(2)), Both()):
        head, value = policy(obs)
        assert torch.equal(head_of(policy, obs), head)
        assert torch.equal(value_of(policy, obs), value)


def test_acting_leaves_the_critic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    space, actions = Box(-1, 1, (4,)), Discrete(2)
    policy = policy_for(space, actions)
    agent = Agent(policy, Categorical(2), space, actions, torch.device("cpu"))
    obs = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    expected = policy(torch.from_numpy(obs))[0].argmax(1).numpy()
    monkeypatch.setattr(policy, "forward", None)
    assert agent.act(obs).tolist() == expected.tolist()
