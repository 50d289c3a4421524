"""The fused engine on environments that their batch steps, beside the eager one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant.models import PPO
from operant.training.guard import NonFiniteError
from operant.vector.foreign_batch import ForeignBatch, ForeignEnvError

STEPS = 12
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "float32": spaces.Box(-9, 9, (2,), np.float32),
    "float64": spaces.Box(-9, 9, (2, 3), np.float64),
    "int16": spaces.Box(-9, 9, (3,), np.int16),
    "int64": spaces.Box(-9, 9, (2,), np.int64),
    "uint8": spaces.Box(0, 9, (4,), np.uint8),
    "number": spaces.Box(-9, 9, (), np.float32),
    "Discrete": spaces.Discrete(7, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4], dtype=np.int32, start=[1, -1]),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(3, start=1),
    "MultiDiscrete": spaces.MultiDiscrete([[2, 3]], start=[[1, -1]]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(-0.5, np.array([0.5, np.inf]), (2,), np.float64),
}


class Walk(gymnasium.Env[Any, Any]):
    """Shows random elements of its space; its actions decide what it pays, and when it ends by
    itself. Otherwise it is cut short after seven steps."""

    def __init__(
        self, obs: str = "float32", action: str = "Discrete", masked: bool = False, bad: str = ""
    ) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[obs], ACTIONS[action]
        self.masked, self.bad = masked, bad

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen()

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        space, random = self.observation_space, self.np_random
        if isinstance(space, spaces.Box):
            seen = np.asarray(random.uniform(space.low, space.high)).astype(space.dtype)
        else:
            start, size = space.start, getattr(space, "nvec", getattr(space, "n", 0))
            seen = np.asarray(start + random.integers(size)).astype(space.dtype)
        if self.bad == "obs" and self._steps == 3:
            seen[0] = np.inf
        allowed = random.random(3) < 0.5
        allowed[random.integers(3)] = True
        return seen, {"action_mask": allowed} if self.masked else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self._steps += 1
        reward = float(np.sum(action)) + 0.1 * self.np_random.random()
        seen, info = self._seen()
        ended = bool(self.np_random.random() < 0.1)
        return seen, reward, ended, self._steps == 7, info


def made(engine: str, num_envs: int = 9, env: Any = None, **options: Any) -> PPO:
    batch = ForeignBatch(env or Walk, num_envs, backend=options.pop("backend", "serial"))
    settings = {"num_steps": STEPS, "seed": 5, "threads": 2, "hidden": (12, 12), "device": "cpu"}
    ppo = PPO(batch, engine=engine, **{**settings, "minibatches": 1, "epochs": 2, **options})
    assert ppo.engine.name == engine, ppo.engine_reason
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=random)
    return ppo


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def close(a: Any, b: Any, name: str = "") -> None:
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=name)


def compare(fused: PPO, eager: PPO) -> None:
    """Two iterations of each. All that actions lead to is the same to the bit if they are choices,
    as long as weights that differ by rounding choose alike."""
    exact = not fused.engine.buffer.action.is_floating_point()
    for iteration in range(2):
        episodes = [p.engine.collect(iteration, iteration * STEPS) for p in (fused, eager)]
        ours, theirs = fused.engine.buffer, eager.engine.buffer
        for name in ("obs", "action", "reward", "terminated", "truncated", "action_mask"):
            a, b = ours.arrays[name], theirs.arrays[name].astype(ours.arrays[name].dtype)
            np.testing.assert_array_equal(a, b, name) if exact else close(a, b, name)
        for name in ("env_index", "step", "returns", "lengths", "truncated"):
            close(getattr(episodes[0], name), getattr(episodes[1], name), name)
        np.testing.assert_array_equal(ours.final_place, theirs.final_place)
        close(ours.final_obs, theirs.final_obs)
        cut = theirs.arrays["truncated"] & ~theirs.arrays["terminated"]
        assert cut.any()
        assert theirs.arrays["terminated"].any()
        close(ours.arrays["final_value"][cut], theirs.arrays["final_value"][cut])
        figures = []
        for ppo in (fused, eager):
            ppo.engine.advantages()
            figures.append(ppo.engine.update(iteration, 3e-3, 0.2))
        for name in ("log_prob", "value", "last_value", "reward", "advantage", "target"):
            np.testing.assert_allclose(
                ours.arrays[name], theirs.arrays[name], rtol=1e-4, atol=1e-4, err_msg=name
            )
        assert figures[0] == pytest.approx(figures[1], rel=2e-3, abs=2e-5)
        torch.testing.assert_close(weights(fused), weights(eager), rtol=2e-4, atol=5e-5)


@pytest.mark.parametrize("obs", OBSERVATIONS)
def test_every_observation_of_one_array(obs: str) -> None:
    normalize = isinstance(OBSERVATIONS[obs], spaces.Box)
    options = {"env": partial(Walk, obs), "normalize_obs": normalize, "normalize_reward": True}
    compare(made("fused", **options), made("eager", **options))


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action(action: str) -> None:
    compare(*(made(name, env=partial(Walk, action=action)) for name in ("fused", "eager")))


@pytest.mark.parametrize("num_envs", [1, 70, 150])
def test_any_number_of_environments(num_envs: int) -> None:
    env = partial(Walk, "float64")
    steps = 60 if num_envs == 1 else STEPS
    fused, eager = (made(name, num_envs, env, num_steps=steps) for name in ("fused", "eager"))
    for ppo in (fused, eager):
        ppo.engine.collect(0, 0)
    for name in ("action", "reward", "truncated"):
        np.testing.assert_array_equal(
            fused.engine.buffer.arrays[name], eager.engine.buffer.arrays[name]
        )
    close(fused.engine.buffer.arrays["value"], eager.engine.buffer.arrays["value"])


def test_masks() -> None:
    env = partial(Walk, masked=True)
    fused, eager = made("fused", env=env), made("eager", env=env)
    compare(fused, eager)
    buffer = fused.engine.buffer
    mask, action = buffer.arrays["action_mask"], buffer.arrays["action"]
    assert not mask.all()
    assert np.take_along_axis(mask, action[..., None], -1).all()


def test_threads_and_processes_change_no_bits() -> None:
    runs = [
        made("fused", 70, threads=threads, backend=backend, minibatches=3).learn(3 * 70 * STEPS)
        for threads, backend in ((1, "serial"), (4, "serial"), (2, "processes"))
    ]
    for other in runs[1:]:
        assert torch.equal(weights(runs[0]), weights(other))
    for ppo in runs:
        ppo.env.close()


def test_the_engine_says_that_environments_step_outside() -> None:
    assert made("fused").engine_reason.endswith(
        "its environments step outside of it, in their batch"
    )
    auto = PPO(ForeignBatch(Walk, 2, backend="serial"), device="cpu", num_steps=4, minibatches=1)
    assert auto.engine.name == "fused"
    tree = Walk()
    tree.observation_space = spaces.Dict({"one": OBSERVATIONS["float32"]})
    tree._seen = lambda: ({"one": np.zeros(2, np.float32)}, {})  # type: ignore[method-assign]
    other = PPO(
        ForeignBatch(lambda: tree, 1, backend="serial"), device="cpu", num_steps=4, minibatches=1
    )
    assert other.engine.name == "eager"
    assert "one array, not Dict and Tuple" in other.engine_reason


def test_a_bad_observation_is_found() -> None:
    with pytest.raises(NonFiniteError, match=r"the observation of environment . .* at step 3"):
        made("fused", env=partial(Walk, bad="obs")).learn(9 * STEPS)


def test_a_bad_policy_is_found() -> None:
    ppo = made("fused", env=partial(Walk, action="Box"))
    with torch.no_grad():
        ppo.policy.actor_head.bias[0] = torch.nan
    with pytest.raises(NonFiniteError, match="the policy's own output"):
        ppo.learn(9 * STEPS)


def test_a_number_outside_of_its_space_is_said() -> None:
    class Outside(Walk):
        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return np.int64(9), *rest

    wanted = r"\(Outside\) gave an observation that is 9, which is not in its space Discrete\(7"
    with pytest.raises(ForeignEnvError, match=wanted + r".*, action \d\)"):
        made("fused", env=partial(Outside, "Discrete")).learn(9 * STEPS)


def test_a_saved_trainer_goes_on_to_the_bit(tmp_path: Path) -> None:
    def batch() -> ForeignBatch:
        make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=15)
        return ForeignBatch(make, 6, backend="serial")

    size, options = 6 * 32, {"num_steps": 32, "seed": 3, "device": "cpu", "minibatches": 4}
    options |= {
        "normalize_obs": True,
        "normalize_reward": True,
        "learning_rate_schedule": "constant",
    }
    whole = PPO(batch(), **options).learn(4 * size)
    half = PPO(batch(), **options).learn(2 * size)
    assert half.engine.name == "fused"
    half.save(tmp_path / "saved")
    again = PPO.load(tmp_path / "saved", env=batch()).learn(4 * size)
    assert torch.equal(weights(again), weights(whole))
    assert (again.episodes, again.mean_return) == (whole.episodes, whole.mean_return)
    np.testing.assert_array_equal(again.buffer.arrays["obs"], whole.buffer.arrays["obs"])
