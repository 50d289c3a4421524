"""Rows that rest between two episodes: nothing of them is paid, learnt or counted."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from operant import PPO
from operant.models import ICM, RND, Bonus, EpisodicCount
from operant.training.callbacks import Callback

SMALL: dict[str, Any] = {"num_steps": 16, "hidden": (4,), "seed": 1, "threads": 1}
STEPS = (3, 5)
"""Of an episode of the first environment, and of the second."""


class Line(gymnasium.Env[Any, Any]):
    """Shows how many steps of this episode were taken, and which environment it is."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 100, (2,), np.float32)

    def __init__(self, which: int, cut: bool) -> None:
        self.which, self.cut = which, cut

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_now = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_now += 1
        over = self.step_now == STEPS[self.which]
        return self._seen(), 1.0, over and not self.cut, over and self.cut, {}

    def _seen(self) -> Any:
        return np.array([self.step_now, self.which], np.float32)


def lines(mode: AutoresetMode, cut: bool = False) -> SyncVectorEnv:
    return SyncVectorEnv([lambda k=k: Line(k, cut) for k in range(2)], autoreset_mode=mode)


class Watching(Bonus):
    """Pays what follows; remembers what it is shown, all rollouts one after the other."""

    name = "watching"

    def build(self, setting: Any) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.observed: list[Tensor] = []
        self.trained: list[Any] = []
        self.seen: list[Tensor] = []

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        self.seen.append(next_obs.clone())
        return next_obs[..., 0].clone()

    def observe(self, obs: Tensor) -> None:
        self.observed.append(obs.clone())

    def loss(self, batch: Any) -> Tensor:
        self.trained.append(batch)
        return (self.weight - batch.next_obs[:, 0]).square()


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.rows.append(dict(metrics))


def follows(obs: Tensor, following: Tensor) -> bool:
    return bool((following[:, 0] == obs[:, 0] + 1).all() and (following[:, 1] == obs[:, 1]).all())


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_is_seen_and_learnt_are_steps_of_one_episode(mode: AutoresetMode, cut: bool) -> None:
    bonus, rows = Watching(), Rows()
    options = {"intrinsic.share": 1.0}
    ppo = PPO(lines(mode, cut), **SMALL, intrinsic=bonus, **options)
    ppo.learn(3 * 32, rows, progress=False)
    for batch in bonus.trained:
        assert follows(batch.obs, batch.next_obs)
    rests = mode == AutoresetMode.NEXT_STEP
    live = [32] * 3 if not rests else None
    for k, seen in enumerate(bonus.observed):
        seen = seen.reshape(-1, 2)
        assert (seen[:, 0] >= 1).all()
        if live is not None:
            assert len(seen) == live[k]
        # Every step is one of its episode, the last ones included.
        for which, last in enumerate(STEPS):
            own = seen[seen[:, 1] == which, 0]
            assert {int(x) for x in own} == set(range(1, last + 1))
    scale = ppo.add_ons._all[0]._parts["scale_watching"]  # type: ignore[union-attr]
    assert int(scale.normalizer.count) == sum(x.reshape(-1, 2).shape[0] for x in bonus.observed)
    if rests:
        assert ppo.buffer.live is not None
        assert not ppo.buffer.live.all()
        assert (ppo.buffer.reward[~ppo.buffer.live] == 0).all()


def test_the_mean_is_that_of_the_samples() -> None:
    class Two(Watching):
        normalized = False

        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return torch.full(action.shape[:2], 2.0)

    rows = Rows()
    ppo = PPO(lines(AutoresetMode.NEXT_STEP), **SMALL, intrinsic=Two())
    ppo.learn(64, rows, progress=False)
    assert [row["intrinsic/reward_mean"] for row in rows.rows] == [2.0, 2.0]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_counts_are_of_what_was_played(mode: AutoresetMode) -> None:
    """Every observation of an episode is new in it, its first one was seen when it began."""
    rows = Rows()
    ppo = PPO(lines(mode), **SMALL, intrinsic=EpisodicCount())
    ppo.learn(4 * 32, rows, progress=False)
    (intrinsic,) = ppo.add_ons
    (count,) = intrinsic.bonuses
    assert [row["intrinsic/count_new"] for row in rows.rows] == [1.0] * 4
    assert float(count.state_figures()["states"]) == pytest.approx(sum(STEPS) + 2, abs=0.5)
    # An episode has as many places as it has steps, and one for its first observation.
    for which, last in enumerate(STEPS):
        episode = int(count.episode[which])
        own = (count.stamps[which] == episode - 1) if episode > 1 else torch.zeros(0)
        assert int(own.sum()) <= last + 1


def test_predictors_train_on_samples_alone() -> None:
    """The inputs' statistics are those of the steps played, and the losses finite."""
    rows = Rows()
    bonuses = [RND((4,), 3, random_steps=0), ICM((4,), 3, random_steps=0)]
    ppo = PPO(lines(AutoresetMode.NEXT_STEP), **SMALL, intrinsic=bonuses)
    ppo.learn(2 * 32, rows, progress=False)
    (intrinsic,) = ppo.add_ons
    for one in intrinsic.bonuses:
        normalizer = one.inputs.normalizers[0]
        samples = int(normalizer.count)
        assert 32 < samples < 64
        assert float(normalizer.mean[0]) > 1.5  # no first observation of an episode is in it
    assert all(np.isfinite(v) for name, v in rows.rows[-1].items() if name.startswith("intrinsic"))
