"""The C++ kernels of states of arrays, compiled by NVRTC for cards that are not here."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from operant.envs.rules import Rules
from operant.vector.array_cuda_source import array_cuda_source
from operant.vector.nvrtc import _OPTIONS, compile_source

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def compiler():
    """NVRTC from its own package; PyTorch for CUDA brings it."""
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for place in found.submodule_search_locations if found else ():
            for library in sorted(Path(place).glob("lib/libnvrtc.so.*")):
                return ctypes.CDLL(str(library))
    pytest.skip("NVRTC is not installed")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_snake_compiles(compiler, monkeypatch, architecture):
    monkeypatch.syspath_prepend(EXAMPLES)
    snake = importlib.import_module("snake").Snake
    source, _ = array_cuda_source(Rules.of(snake), "test")
    options = (f"--gpu-architecture={architecture}", *_OPTIONS)
    assert compile_source(compiler, source, options)[:4] == b"\x7fELF"


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


def test_infinite_tables_and_results_handed_on_compile(compiler, tmp_path, monkeypatch):
    (tmp_path / "handed.py").write_text(INFINITE)
    monkeypatch.syspath_prepend(tmp_path)
    source, _ = array_cuda_source(Rules.of(importlib.import_module("handed").Handed), "test")
    assert compile_source(compiler, source, ("--gpu-architecture=sm_90", *_OPTIONS))


def test_what_the_compiler_refuses_is_said(compiler):
    with pytest.raises(RuntimeError, match=r"operant\.cu\(1\): error"):
        compile_source(compiler, "int broken(", ("--gpu-architecture=sm_90",))
