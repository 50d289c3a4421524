"""Generated names meet nothing else in the text they stand in."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant.compiler.emit.numba_array_kernels import array_kernels_source
from operant.compiler.emit.numba_kernels import kernels_source
from operant.compiler.spec.rules import Rules
from operant.lang import Arrays, boolean, float32, int32, to_float
from operant.lang.advice import LanguageError

GENERATED = re.compile(r"[a-z]_\w+")


def own_names(source: str) -> set[str]:
    """What a module's text calls things, but for the names of one letter and an underscore."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names |= {
        arg.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for arg in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


class Numbers(operant.Env):
    class State(NamedTuple):
        x: float

    random_numbers = 64
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(2)
    max_episode_steps = 5

    def reset(random: Any) -> Any:
        return Numbers.State(random[63])

    def step(state: Any, action: Any, random: Any) -> Any:
        total = random[0]
        for k in range(1, 64):
            total = total + random[k] * to_float(k)
        return Numbers.State(total), random[8] - random[32], state.x > 1e9

    def observe(state: Any) -> Any:
        return state.x, state.x


def helper_(x: Any) -> Any:
    return x + 1


def f_(x: Any) -> Any:
    return x + 100


class Clashing(operant.Env):
    """An array, a view of another one, helpers and variables that once had one name."""

    class State(Arrays):
        x = int32[2]
        x_ = int32[2]
        u8 = float32[1]
        inside = boolean[1]

    class Params(NamedTuple):
        trouble: float = 2.0
        x: float = 3.0

    observation_space = Box(-np.inf, np.inf, (3,))
    action_space = Discrete(2)
    max_episode_steps = 5

    def reset(state: Any, random: Any) -> None:
        state.x[0], state.x_[0], state.u8[0] = 1, 11, 0.5

    def step(state: Any, action: Any, random: Any, params: Any) -> Any:
        state_x = state.x
        state_x[0] = state_x[0] + 1
        rule_f = f_(state_x[0])
        trouble = rule_f + helper_(rule_f)
        cell = trouble
        part0_3, kept1 = cell, params.trouble
        state.u8[0] = to_float(part0_3) + kept1 * params.x
        state.inside[0] = state.x_[0] == 11
        return to_float(state_x[0]), False

    def observe(state: Any, obs: Any) -> None:
        obs[0], obs[1], obs[2] = state.x[0], state.u8[0], state.x_[0]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_names_of_an_author_do_not_meet(backend: str) -> None:
    env = operant.make(Clashing, 1, backend=backend)
    env.reset(seed=0)
    obs, reward, *_ = env.step(np.zeros(1, np.int64))
    assert reward[0] == 2.0
    np.testing.assert_array_equal(obs[0], [2.0, 102 + 103 + 6, 11.0])
    assert env.get_state()["state.inside"][0]


def test_no_word_looks_like_a_generated_name() -> None:
    numbers = kernels_source(Rules.of(Numbers), "1")
    arrays, _ = array_kernels_source(Rules.of(Clashing), "1")
    fixed = {*dir(builtins), *keyword.kwlist}
    for name in own_names(numbers) | own_names(arrays) | fixed:
        generated = GENERATED.fullmatch(name)
        assert generated is None or name[0] in "svpaoumfct", name
    module: dict[str, Any] = {}
    exec(numbers[: numbers.index("EXACT =")], module)  # what the text imports
    exec(arrays[arrays.index("from numpy") : arrays.index("RULE =")], module)
    assert "u8" in module
    assert not [name for name in module if GENERATED.fullmatch(name)]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_as_many_random_numbers_as_there_are(backend: str) -> None:
    """u8 and u32 are types to Numba."""
    env = operant.make(Numbers, 3, backend=backend)
    env.reset(seed=0)
    reference = operant.make(Numbers, 3, backend="reference")
    reference.reset(seed=0)
    for _ in range(3):
        obs, reward, *_ = env.step(np.zeros(3, np.int64))
        wanted, gained, *_ = reference.step(np.zeros(3, np.int64))
        np.testing.assert_allclose(obs, wanted, rtol=1e-6)  # a sum of 64, fused
        np.testing.assert_array_equal(reward, gained)


def test_what_python_renames_is_refused() -> None:
    with pytest.raises(
        LanguageError, match=r"test_names\.py:\d+: Python renames __K within a class"
    ):

        class Private(operant.Env):
            class State(Arrays):
                x = int32[1]

            observation_space = Box(-1.0, 1.0, (1,))
            action_space = Discrete(2)

            def reset(state: Any) -> None:
                state.x[0] = __K  # noqa: F821

            def step(state: Any) -> Any:
                return 0.0, False

            def observe(state: Any, obs: Any) -> None:
                obs[0] = 0.0
