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


def test_what_the_compiler_refuses_is_said(compiler):
    with pytest.raises(RuntimeError, match=r"operant\.cu\(1\): error"):
        compile_source(compiler, "int broken(", ("--gpu-architecture=sm_90",))
