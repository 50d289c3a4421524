"""The random stream: published words, uniform numbers, and independence of everything it names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numba import njit

import operant
from operant.compiler.philox import philox, uniforms
from operant.compiler.runtime import numba_philox

# Random123, tests/kat_vectors: philox4x32 10 — counter, key, words.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@njit
def compiled_philox(c0, c1, c2, c3, k0, k1):
    return numba_philox.philox(c0, c1, c2, c3, k0, k1)


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


class SixDraws(operant.Env):
    """Shows its random numbers: six at the reset, six at each step."""

    class State(NamedTuple):
        u0: float
        u1: float
        u2: float
        u3: float
        u4: float
        u5: float

    observation_space = Box(0.0, 1.0, (6,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 4
    random_numbers = 6

    def reset(random):
        return SixDraws.State(*random)

    def step(state, action, random):
        return SixDraws.State(*random), 0.0, (random[5] < 0.25) & (action == 1)

    def observe(state):
        return state


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_published_words_numpy(counter: str, key: str, expected: str) -> None:
    result = philox(tuple(words(counter)), tuple(words(key)))
    assert result.dtype == np.uint32
    assert result.tolist() == words(expected)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_published_words_numba(counter: str, key: str, expected: str) -> None:
    arguments = [np.uint32(word) for word in words(counter) + words(key)]
    assert [int(word) for word in compiled_philox(*arguments)] == words(expected)


def test_numpy_words_broadcast_and_equal_numba() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 2**32, (6, 500), dtype=np.uint32)
    batch = philox(tuple(inputs[:4]), tuple(inputs[4:]))
    assert batch.shape == (4, 500)
    for k in range(500):
        assert tuple(batch[:, k]) == compiled_philox(*inputs[:, k])


def draws(
    seed: int = 1, index: object = 0, episode: object = 0, step: object = 0, count: int = 4
) -> np.ndarray:
    """``[count, n]`` uniform numbers for the words that broadcast together."""
    arrays = np.broadcast_arrays(np.uint64(seed), index, episode, step)
    return np.array(uniforms(*arrays, count))


def test_uniforms_are_multiples_of_two_to_the_minus_24_below_one() -> None:
    values = draws(index=np.arange(50_000), count=7)
    assert values.dtype == np.float32
    assert values.shape == (7, 50_000)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    scaled = values.astype(np.float64) * 2**24
    assert (scaled == np.floor(scaled)).all()
    assert (scaled % 2 == 1).mean() == pytest.approx(0.5, abs=0.01)  # all 24 bits are used
    assert uniforms(np.uint64(1), 0, 0, 0, 0) == []


@pytest.mark.parametrize("word", ["index", "episode", "step"])
def test_each_word_of_the_position_gives_uniform_independent_numbers(word: str) -> None:
    n = 50_000
    values = draws(**{word: np.arange(n)}, count=8).astype(np.float64)
    noise = 1 / np.sqrt(n)
    assert np.abs(values.mean(axis=1) - 0.5).max() < 4 * noise * np.sqrt(1 / 12)
    assert np.abs(values.var(axis=1) - 1 / 12).max() < 4 * noise * np.sqrt(1 / 180)
    counts = np.array([np.histogram(row, 64, (0.0, 1.0))[0] for row in values])
    chi_squared = ((counts - n / 64) ** 2 / (n / 64)).sum(axis=1)  # mean 63, deviation 11.2
    assert chi_squared.max() < 63 + 5 * 11.2
    # The eight draws (two blocks) among each other, and each with its neighbours.
    between_draws = np.corrcoef(values) - np.eye(8)
    assert np.abs(between_draws).max() < 5 * noise
    for lag in (1, 2, 32):
        for row in values:
            assert abs(np.corrcoef(row[:-lag], row[lag:])[0, 1]) < 5 * noise


def test_environments_episodes_steps_and_blocks_never_share_words() -> None:
    index, episode, step = (a.ravel() for a in np.meshgrid(*[np.arange(30)] * 3))
    seeds = np.full(index.shape, 12345, np.uint64)
    low, high = seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)
    blocks = [philox((step, episode, high, block), (low, index)) for block in range(3)]
    all_words = np.stack(blocks).transpose(0, 2, 1).reshape(-1, 4)
    assert len(np.unique(all_words, axis=0)) == len(all_words) == 3 * 30**3


def test_a_shorter_draw_is_the_beginning_of_a_longer_one() -> None:
    long = draws(index=np.arange(100), count=11)
    for count in range(11):
        assert draws(index=np.arange(100), count=count).tolist() == long[:count].tolist()


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 33, 63])
def test_every_bit_of_a_64_bit_seed_matters(bit: int) -> None:
    n = 20_000
    base = draws(seed=7, index=np.arange(n))
    other = draws(seed=7 ^ (1 << bit), index=np.arange(n))
    assert (base == other).mean() < 1e-3
    for row, changed in zip(base, other, strict=True):
        assert abs(np.corrcoef(row, changed)[0, 1]) < 5 / np.sqrt(n)


def expected_observation(env: operant.VecEnv) -> np.ndarray:
    state = env.get_state()
    numbers = uniforms(
        state["seed"], state["index"], state["episode"] - np.uint32(1), state["steps"], 6
    )
    return np.stack(numbers, axis=1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_environments_draw_from_the_documented_position(backend: str, mode: str) -> None:
    """Reset: step 0. Step t of the episode: step t. Each reset is the next episode."""
    env = operant.make(SixDraws, 130, backend=backend, autoreset_mode=mode, workers=2)
    seed = 2**63 + 2**32 + 5
    obs, _ = env.reset(seed=seed)
    state = env.get_state()
    assert (state["seed"] == np.uint64(seed)).all()
    assert state["index"].tolist() == list(range(130))
    assert (state["episode"] == 1).all()
    np.testing.assert_array_equal(obs, expected_observation(env))
    rng = np.random.default_rng(0)
    for _ in range(12):
        obs, *_ = env.step(rng.integers(0, 2, 130))
        np.testing.assert_array_equal(obs, expected_observation(env))
    assert env.get_state()["episode"].min() >= 3
    env.close()
