"""Windows of steps, against a loop over the environments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import operant
from operant.models import PPO
from operant.training.callbacks import WindowCallback
from operant.utils import Window, WindowMetrics, chosen_infos


def looped(size, rewards, terminated, truncated, returns, lengths, figures):
    """The windows, found one environment after the other. Arrays ``[T, N]``."""
    windows, now = [], None
    for steps, (t, i) in enumerate(np.ndindex(rewards.shape), 1):
        if now is None:
            now = {"reward": 0.0, "episodes": 0, "truncated": 0, "return_sum": 0.0}
            now |= {"length_sum": 0, "seen": [], "sums": dict.fromkeys(figures, 0.0)}
        now["reward"] += float(rewards[t, i])
        for name, values in figures.items():
            now["sums"][name] += float(values[t, i])
        if terminated[t, i] or truncated[t, i]:
            now["episodes"] += 1
            now["truncated"] += int(truncated[t, i])
            now["return_sum"] += float(returns[t, i])
            now["length_sum"] += int(lengths[t, i])
            now["seen"].append(float(returns[t, i]))
        if steps % size == 0:
            seen = now.pop("seen")
            now |= {"return_min": min(seen, default=math.nan)}
            now |= {"return_max": max(seen, default=math.nan)}
            windows.append(Window(number=len(windows), steps=size, last_step=steps, **now))
            now = None
    return windows


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        for name, value in vars(b).items():
            found = getattr(a, name)
            assert found == value or (math.isnan(found) and math.isnan(value)), (name, found, value)


@given(
    num_envs=st.integers(1, 7),
    steps=st.integers(1, 12),
    size=st.integers(1, 30),
    block=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_windows_are_those_of_a_loop_over_environments(num_envs, steps, size, block, seed):
    random = np.random.default_rng(seed)
    shape = (steps, num_envs)
    rewards = random.normal(size=shape).astype(np.float32) * 10.0 ** random.integers(-3, 6, shape)
    terminated, truncated = random.random((2, *shape)) < 0.3
    returns, lengths = random.normal(size=shape), random.integers(1, 500, shape)
    figures = {"gold": random.normal(size=shape), "fuel": random.normal(size=shape)}
    windows, found = WindowMetrics(size), []
    for t in range(0, steps, block):
        part = slice(t, t + block)
        info = {"episode": {"r": returns[part], "l": lengths[part]}}
        others = {name: values[part] for name, values in figures.items()}
        found += windows.update(rewards[part], terminated[part], truncated[part], info, **others)
    same(found, looped(size, rewards, terminated, truncated, returns, lengths, figures))
    assert windows.steps == steps * num_envs


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_windows_of_an_environment(mode):
    env = operant.make("CartPole-v1", 16, backend="cpu", seed=3, autoreset_mode=mode)
    env.reset()
    windows, found, told = WindowMetrics(100), [], []
    random = np.random.default_rng(0)
    for _ in range(200):
        _, reward, terminated, truncated, info = env.step(random.integers(0, 2, 16))
        found += windows.update(reward, terminated, truncated, info)
        zeros = {"r": np.zeros(16), "l": np.zeros(16)}
        episode = info.get("episode", zeros)
        told.append((reward, terminated, truncated, episode["r"], episode["l"]))
    expected = looped(100, *map(np.stack, zip(*told, strict=True)), {})
    same(found, expected)
    assert len(found) == 32
    assert sum(window.episodes for window in found) > 20
    assert found[-1].mean_length == found[-1].length_sum / found[-1].episodes
    assert found[-1].mean_reward == found[-1].reward / 100


def test_windows_of_a_training_add_up_to_its_episodes():
    seen, finished = [], []

    class Returns(WindowCallback):
        def on_episodes(self, ppo, episodes):
            super().on_episodes(ppo, episodes)
            finished.extend(episodes.returns.tolist())

    ppo = PPO("CartPole-v1", num_envs=8, seed=1, num_steps=32, minibatches=2, engine="eager")
    ppo.learn(8 * 32 * 5, Returns(64, seen.append))
    assert [window.number for window in seen] == list(range(20))
    assert sum(window.reward for window in seen) == 8 * 32 * 5  # CartPole: 1 a step
    assert sum(window.episodes for window in seen) == len(finished)
    assert sum(window.return_sum for window in seen) == sum(finished)
    assert max(window.return_max for window in seen if window.episodes) == max(finished)


def test_an_empty_window_has_no_mean():
    (window,) = WindowMetrics(2).update(np.ones(2), np.zeros(2, bool), np.zeros(2, bool))
    assert window.reward == 2
    assert math.isnan(window.mean_return)
    assert math.isnan(window.mean_length)
    assert math.isnan(window.return_min)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "ten"])
def test_a_bad_size_is_refused(size):
    with pytest.raises(ValueError, match="at least one step"):
        WindowMetrics(size)


def test_shapes_and_names_must_stay():
    windows, flags = WindowMetrics(10), np.zeros(3, bool)
    with pytest.raises(ValueError, match=r"truncated must have the shape \(3,\)"):
        windows.update(np.ones(3), flags, np.zeros(4, bool))
    windows.update(np.ones(3), flags, flags, gold=np.ones(3))
    with pytest.raises(ValueError, match="the figures are gold; got none"):
        windows.update(np.ones(3), flags, flags)
    assert windows.steps == 3


def test_infos_of_finished_and_sampled_environments_only():
    info = {
        "episode": {"r": np.array([1.0, 2.0, 3.0, 4.0]), "l": np.array([5, 6, 7, 8])},
        "_episode": np.array([False, True, False, False]),
        "speed": np.array([0.1, 0.2, 0.3, 0.4]),
    }
    terminated = np.array([False, True, False, False])
    found = list(chosen_infos(info, terminated, np.zeros(4, bool), sample=[3]))
    assert found == [
        {"env": 1, "episode": {"r": 2.0, "l": 6}, "speed": 0.2},
        {"env": 3, "speed": 0.4},
    ]
    assert list(chosen_infos({}, np.zeros(4, bool), np.zeros(4, bool))) == []
