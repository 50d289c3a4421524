"""Random array environments: ``cpu`` computes what plain Python does, to the bit.

``tests/fuzz/array_writer.py`` writes them. Many more: ``python tests/fuzz --programs 100``.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant import lang
from operant.lang import Arrays, boolean, cos, float32, int32, sin, tan, to_float, to_int, where
from operant.toolchain.gpus import gpu_count
from operant.toolchain.host_kernels import host_compiler

from ..modules import load

pytestmark = pytest.mark.usefixtures("unseen_test")

SEEDS = (101, 203)
STATEMENTS = 10
needs_compiler = pytest.mark.skipif(
    host_compiler() is None or gpu_count() > 0, reason="needs a C++ compiler, and no GPU"
)


writer = load(Path(__file__).parents[1] / "fuzz" / "array_writer.py")


def written(folder: Path, seed: int, statements: int) -> type[operant.Env]:
    path = folder / f"array_program_{seed}.py"
    path.write_text(writer.program(seed, statements))
    env: type[operant.Env] = load(path).Program
    return env


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, zeros with their signs; all NaN are alike."""
    if a.dtype != np.float32:
        return np.array_equal(a, b)
    numbers = ~np.isnan(a)
    bits = (array.view(np.int32)[numbers] for array in (a, b))
    return np.array_equal(numbers, ~np.isnan(b)) and np.array_equal(*bits)


def compare(env: type[operant.Env], backends: tuple[str, ...], num_envs: int, steps: int) -> int:
    """Play the same on each; how many numbers were not finite."""
    options: dict[str, Any] = {"seed": 3, "autoreset_mode": "SameStep"}
    batches = [operant.make(env, num_envs, backend=name, **options) for name in backends]
    random, strange = np.random.default_rng(0), 0
    for batch in batches:
        batch.reset()
    for step in range(steps):
        first, *others = [batch.get_state() for batch in batches]
        for name, other in zip(backends[1:], others, strict=True):
            for key in first:
                assert same_bits(first[key], other[key]), f"{key} on {name} before step {step}"
        strange += int(sum((~np.isfinite(array)).sum() for array in first.values()))
        actions = random.integers(4, size=num_envs)
        for batch in batches:
            batch.step(actions)
    return strange


# What once went wrong, or nearly did --------------------------------------------------------------
POSITIVE, NEGATIVE = (0.0, 0.5), (-0.0, 0.5)
BLOCKS = (((0.1, 0.2), (0.3, 0.4)), ((0.5, 0.6), (0.7, 0.8)))
FOUR = 4
board = ("no", "table")  # called like an array of the state


class Way(IntEnum):
    UP = 1
    DOWN = 3


class Tool:
    def bent(x: Any) -> Any:
        y = 0.1
        return y * y * x


def twice(x: Any) -> Any:
    return x + x


def twice_2(x: Any) -> Any:
    return x * 7


def second(block: Any, k: int) -> Any:
    row = block[k]
    return row[1]


def moved(state: Any) -> Any:
    """Changes what its caller's index was read from."""
    state.at[0] = (state.at[0] + 1) % 3
    return 10.0


def parts() -> Any:
    return 0.1, 0.7


