"""Compiled C++ and the driver, which may refuse it; without a GPU: see compiler/emit."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from operant.toolchain import nvrtc

INVALID_IMAGE = 200


class Driver:
    """Loads good machine code only."""

    def __init__(self, good: bytes) -> None:
        self.good = good

    def cuModuleLoadData(self, module: Any, binary: bytes) -> int:
        return 0 if binary == self.good else INVALID_IMAGE

    def cuModuleGetFunction(self, *given: Any) -> int:
        return 0

    def cuCtxGetCurrent(self, current: Any) -> None:
        ctypes.cast(current, ctypes.POINTER(ctypes.c_void_p))[0] = 1

    def cuGetErrorString(self, result: int, words: Any) -> None:
        ctypes.cast(words, ctypes.POINTER(ctypes.c_char_p))[0] = b"device kernel image is invalid"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each text was compiled again. What is on disk is damaged, what is new is not."""
    seen: list[bool] = []

    def compile_text(source: str, options: Any, again: bool = False) -> bytes:
        seen.append(again)
        return b"new" if again else b"damaged"

    monkeypatch.setattr(nvrtc, "_compiled", compile_text)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return seen


def test_a_damaged_file_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, compiled: list[bool]
) -> None:
    monkeypatch.setattr(nvrtc, "_driver", lambda: Driver(good=b"new"))
    nvrtc.Kernels("text", ["step"], torch.device("cuda"))
    assert compiled == [False, True]


def test_a_driver_that_refuses(monkeypatch: pytest.MonkeyPatch, compiled: list[bool]) -> None:
    """Training falls back to another engine then, as where there is no compiler."""
    monkeypatch.setattr(nvrtc, "_driver", lambda: Driver(good=b"none"))
    with pytest.raises(nvrtc.CompileError) as caught:
        nvrtc.Kernels("text", ["step"], torch.device("cuda"))
    said = (
        "the driver does not load what NVRTC compiled: CUDA: device kernel image is invalid (200)"
    )
    assert str(caught.value) == said
    assert compiled == [False, True]
