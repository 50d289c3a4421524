"""The C++ kernels of states of arrays, compiled by NVRTC for GPUs that are not here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from operant.compiler.emit.cuda_array_kernels import array_cuda_source
from operant.compiler.spec.rules import Rules
from operant.toolchain.nvrtc import EXACT, compile_source

from ...modules import load

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_snake_compiles(nvrtc, architecture):
    snake = load(EXAMPLES / "snake.py", "snake_of_the_examples").Snake
    source, _ = array_cuda_source(Rules.of(snake), "test")
    options = (f"--gpu-architecture={architecture}", *EXACT)
    assert compile_source(nvrtc, source, options)[:4] == b"\x7fELF"


INFINITE = """
import numpy as np
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, float32

LIMITS = (float("inf"), -1.0, float("-inf"), float("nan"))


def outcome(state, action):
    return state.x[0] + LIMITS[action], state.x[0] > 3.0


class Handed(operant.Env):
    class State(Arrays):
        x = float32[2]

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(4)

    def reset(state, random):
        state.x[0] = random.normal() + random.uniform()

    def step(state, action):
        return outcome(state, action)

    def observe(state, obs):
        obs[0] = state.x[0]
"""


def test_infinite_tables_and_results_handed_on_compile(nvrtc, tmp_path, monkeypatch):
    (tmp_path / "handed.py").write_text(INFINITE)
    monkeypatch.syspath_prepend(tmp_path)
    source, _ = array_cuda_source(Rules.of(importlib.import_module("handed").Handed), "test")
    assert compile_source(nvrtc, source, ("--gpu-architecture=sm_90", *EXACT))


def test_what_the_compiler_refuses_is_said(nvrtc):
    with pytest.raises(RuntimeError, match=r"operant\.cu\(1\): error"):
        compile_source(nvrtc, "int broken(", ("--gpu-architecture=sm_90",))