class Traps(operant.Env):
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(4)
    max_episode_steps = 6

    class Params(NamedTuple):
        far: float = 1e20

    class State(Arrays):
        at = int32[2]
        board = float32[3, 4]
        x = float32[16]
        n = int32[12]
        flags = boolean[4]

    def reset(state: Any, random: Any) -> None:
        state.board[1][:] = random.uniform()  # drawn once
        state.x[0] = random.uniform()

    def step(state: Any, action: Any, random: Any, params: Any) -> Any:
        state.board[2][:] = state.board[1, 0] + state.x[0]
        state.board[0][0] = 0.25
        state.board[0][:] = state.board[0, 0] + 1.0  # the old one, for all
        state.x[state.at[0]] += moved(state)  # where it was before
        state.flags[0] = random.chance(0.3) & random.chance(0.3)  # both are drawn
        state.flags[1] = random.chance(0.7) | random.chance(0.3)
        state.flags[2] = (random.chance(0.5) ^ random.chance(0.5)) > (action > 1)
        state.flags[3] ^= state.flags[1]
        state.x[4] = random.uniform()
        for i in range(2):
            for i in range(action):
                state.n[i] += 1
            state.n[i + 4] -= 1
        a, b = 0.1, 0.7
        state.x[5] = a * b * b
        a, b = parts()
        state.x[6] = a * a * b + Tool.bent(0.3)
        state.x[7] = lang.sin(0.5) * 0.7 + Way.DOWN * 0.1 + to_float(Way.UP) * 0.3
        state.x[8] = (
            sin(params.far) + cos(1e20) - cos(-params.far) + tan(3e9) + sin(params.far * 1e-9)
        )
        state.x[9] = 1.0 / NEGATIVE[0] if action > 0 else 1.0 / POSITIVE[0]
        state.x[10] = twice(0.5) + twice(2) + twice_2(0.5) + second(BLOCKS[action % 2], Way.UP)
        state.x[11] = -0.0 if action == 1 else 0.0 * -1.0
        state.x[12] = min(state.x[11], 0) + max(-0.0, 0.0, state.x[11])
        state.x[13] = 16777217 * state.x[4] + to_float(action + 16777216)
        state.x[14] = to_float(state.x[4] + 16777216.0 < 16777217) + where(action > 1, 1, 0.5)
        state.x[15] = Way.DOWN * 0.1 * 0.7  # rounded twice, as float32
        state.n[7] = ~FOUR + (~action) - (-7 // (action + 2)) * (-7 % (action - 5))
        state.n[8] = ((1 << (action * 13)) >> 7) % 1000 + (-(1 << 40) >> 20) // 1000
        state.n[9] = to_int(-2.7) + to_int(state.flags[0]) + int(state.x[4] * -9.0)
        state.n[10] = action if (action > 1) == state.flags[1] else -action
        return state.x[4], random.chance(0.1)

    def observe(state: Any, obs: Any) -> None:
        obs[0], obs[1] = state.x[4], state.n[8]


def test_traps() -> None:
    compare(Traps, ("reference", "cpu"), 8, 30)


@needs_compiler
def test_traps_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    compare(Traps, ("reference", "cuda"), 8, 30)


# Random programs ----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", SEEDS)
def test_cpu_computes_what_python_does(tmp_path: Path, seed: int) -> None:
    compare(written(tmp_path, seed, STATEMENTS), ("reference", "cpu"), 6, 30)


@needs_compiler
@pytest.mark.parametrize("seed", [3, 103])
def test_cpp_computes_what_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The kernels of the GPU, compiled for the host: longer programs, for it compiles faster."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    compare(written(tmp_path, seed, 5 * STATEMENTS), ("reference", "cuda"), 4, 25)


def test_programs_are_what_they_should_be() -> None:
    """The writer is worth something: another program for another seed, each of many words."""
    texts = [writer.program(seed, 60) for seed in range(8)]
    assert writer.program(0, 60) == texts[0]
    assert len(set(texts)) == 8
    everything = "\n".join(text.partition("def step")[2] for text in texts)
    words = "sin cos tan exp log tanh atan atan2 sqrt floor ceil abs sign min max minimum maximum"
    words += " clip where to_float to_int float int bool logical_not whole mixed total inner halves"
    words += " spend random.uniform random.integers random.normal random.chance lang.sin len"
    for word in words.split():
        assert f"{word}(" in everything, word
    signs = "+ - * / // % & | ^ << >> < <= > >= == != and or += -= *= /= //= %= >>= &= |= ^="
    for sign in signs.split():
        assert f" {sign} " in everything, sign
    for part in ("if ", "elif ", "else:", "for k", "while ", "break", "continue", "return 0.25"):
        assert f"    {part}" in everything, part
    for part in ("[:] = ", "row0 = ", "Way.", "STEPS[", "KINDS[", "SAFE[", "params.", "~", "not "):
        assert part in everything, part
