"""Add-ons: an intrinsic reward with a network of its own, saved, undone and resumed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from operant import PPO
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import CheckpointError, latest_checkpoint, load_checkpoint
from operant.runs.logs import read_csv
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "hidden": (4,), "seed": 1, "threads": 1}
ROLLOUT = 32


class Novelty(AddOn):
    """Rewards observations that a linear map does not yet send to zero."""

    name = "novelty"
    metrics = ("loss", "reward")

    def __init__(self, rate: float = 0.1) -> None:
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.rate = rate

    def parameters(self) -> list[torch.nn.Parameter]:
        return [self.weight]

    def _errors(self, buffer: Any) -> torch.Tensor:
        found: torch.Tensor = (buffer.obs[1:] @ self.weight).square()
        return found

    def after_collect(self, trainer: Any, buffer: Any) -> None:
        bonus = self._errors(buffer).detach()
        buffer.reward += bonus
        self.bonus = float(bonus.mean())

    def update(self, trainer: Any, buffer: Any) -> dict[str, float]:
        loss = self._errors(buffer).mean()
        (gradient,) = torch.autograd.grad(loss, self.weight)
        with torch.no_grad():
            self.weight -= self.rate * gradient
        return {"loss": loss.item(), "reward": self.bonus}

    def state(self) -> dict[str, np.ndarray]:
        return {"weight": self.weight.detach().numpy().copy()}

    def set_state(self, state: Any) -> None:
        if state["weight"].shape != (4,):
            raise ValueError(f"weight must have shape (4,), got {state['weight'].shape}")
        self.weight.data.copy_(torch.from_numpy(state["weight"]))


class Seen(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.rows.append(metrics)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_it_changes_rewards_and_trains_itself(engine: str) -> None:
    novelty, seen = Novelty(), Seen()
    ppo = PPO("CartPole-v1", **SMALL, engine=engine, add_ons=[novelty])
    plain = PPO("CartPole-v1", **SMALL, engine=engine)
    ppo.learn(3 * ROLLOUT, seen, progress=False)
    plain.learn(3 * ROLLOUT, progress=False)
    assert ppo.engine.name == engine
    assert float(novelty.weight.detach().norm()) < 2.0  # that of ones: it moves towards zero
    assert all(row["novelty/loss"] > 0 for row in seen.rows)
    assert seen.rows[0]["novelty/reward"] > 0
    assert list(seen.rows[0])[-2:] == ["novelty/loss", "novelty/reward"]
    pairs = zip(ppo.policy.parameters(), plain.policy.parameters(), strict=True)
    assert not all(one.equal(other) for one, other in pairs)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_saved_loaded_and_copied_to_the_bit(engine: str, tmp_path: Path) -> None:
    ppo = PPO("CartPole-v1", **SMALL, engine=engine, add_ons=[Novelty()])
    ppo.learn(2 * ROLLOUT, progress=False)
    ppo.save(tmp_path)
    copied = copy.deepcopy(ppo)
    loaded = PPO.load(tmp_path, add_ons=[Novelty()])
    weights = []
    for one in (ppo, copied, loaded):
        one.learn(4 * ROLLOUT, progress=False)
        (novelty,) = one.add_ons
        weights.append([novelty.weight, *one.policy.parameters()])
    for other in weights[1:]:
        assert other[0] is not weights[0][0]
        assert all(a.equal(b) for a, b in zip(weights[0], other, strict=True))


def test_a_run_resumed_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    values = {"env.num_envs": 4, "env.backend": "reference", "ppo.num_steps": 8}
    values |= {"policy.hidden": [4], "run.total_steps": 4 * ROLLOUT}

    class Half(Callback):
        def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
            if trainer.iteration == 2:
                trainer.stop()

    ends = []
    for name, callbacks in (("whole", []), ("half", [Half()])):
        config = resolved("CartPole-v1", values)
        session = Session.start(config, "CartPole-v1", name, add_ons=[Novelty()])
        session.train(callbacks)
        if callbacks:
            with pytest.raises(CheckpointError, match=r"written with the add-ons \['novelty'\]"):
                Session.resume(session.run)
            session = Session.resume(session.run, add_ons=[Novelty()])
            session.train()
        assert len(read_csv(session.run.csv_file)["novelty/loss"]) == 4
        ends.append(load_checkpoint(latest_checkpoint(session.run.checkpoints)).arrays)
    assert ends[0].keys() == ends[1].keys()
    assert "add_on_novelty" in ends[0]
    for group, part in ends[0].items():
        for name, array in part.items():
            np.testing.assert_array_equal(array, ends[1][group][name], err_msg=name)


def test_the_nan_guard_looks_at_it_and_puts_everything_back() -> None:
    novelty = Novelty()
    ppo = PPO("CartPole-v1", **SMALL, add_ons=[novelty])
    ppo.learn(ROLLOUT, progress=False)
    before = copy.deepcopy((novelty.state(), ppo.policy.state_dict()))
    novelty.rate = float("inf")
    with pytest.raises(NonFiniteError, match="add-on novelty is not finite: after its own update"):
        ppo.learn(2 * ROLLOUT, progress=False)
    np.testing.assert_array_equal(novelty.state()["weight"], before[0]["weight"])
    assert all(tensor.equal(before[1][name]) for name, tensor in ppo.policy.state_dict().items())


def test_what_is_refused(tmp_path: Path) -> None:
    class Loud(AddOn):
        name = "Loud!"

    for add_ons, kind, text in (
        ([Novelty(), Novelty()], ValueError, "names of their own, got novelty, novelty"),
        ([Loud()], ValueError, "lower-case letters and _, .* has 'Loud!'"),
        ([Novelty], TypeError, "add_ons must be objects"),
    ):
        with pytest.raises(kind, match=text):
            PPO("CartPole-v1", **SMALL, backend="reference", add_ons=add_ons)
    PPO("CartPole-v1", **SMALL, backend="reference").save(tmp_path / "plain")
    with pytest.raises(CheckpointError, match=r"add-ons \[\], but add_ons has \['novelty'\]"):
        PPO.load(tmp_path / "plain", add_ons=[Novelty()])
