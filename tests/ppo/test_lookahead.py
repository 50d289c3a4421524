"""Iterations that begin before they are asked for: nobody can tell, but by the clock.

On a GPU where there is one, else in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import where
from operant.models import PPO
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError
from operant.training.snapshot import snapshot

pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow|divide):RuntimeWarning")
ON_GPU = torch.cuda.is_available()
ROLLOUT = 5 * 2


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> None:
    if not ON_GPU:
        request.getfixturevalue("interpreter")


class Each(Callback):
    """Does something after each update, and notes whether the next had begun by then."""

    def __init__(self, watches_only: bool, do: Callable[[PPO], Any] | None = None) -> None:
        self.watches_only, self._do = watches_only, do
        self.begun: list[bool] = []
        self.metrics: list[dict[str, float]] = []

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.begun.append(ppo.engine.begun is not None)  # type: ignore[attr-defined]
        self.metrics.append({k: v for k, v in metrics.items() if k not in TIMES})
        if self._do is not None:
            self._do(ppo)


class Watches(Callback):
    watches_only = True

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Sees figures."""


TIMES = ("seconds", "sps", "collect_seconds", "advantages_seconds", "update_seconds")


def made(env: Any = "CartPole-v1", num_envs: int = 5, **options: Any) -> PPO:
    given = {"num_steps": 2, "epochs": 1, "minibatches": 1, "seed": 3, "precision": "fp32"}
    batch = operant.make(
        env, num_envs, backend="cuda", autoreset_mode="SameStep", max_episode_steps=3
    )
    given |= {"normalize_obs": True, "normalize_reward": True, "hidden": (8,), "shared": True}
    ppo = PPO(batch, device="cuda" if ON_GPU else "cpu", engine="fused", **{**given, **options})
    assert ppo.engine.name == "fused", ppo.engine_reason
    return ppo


def everything(ppo: PPO) -> dict[str, bytes]:
    """All that the future depends on, but for clocks."""
    arrays, facts = snapshot(ppo)
    found = {
        f"{part}.{name}": np.asarray(array).tobytes()
        for part, named in arrays.items()
        for name, array in named.items()
        if name not in ("start", "episode_start")
    }
    return found | {"facts": repr({k: v for k, v in facts.items() if k != "seconds"}).encode()}


