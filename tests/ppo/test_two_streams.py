"""Bonuses with values of their own: `eager` on the CPU, and what a GPU does, interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import operant
from operant.buffers.value_stream import ValueStream
from operant.models import PPO, Bonus
from operant.training.callbacks import Callback

SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "hidden": (4,), "seed": 1, "threads": 1}
TINY = {"intrinsic.hidden": (4,), "intrinsic.features": 4, "intrinsic.random_steps": 16}


def test_advantages_go_on_from_episode_to_episode() -> None:
    """By hand: no end cuts anything, and both advantages are added with their weights."""
    rng = np.random.default_rng(0)
    stream = ValueStream(3, 2, 0.9, 0.8, torch.device("cpu"))
    reward, value = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    stream.reward.copy_(torch.from_numpy(reward))
    stream.value.copy_(torch.from_numpy(value))
    stream.weights.copy_(torch.tensor([2.0, 0.5]))
    wanted, trace = np.zeros((3, 2)), np.zeros(2)
    for t in (2, 1, 0):
        trace = reward[t] + 0.9 * value[t + 1] - value[t] + 0.9 * 0.8 * trace
        wanted[t] = trace
    advantage = torch.ones(3, 2)
    stream.add_to(advantage)
    np.testing.assert_allclose(stream.advantage.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(stream.target.numpy(), wanted + value[:3], rtol=1e-5)
    np.testing.assert_allclose(advantage.numpy(), 2 + 0.5 * wanted, rtol=1e-5)


def test_steps_in_which_a_row_rests_are_left_out() -> None:
    """The advantages of the same steps with nothing in between. What follows the last of them is
    what is seen after the rollout, or, where the row rests there too, is worth what it was."""
    rng = np.random.default_rng(1)
    live = torch.from_numpy(np.array([[1, 1], [1, 0], [0, 0], [1, 1], [0, 1]], bool))
    reward, value = (torch.from_numpy(rng.normal(size=(n, 2))).float() for n in (5, 6))
    stream = ValueStream(5, 2, 0.9, 0.8, torch.device("cpu"))
    stream.reward.copy_(reward)
    stream.value.copy_(value)
    advantage = torch.zeros(5, 2)
    goes_on = torch.tensor([False, True])
    stream.add_to(advantage, live, goes_on)
    for row, last in ((0, value[3, 0]), (1, value[5, 1])):
        played = live[:, row].nonzero().flatten()
        dense = ValueStream(len(played), 1, 0.9, 0.8, torch.device("cpu"))
        dense.reward.copy_(reward[played, row : row + 1])
        dense.value.copy_(torch.cat([value[played, row], last.view(1)])[:, None])
        dense.add_to(torch.zeros(len(played), 1))
        torch.testing.assert_close(stream.advantage[played, row], dense.advantage[:, 0])
        torch.testing.assert_close(stream.target[played, row], dense.target[:, 0])
    assert (stream.advantage[~live] == 0).all()


class Ones(Bonus):
    name = "ones"
    figures = ()
    normalized = False

    def reward(self, obs: Any, action: torch.Tensor, next_obs: Any) -> torch.Tensor:
        return torch.ones(action.shape[:2])


@pytest.mark.usefixtures("unseen_test")
def test_the_values_of_bonuses_reach_what_never_ends() -> None:
    """A bonus of 1 for ever, at a discount of 0.5: 2, though episodes end all the time."""
    options = {"intrinsic.separate_value": True, "intrinsic.gamma": 0.5}
    sizes = {"num_envs": 16, "num_steps": 16, "hidden": (16,), "seed": 1, "threads": 1}
    ppo = PPO(
        "CartPole-v1", **sizes, learning_rate=1e-2, intrinsic=Ones(), backend="reference", **options
    )
    ppo.learn(60 * 256, progress=False)
    stream = ppo.buffer.intrinsic
    assert float((stream.value - 2).abs().mean()) < 0.1
    assert (ppo.buffer.reward.abs() <= 10).all()  # the environment's rewards are as they were
    assert (ppo.buffer.terminated | ppo.buffer.truncated).any()


def test_the_fused_engine_leaves_it_to_the_next_with_a_sentence() -> None:
    ppo = PPO("CartPole-v1", **SMALL, intrinsic="rnd", **TINY)
    assert ppo.engine_name == "fused"
    ppo = PPO("CartPole-v1", **SMALL, intrinsic="rnd", **TINY, **{"intrinsic.separate_value": True})
    assert ppo.engine_name == "eager"
    assert "intrinsic.separate_value asks for two" in ppo.engine_reason
    ppo.learn(64, progress=False)
    agent = ppo.predict(np.zeros(4, np.float32))
    assert int(agent) in (0, 1)


def test_a_policy_of_ones_own_must_say_how() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, obs: Any) -> Any:
            out = self.layer(obs)
            return out[:, :2], out[:, 2]

    class Both(Own):
        def streams(self, obs: Any) -> Any:
            return (*self(obs), self.intrinsic_value(obs))

        def intrinsic_value(self, obs: Any) -> Any:
            return self.layer(obs)[:, 2] * 2

    options = {"num_envs": 4, "num_steps": 8, "backend": "reference", "intrinsic": Ones()}
    with pytest.raises(ValueError, match=r"needs a policy with streams\(obs\)"):
        PPO("CartPole-v1", policy=Own(), **options, **{"intrinsic.separate_value": True})
    ppo = PPO("CartPole-v1", policy=Both(), **options, **{"intrinsic.separate_value": True})
    ppo.learn(64, progress=False)


class Watch(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.rows.append(dict(metrics))


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(
    "options",
    [
        {"intrinsic": ["rnd", "count"]},
        {"intrinsic": "icm", "intrinsic.separate_value": True},
        {"value_head": "popart"},
    ],
)
def test_what_a_gpu_computes_is_what_the_cpu_does(options: dict[str, Any]) -> None:
    found = []
    for backend in ("cuda", "cpu"):
        batch = operant.make(
            "CartPole-v1",
            10,
            backend=backend,
            autoreset_mode="SameStep",
            copy=False,
            max_episode_steps=3,
        )
        given = {"num_steps": 6, "epochs": 2, "minibatches": 1, "seed": 5, "engine": "eager"}
        ppo, watch = PPO(batch, device="cpu", **given, **TINY, **options), Watch()
        ppo.learn(120, watch, progress=False)
        found.append((watch.rows, torch.cat([p.flatten() for p in ppo.policy.parameters()])))
    (ours, weights), (theirs, others) = found
    for one, other in zip(ours, theirs, strict=True):
        for name in one:
            # Observations differ by rounding, so not all have been seen that were.
            if not name.endswith(("seconds", "sps", "count_states")):
                assert one[name] == pytest.approx(other[name], rel=2e-3, abs=2e-4), name
    torch.testing.assert_close(weights, others, rtol=1e-3, atol=1e-4)
