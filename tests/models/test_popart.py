"""PopArt: what is returned stays the same while its scale follows the targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant import PPO
from operant.models import PopArtValueHead, policy_for
from operant.models.onnx import export_onnx, verify_onnx
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback
from operant.training.popart_figures import PopArtFigures

SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "seed": 1, "threads": 1}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("tasks", [1, 3])
def test_outputs_are_preserved(scale: float, tasks: int) -> None:
    torch.manual_seed(0)
    head = PopArtValueHead(16, tasks)
    features, task = torch.randn(200, 16), torch.arange(200) % tasks
    which = None if tasks == 1 else task
    for k in range(20):
        before = head(features, which).detach()
        target = scale * (torch.randn(300) * (1 + k) + 5 * k)
        head.update(target, None if tasks == 1 else torch.arange(300) % tasks)
        after = head(features, which).detach()
        size = max(1.0, float(before.abs().max()), float(head.deviation().max()))
        assert float((after - before).abs().max()) <= 1e-6 * size


def test_statistics_are_those_of_all_targets_at_first_and_running_ones_later() -> None:
    head = PopArtValueHead(2, rate=0.25)
    rng = np.random.default_rng(1)
    rollouts = [rng.normal(3 * k, 1 + k, 50) for k in range(6)]
    for k, target in enumerate(rollouts):
        head.update(torch.from_numpy(target))
        if k == 3:  # so far each has the same weight
            every = np.concatenate(rollouts[:4])
            assert float(head.mean) == pytest.approx(every.mean())
            assert float(head.deviation()) == pytest.approx(every.std())
    shares = np.array([0.25] * 4)
    for _ in rollouts[4:]:
        shares = np.append(0.75 * shares, 0.25)
    mean = sum(s * x.mean() for s, x in zip(shares, rollouts, strict=True))
    square = sum(s * (x**2).mean() for s, x in zip(shares, rollouts, strict=True))
    assert float(head.mean) == pytest.approx(mean)
    assert float(head.variance) == pytest.approx(square - mean**2)


def test_every_task_has_its_own_and_one_without_targets_stays() -> None:
    head = PopArtValueHead(2, 3)
    target, task = torch.tensor([1.0, 3.0, 1000.0, 3000.0]), torch.tensor([0, 0, 2, 2])
    weight = head.weight.detach().clone()
    head.update(target, task)
    assert head.mean.tolist() == [2.0, 0.0, 2000.0]
    assert head.deviation().tolist() == [1.0, 1.0, 1000.0]
    assert head.weight[1].equal(weight[1])
    normal = head.normalized(target, task)
    torch.testing.assert_close(normal, torch.tensor([-1.0, 1.0, -1.0, 1.0]))


@pytest.mark.parametrize("numbers", [(0, 0.1), (1, 0.0), (1, 1.5)])
def test_bad_numbers(numbers: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="tasks must be 1 or more and rate 0 to 1"):
        PopArtValueHead(2, *numbers)


class Rows(Callback):
    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.last = metrics


def test_in_training_it_is_saved_and_reports_its_scale(tmp_path: Path) -> None:
    rows = Rows()
    options = {"value_head": "popart", "normalize_reward": False}
    ppo = PPO("Pendulum-v1", **SMALL, **options)
    assert ppo.engine_name == "eager"
    assert "values of a linear layer" in ppo.engine_reason
    ppo.learn(64, rows, progress=False)
    head = ppo.policy.critic_head
    assert isinstance(head, PopArtValueHead)
    assert head.count == 2
    assert rows.last["popart/mean"] == float(head.mean) < -1
    assert rows.last["popart/deviation"] == float(head.deviation())
    ppo.save(tmp_path)
    loaded = PPO.load(tmp_path)
    for one in (ppo, loaded):
        one.learn(128, progress=False)
    ends = [one.policy.state_dict() for one in (ppo, loaded)]
    assert all(value.equal(ends[1][name]) for name, value in ends[0].items())


def test_an_add_on_of_the_same_name_is_refused() -> None:
    class Mine(AddOn):
        name = "popart"

    options = {"value_head": "popart", "normalize_reward": False, "backend": "reference"}
    with pytest.raises(ValueError, match=r"has the name 'popart' .* call it something else"):
        PPO("CartPole-v1", **SMALL, add_ons=[Mine()], **options)
    assert len(PPO("CartPole-v1", **SMALL, add_ons=[PopArtFigures()], **options).add_ons) == 1


class Millions(Callback):
    def on_rollout(self, trainer: Any, buffer: Any) -> None:
        buffer.reward *= 1e6

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.value_loss = metrics["value_loss"]


@pytest.mark.parametrize("head", ["linear", "popart"])
def test_the_loss_is_that_of_normalised_values(head: str) -> None:
    options = {"value_head": head, "normalize_reward": False, "backend": "reference"}
    ppo, millions = PPO("CartPole-v1", **SMALL, **options), Millions()
    ppo.learn(96, millions, progress=False)
    assert (millions.value_loss < 10) == (head == "popart")
    if head == "popart":
        assert float(ppo.policy.critic_head.mean) > 1e6


class TwoTasks(gymnasium.Env[Any, Any]):
    """Rewards of 1, or of 1000: the observation says which."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        {"task": spaces.Discrete(2), "x": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._task, self._step = int(self.np_random.integers(2)), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._seen(), 1000.0**self._task, self._step == 4, False, {}

    def _seen(self) -> Any:
        return {"task": self._task, "x": np.array([self._step / 4], np.float32)}


