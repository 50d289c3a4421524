"""Compiled kernels go to a folder that outlives a run, so that a second run compiles nothing."""

from __future__ import annotations

import importlib.util
import os
import tempfile
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
