"""Bonuses under every engine: ends of episodes, precision of observations, and a weight of 0."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from operant import PPO
from operant.buffers.advantages import gae_torch
from operant.models import Bonus, EpisodicCount

SMALL: dict[str, Any] = {"num_steps": 16, "hidden": (4,), "seed": 1, "threads": 1}
TINY = {"intrinsic.hidden": (4,), "intrinsic.features": 4, "intrinsic.random_steps": 0}


class Clock(gymnasium.Env[Any, Any]):
    """Shows the steps of this episode; every third episode is cut short, others terminate."""

    action_space = spaces.Discrete(2)

    def __init__(self, dtype: Any = np.float32) -> None:
        self.observation_space = spaces.Box(0, 100, (2,), dtype)
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.now = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now += 1
        over, cut = self.now == 4, self.episode % 3 == 0
        return self._seen(), 1.0 + int(action), over and not cut, over and cut, {}

    def _seen(self) -> Any:
        # The second number alone tells steps apart.
        return np.array([7, self.now], self.observation_space.dtype)


def clocks(mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([Clock] * 3, autoreset_mode=mode)


SETUPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "eager": ("CartPole-v1", {"num_envs": 4, "engine": "eager", "max_episode_steps": 9}),
    "fused": ("CartPole-v1", {"num_envs": 4, "engine": "fused", "max_episode_steps": 9}),
    "stepped": (Clock, {"num_envs": 4, "backend": "serial", "engine": "fused"}),
    "frames": (Clock, {"num_envs": 4, "backend": "serial", "frame_stack": 2}),
    "next step": (lambda: clocks(AutoresetMode.NEXT_STEP), {}),
    "disabled": (lambda: clocks(AutoresetMode.DISABLED), {"engine": "eager"}),
}


def trained(name: str, **options: Any) -> PPO:
    env, sizes = SETUPS[name]
    made = env if isinstance(env, str) or env is Clock else env()
    ppo = PPO(made, **SMALL | sizes | options)
    assert ppo.engine_name == {"fused": "fused", "stepped": "fused"}.get(name, "eager")
    return ppo.learn(4 * len(ppo.buffer), progress=False)


@pytest.mark.parametrize("name", SETUPS)
def test_a_weight_of_0_changes_nothing(name: str) -> None:
    """To the bit: episodes that terminate and others that are cut short are among them."""
    sizes = {"num_steps": 32, "hidden": (8,)}
    bonuses = {"intrinsic": ["rnd", "icm", "count"], "intrinsic.coef": 0.0, **TINY}
    ends = [
        torch.cat([p.flatten() for p in trained(name, **sizes, **options).policy.parameters()])
        for options in ({}, bonuses)
    ]
    assert ends[0].equal(ends[1])


class Ones(Bonus):
    name = "ones"
    figures = ()
    normalized = False

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        self.following = next_obs
        return torch.ones(action.shape[:2])


@pytest.mark.parametrize("name", ["stepped", "frames", "next step", "disabled"])
def test_an_end_is_followed_by_the_final_observation(name: str) -> None:
    bonus = Ones()
    ppo = trained(name, intrinsic=bonus)
    now, following = (x.flatten(2)[..., -1] for x in (_seen(ppo), bonus.following))
    live = torch.ones_like(following).bool() if ppo.buffer.live is None else ppo.buffer.live
    assert (following == now + 1)[live].all()
    ended = ppo.buffer.terminated | ppo.buffer.truncated
    assert (following[ended] == 4).all()
    assert ppo.buffer.terminated.any()
    assert ppo.buffer.truncated.any()


def _seen(ppo: PPO) -> Tensor:
    index = torch.arange(len(ppo.buffer))
    return ppo.buffer.flat("obs")[0].index_select(0, index).unflatten(0, (16, -1))


@pytest.mark.parametrize("name", ["eager", "frames", "next step", "disabled"])
def test_time_limits_end_the_rewards_stream_with_a_value_and_the_bonuses_not(name: str) -> None:
    """Both advantages by their formula, after a rollout with the policy as it is."""
    options = {"intrinsic.separate_value": True, "intrinsic.coef": 0.25, "normalize_reward": False}
    ppo = trained(name, intrinsic=Ones(), **options)
    job, buffer, config = ppo.engine.job, ppo.buffer, ppo.config
    ppo.engine.collect(4, 64)
    ppo.collected([], [])
    ppo.engine.advantages()
    cut = buffer.truncated & ~buffer.terminated
    assert cut.any()
    with torch.no_grad():
        values = job.value(buffer.next_obs().flatten(0, 1)).view_as(buffer.reward)
    torch.testing.assert_close(buffer.final_value[cut], values[cut])
    ends = (buffer.terminated, buffer.truncated, buffer.final_value, buffer.last_value)
    decay = config.ppo.gae_lambda
    of_rewards, target = gae_torch(buffer.reward, buffer.value, *ends, config.ppo.gamma, decay)
    torch.testing.assert_close(buffer.target, target)
    live = torch.ones_like(cut) if buffer.live is None else buffer.live
    both = of_rewards + 0.25 * buffer.intrinsic.advantage
    torch.testing.assert_close(buffer.advantage[live], both[live])
    # A bonus of 1 and what follows it, in the next episode too.
    own, gamma = buffer.intrinsic, config.intrinsic.gamma
    for row in range(buffer.num_envs):
        steps = [t for t in range(16) if live[t, row]]
        for t, following in itertools.pairwise(steps):
            delta = 1 + gamma * own.value[following, row] - own.value[t, row]
            wanted = delta + gamma * decay * own.advantage[following, row]
            torch.testing.assert_close(own.advantage[t, row], wanted)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int64])
def test_counts_look_at_all_of_an_observation(dtype: Any) -> None:
    """The fused engine keeps numbers as its kernels read them, whatever the space has."""
    found = []
    for engine in ("fused", "eager"):
        count = EpisodicCount()
        options = {"backend": "serial", "num_envs": 4, "engine": engine, "intrinsic": count}
        ppo = PPO(lambda: Clock(dtype), **SMALL, **options).learn(128, progress=False)
        if dtype is not np.uint8:
            assert ppo.engine_name == engine
        found.append({name: float(x) for name, x in count.state_figures().items()})
    assert found[0] == found[1]
    assert found[0]["new"] == 1
    assert found[0]["states"] == pytest.approx(5, abs=0.1)