def test_an_environments_tasks_have_scales_of_their_own() -> None:
    options = {"value_head": "popart", "normalize_reward": False, "backend": "serial"}
    ppo = PPO(TwoTasks, **SMALL, **options)
    ppo.learn(4 * 32, progress=False)
    first, second = ppo.policy.critic_head.mean.tolist()
    assert 0.5 < first < 5
    assert 500 < second < 5000


class OfTasks(torch.nn.Module):
    """A policy of one's own with values of some tasks."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.actor, self.values = torch.nn.Linear(4, 2), PopArtValueHead(4, tasks)

    def forward(self, obs: Any) -> Any:
        return self.actor(obs), self.values(obs)[:, 0]


def test_tasks_that_no_observation_tells_are_refused() -> None:
    options = {"num_envs": 4, "num_steps": 8, "backend": "reference", "normalize_reward": False}
    with pytest.raises(ValueError, match=r"has 3 tasks, .* tell 1: they need a leaf 'task' of"):
        PPO("CartPole-v1", policy=OfTasks(3), **options)
    PPO("CartPole-v1", policy=OfTasks(1), **options).learn(64, progress=False)


def test_the_advantages_of_each_task_are_as_large_as_those_of_others() -> None:
    options = {"value_head": "popart", "normalize_reward": False, "backend": "serial"}
    ppo = PPO(TwoTasks, **SMALL, **options)
    engine, buffer = ppo.engine, ppo.buffer
    engine.collect(0, 0)
    gamma, decay = ppo.config.ppo.gamma, ppo.config.ppo.gae_lambda
    buffer.compute_advantages(gamma, decay)
    plain = buffer.advantage.clone()
    engine.advantages()
    task = ppo.engine.job.task_of(buffer.flat("obs")[0]).view(plain.shape)
    deviation = ppo.policy.critic_head.deviation()
    assert deviation[1] > 100 * deviation[0]
    torch.testing.assert_close(buffer.advantage, (plain / deviation[task]).float())


def test_exported_values_are_those_of_each_task(tmp_path: Path) -> None:
    space = spaces.Dict(
        {"task": spaces.Discrete(2, start=3), "x": spaces.Box(-1, 1, (2,), np.float32)}
    )
    policy = policy_for(space, spaces.Discrete(2), hidden=(8,), value_head="popart")
    policy.critic_head.update(torch.tensor([1.0, 3.0, 4000.0, 6000.0]), torch.arange(4) // 2)
    policy.eval()
    with torch.no_grad():
        policy.critic_head.bias += 1.0
    sample = {"task": torch.tensor([3, 4, 4, 3]), "x": torch.rand(4, 2)}
    assert ((policy(sample)[1] > 100) == (sample["task"] == 4)).all()
    path = tmp_path / "policy.onnx"
    export_onnx(policy, sample, path, postprocess=lambda head: head.argmax(-1))
    verify_onnx(policy, sample, path, lambda head: head.argmax(-1))


def test_exported_values_are_those_of_the_environment(tmp_path: Path) -> None:
    box, actions = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    policy = policy_for(box, actions, hidden=(8,), value_head="popart")
    policy.critic_head.update(torch.tensor([4000.0, 6000.0]))
    policy.eval()
    with torch.no_grad():
        policy.critic_head.bias += 1.0
    sample = torch.rand(5, 3)
    assert (policy(sample)[1] > 100).any()
    path = tmp_path / "policy.onnx"
    export_onnx(policy, sample, path, postprocess=lambda head: head.argmax(-1))
    verify_onnx(policy, sample, path, lambda head: head.argmax(-1))
