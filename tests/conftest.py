"""Compiled kernels go to a folder that outlives a run, so that a second run compiles nothing.

Coverage follows every line of Python, also where it counts none: the compilers' own code, and
kernels that are interpreted. That doubles the time they take, so they run unseen here.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from hypothesis import settings
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

from operant.backends.reference import numbers as reference

os.environ.setdefault("OPERANT_HOME", str(Path(tempfile.gettempdir()) / "operant-tests"))
# PyTorch's threads spin while they wait, and take the cores of the tests beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# To walk all that PyTorch, Numba and Triton have made, again and again, takes a tenth of the time.
gc.set_threshold(100_000, 50, 100)
# In a hook GIT_DIR names the repository that is being worked on: tests that make one of their own
# would commit to that. And the user's settings may sign commits, or run hooks.
for name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[name]
os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# A console that is made while COLUMNS is set keeps that width. Made without, it follows what each
# test sets, whichever test comes first.
os.environ.pop("COLUMNS", None)
importlib.import_module("operant.cli.screen")
# Unless in CI Hypothesis gives an example 0.2 s; on a busy machine any may take longer.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")
# A process makes the commands from their functions once. So does this one, for all its tests.
typer.main.get_command = functools.cache(typer.main.get_command)


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, without the tracer that measures coverage."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(tracer)

    return call


@pytest.fixture
def unseen_test() -> Iterator[None]:
    """For tests that take long in plain Python and run nothing that no other test runs."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    yield
    threading.settrace(of_threads)  # type: ignore[arg-type]
    sys.settrace(tracer)


@pytest.fixture(scope="session")
def unmeasured() -> Callable[[], dict[str, str]]:
    """Makes an environment for processes that are not to be measured: they compile, or they are
    killed before they could say what they ran, and run nothing that no other test runs."""
    return lambda: {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_PROCESS_")}


@pytest.fixture(scope="session")
def nvrtc() -> Any:
    """The compiler of CUDA C++, from a package of its own; PyTorch for CUDA brings it."""
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for place in found.submodule_search_locations or () if found else ():
            for library in sorted(Path(place).glob("lib/libnvrtc.so.*")):
                return ctypes.CDLL(str(library))
    pytest.skip("NVRTC is not installed")


# What an author wrote is seen when it is recorded, and batches have tests of their own.
reference.call, reference.uniforms = unseen(reference.call), unseen(reference.uniforms)

COMPILERS = (Dispatcher, CFunc)
for compiler in COMPILERS:
    compiler.compile = unseen(compiler.compile)
exporter = importlib.import_module("torch").onnx  # here: PyTorch reads OMP_WAIT_POLICY only once
exporter.export = unseen(exporter.export)


@pytest.fixture
def compilers_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of functions that a compiler calls: those that write instructions."""
    for compiler in COMPILERS:
        monkeypatch.setattr(compiler, "compile", compiler.compile.__wrapped__)


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's interpreter on CPU tensors. Modules with kernels are imported inside the tests that
    use this: Triton looks at the variable when it decorates a function."""
    from operant.toolchain.gpus import gpu_count

    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if gpu_count() > 0:
        pytest.skip("there is a GPU: tests/vector/test_cuda_gpu.py runs on it")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    executor = interpreter.GridExecutor
    monkeypatch.setattr(executor, "__call__", unseen(executor.__call__))
    # Triton's own functions were decorated when somebody imported it, perhaps an earlier test.
    for module in (tl, tl.standard):
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                monkeypatch.setattr(module, name, interpreter.InterpretedFunction(value.fn))
    with quickened(monkeypatch):
        yield


@contextmanager
def quickened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's interpreter without what takes most of its time and need not be done again and
    again: to replace the functions of the language in each call of a function, to look up NumPy's
    types, to name the types of tuples (all shapes are tuples), and to compute whether integers
    overflow for an assertion that it leaves out."""
    import triton.language as tl
    from triton.runtime import interpreter

    replaced = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    nothing = SimpleNamespace(restore=lambda: None)
    monkeypatch.setattr(interpreter, "_patch_lang", lambda fn: nothing)
    cached = functools.cache(interpreter._get_np_dtype)
    monkeypatch.setattr(
        interpreter,
        "_get_np_dtype",
        lambda kind: cached(tl.uint64 if kind.scalar.is_ptr() else kind.scalar),
    )
    some = tl.core.tuple_type([])
    monkeypatch.setattr(tl.core, "_type_for_tuple_values", lambda values, fields=None: some)
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
    try:
        yield
    finally:
        replaced.restore()


@pytest.fixture(scope="session")
def build_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile C files, given by their paths from the root, into a library; once for each set."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    folder, root = tmp_path_factory.mktemp("native"), Path(__file__).parents[1]

    def build(source: str, *flags: str, name: str = "") -> Path:
        stem = name or "".join(c if c.isalnum() else "_" for c in "".join((source, *flags)))
        library = folder / f"lib{stem}.so"
        if not library.exists():
            include = root / "src" / "operant" / "vector"
            command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared"]
            command += ["-fPIC", f"-I{include}", *flags, "-o", str(library), str(root / source)]
            subprocess.run([*command, "-lm"], check=True)
        return library

    return build