def differing(one: PPO, other: PPO) -> list[str]:
    a, b = everything(one), everything(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def test_an_iteration_begins_where_nobody_looks() -> None:
    resting, ahead, alone = (made(learning_rate_schedule="linear") for _ in range(3))
    rests, watches = Each(watches_only=False), Each(watches_only=True)
    resting.learn(3 * ROLLOUT, rests)
    ahead.learn(3 * ROLLOUT, [watches, Watches()])
    alone.learn(3 * ROLLOUT)
    assert rests.begun == [False] * 3
    assert watches.begun == [True, True, False]
    assert rests.metrics == watches.metrics
    assert resting.episodes == ahead.episodes > 0
    assert differing(resting, ahead) == differing(resting, alone) == []


def test_one_that_looks_is_enough_to_wait() -> None:
    class Shaped(Callback):
        watches_only = True  # which is not true

        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            buffer.reward *= 0.5

    class Listens(Callback):
        watches_only = True

        def on_episodes(self, ppo: PPO, episodes: Any) -> None:
            assert len(episodes)

    class Anew(Watches):
        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            assert ppo.env.get_state()

    for other in (Each(watches_only=False), Shaped(), Listens(), Anew()):
        watches = Each(watches_only=True)
        made().learn(2 * ROLLOUT, [watches, other])
        assert watches.begun == [False, False]


def test_who_stops_finds_no_trace_of_it() -> None:
    resting, ahead = made(), made()
    for ppo, promise in ((resting, False), (ahead, True)):
        each = Each(promise, lambda ppo: ppo.stop() if ppo.iteration == 2 else None)
        ppo.learn(4 * ROLLOUT, each)
        assert each.begun == [promise] * 2
        assert ppo.steps == 2 * ROLLOUT
    assert differing(resting, ahead) == []
    assert ahead.policy.training == resting.policy.training
    for ppo in (resting, ahead):
        ppo.learn(3 * ROLLOUT)
    assert differing(resting, ahead) == []


def test_an_error_of_a_callback_leaves_no_trace_of_it() -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    resting, ahead = made(), made()
    for ppo, promise in ((resting, False), (ahead, True)):
        each = Each(promise, fail)
        with pytest.raises(KeyboardInterrupt):
            ppo.learn(4 * ROLLOUT, each)
        assert each.begun == [promise]
    assert differing(resting, ahead) == []


def test_an_interrupted_iteration_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    resting, ahead = made(), made()
    resting.learn(ROLLOUT)
    inner = ahead.engine.engine  # type: ignore[attr-defined]
    find = inner.find_keys

    def interrupted(iteration: int) -> None:
        if iteration == 2:  # while the GPU does the second one, which was launched before
            raise KeyboardInterrupt
        find(iteration)

    with monkeypatch.context() as patch:
        patch.setattr(inner, "find_keys", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ahead.learn(4 * ROLLOUT)
    assert differing(resting, ahead) == []
    for ppo in (resting, ahead):
        ppo.learn(2 * ROLLOUT)
    assert differing(resting, ahead) == []


def test_saving_takes_it_back(tmp_path: Path) -> None:
    saved = {}
    for promise in (False, True):
        folder = tmp_path / str(promise)

        def save(ppo: PPO, folder: Path = folder) -> None:
            if ppo.iteration == 2:
                ppo.save(folder)

        ppo = made()
        ppo.learn(3 * ROLLOUT, Each(promise, save))
        saved[promise] = (everything(ppo), everything(PPO.load(folder, ppo.env)))
    assert saved[False] == saved[True]


def test_broken_promises_are_noticed() -> None:
    def move(ppo: PPO) -> None:
        for parameter in ppo.policy.parameters():
            parameter.data = torch.full_like(parameter, 0.01 * ppo.iteration)

    def slow_down(ppo: PPO) -> None:
        ppo.config = ppo.config.replaced({"ppo.learning_rate": 1e-3 / ppo.iteration})

    for do in (move, slow_down):
        resting, ahead = made(), made()
        resting.learn(2 * ROLLOUT, Each(False, do))
        ahead.learn(2 * ROLLOUT, Each(True, do))
        assert differing(resting, ahead) == []


def test_nothing_begins_after_a_bad_update() -> None:
    ppo = made(nan_guard=False)

    def spoil(ppo: PPO) -> None:
        with torch.no_grad():
            next(ppo.policy.parameters()).fill_(float("nan"))

    ppo.learn(ROLLOUT, Each(False, spoil))
    watches = Each(watches_only=True)
    ppo.learn(3 * ROLLOUT, watches)
    assert watches.begun == [False, False]


@pytest.mark.parametrize("promise", [False, True])
def test_a_bad_iteration_that_began_by_itself_is_undone(promise: bool) -> None:
    class Fades(operant.Env):
        """Gives NaN at the third step of an episode."""

        class State(NamedTuple):
            x: float
            steps: int

        observation_space = Box(-np.inf, np.inf, (1,))
        action_space = Discrete(2)
        max_episode_steps = 9

        def reset(random):
            return Fades.State(random[0], 0)

        def step(state, action):
            bad = where(state.steps == 2, float("nan"), 1.0)
            return Fades.State(state.x, state.steps + 1), bad, False

        def observe(state):
            return (state.x,)

    ppo = made(Fades, normalize_reward=False)
    each = Each(promise)
    with pytest.raises(NonFiniteError, match="reward"):
        ppo.learn(4 * ROLLOUT, each)
    assert each.begun == [promise]
    good = made(Fades, normalize_reward=False).learn(ROLLOUT)
    assert ppo.steps == good.steps == ROLLOUT
    assert ppo.optimizer.count == good.optimizer.count
    for ours, theirs in zip(ppo.policy.parameters(), good.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize("target_kl", [0.0, 1e-4])
def test_on_a_gpu_every_launch_is_the_same(precision: str, target_kl: float) -> None:
    options = {"epochs": 3, "minibatches": 3, "hidden": (64, 64), "shared": False}
    options |= {"precision": precision, "target_kl": target_kl, "num_steps": 7}
    resting, ahead = made(num_envs=1000, **options), made(num_envs=1000, **options)
    resting.learn(12 * 7000, Each(watches_only=False))
    ahead.learn(12 * 7000, Each(watches_only=True))
    assert differing(resting, ahead) == []
