"""Compiled kernels go to a folder that outlives a run, so that a second run compiles nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("OPERANT_HOME", str(Path(tempfile.gettempdir()) / "operant-tests"))


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter on CPU tensors. Modules with kernels are imported inside the tests that
    use this: Triton looks at the variable when it decorates a function."""
    from operant.vector.cards import card_count

    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if card_count() > 0:
        pytest.skip("there is a card: tests/vector/test_cuda_gpu.py runs on it")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    # Triton's own functions were decorated when somebody imported it, perhaps an earlier test.
    for module in (tl, tl.standard):
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                monkeypatch.setattr(module, name, InterpretedFunction(value.fn))


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
