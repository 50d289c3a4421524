"""C++ kernels compiled while the program runs, by NVRTC: the compiler that comes with PyTorch.

What was compiled is kept in ``$OPERANT_HOME/kernels``, by a hash of the text, the options and the
compiler's version.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operant.toolchain import paths
from operant.toolchain.errors import CompileError
from operant.toolchain.files import replacing
from operant.toolchain.kernel_cache import prune_once, used

__all__ = ["EXACT", "CompileError", "Kernels", "compile_source"]

EXACT = (
    "--fmad=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
    "--std=c++17",
    "--diag-suppress=177",  # functions that no kernel of this environment calls
)
"""Round as NumPy does."""
_MOST_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""


class Kernels:
    """The compiled kernels of one source, on one GPU.

    Args:
        source: C++.
        names: of the kernels in it, which are ``extern "C"``.
        device: the GPU.
        options: of the compiler; by default such that numbers are rounded as NumPy does.
        feature: ``"a"`` for instructions that only this very architecture has.
        shared: bytes of shared memory that a block is given besides what `source` declares.

    Raises:
        CompileError: the compiler or the driver refused, with their words.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        device: torch.device,
        *,
        options: Sequence[str] = EXACT,
        feature: str = "",
        shared: int = 0,
    ) -> None:
        major, minor = torch.cuda.get_device_capability(device)
        given = (f"--gpu-architecture=sm_{major}{minor}{feature}", *options)
        self._driver, self._device, self._shared = _driver(), device, shared
        self._threads = threading.local()
        self._need_context()
        with torch.cuda.device(device):
            module = self._load(source, given)
            self._functions = {name: self._function(module, name) for name in names}

    def _load(self, source: str, options: Sequence[str]) -> ctypes.c_void_p:
        binary = _compiled(source, options)
        try:
            return self._module(binary)
        except RuntimeError:  # perhaps the file was damaged
            binary = _compiled(source, options, again=True)
        try:
            return self._module(binary)
        except RuntimeError as error:
            raise CompileError(f"the driver does not load what NVRTC compiled: {error}") from error

    def _module(self, binary: bytes) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), binary))
        return module

    def _need_context(self) -> None:
        """The driver wants a context in each thread; PyTorch makes it with the first tensor."""
        if not getattr(self._threads, "ready", False):
            current = ctypes.c_void_p()
            self._driver.cuCtxGetCurrent(ctypes.byref(current))
            if not current.value:
                torch.zeros(1, device=self._device)
            self._threads.ready = True

    def _function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        found = self._driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self._check(found)
        if self._shared > 48 << 10:  # more than that has to be asked for
            size = ctypes.c_int(self._shared)
            self._check(self._driver.cuFuncSetAttribute(function, _MOST_SHARED, size))
        return function

    def launch(self, name: str, blocks: int, threads: int, argument: np.ndarray) -> None:
        """Run a kernel on PyTorch's current stream; `argument` is passed by value, as it is."""
        self._need_context()
        given = (ctypes.c_void_p * 1)(argument.ctypes.data)
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        grid = (blocks, 1, 1, threads, 1, 1)
        function = self._functions[name]
        self._check(self._driver.cuLaunchKernel(function, *grid, self._shared, stream, given, None))

    def _check(self, result: int) -> None:
        if result:
            words = ctypes.c_char_p()
            self._driver.cuGetErrorString(result, ctypes.byref(words))
            raise RuntimeError(f"CUDA: {(words.value or b'error').decode()} ({result})")


@lru_cache(maxsize=1)
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=1)
def _compiler() -> Any:
    """NVRTC: as PyTorch has loaded it, or from its packages or the system."""
    major = (torch.version.cuda or "").partition(".")[0]
    name = f"libnvrtc.so.{major}"
    packages = Path(torch.__file__).parent.parent / "nvidia"
    places = [name, *map(str, packages.glob(f"*/lib/{name}")), "libnvrtc.so"]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise CompileError(f"{name}, the compiler that comes with PyTorch for CUDA, was not found")


def _compiled(source: str, options: Sequence[str], again: bool = False) -> bytes:
    """The machine code of `source`, from disk or from the compiler, or from it `again`."""
    compiler = _compiler()
    major, minor = ctypes.c_int(), ctypes.c_int()
    compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    key = "\n".join([f"{major.value}.{minor.value}", *options, source])
    path = paths.home() / "kernels" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.cubin"
    if not again:
        with suppress(OSError):
            binary = path.read_bytes()
            used(path)
            return binary
    binary = compile_source(compiler, source, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path) as staged:
            staged.write_bytes(binary)
        prune_once(path.parent)
    except OSError:  # a home that cannot be written to: compile again next time
        pass
    return binary


def compile_source(compiler: Any, source: str, options: Sequence[str]) -> bytes:
    """Machine code from NVRTC.

    Raises:
        CompileError: the source was refused; with the compiler's own words.
    """
    program = ctypes.c_void_p()
    _require(
        compiler,
        compiler.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"operant.cu", 0, None, None
        ),
    )
    given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    try:
        if compiler.nvrtcCompileProgram(program, len(options), given):
            raise CompileError(_log(compiler, program))
        size = ctypes.c_size_t()
        _require(compiler, compiler.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        binary = ctypes.create_string_buffer(size.value)
        _require(compiler, compiler.nvrtcGetCUBIN(program, binary))
        return binary.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _log(compiler: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    words = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, words)
    return words.value.decode(errors="replace")


def _require(compiler: Any, result: int) -> None:
    if result:
        compiler.nvrtcGetErrorString.restype = ctypes.c_char_p
        words = compiler.nvrtcGetErrorString(result) or b"error"
        raise RuntimeError(f"NVRTC: {words.decode()}")
