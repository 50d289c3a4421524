"""Environments to check that live in files of their own."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from operant.check.env_check import check_env

TESTS = Path(__file__).parents[1]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def broken() -> ModuleType:
    return load(TESTS / "broken_envs.py")


@pytest.fixture(scope="session")
def lander() -> ModuleType:
    return load(TESTS.parent / "examples" / "lander.py")


@pytest.fixture(scope="session")
def failures() -> Callable[[type], dict[str, str]]:
    """Name and sentence of each check that an environment fails. Each is checked once."""
    return functools.cache(lambda env: {f.name: f.detail for f in check_env(env) if not f.passed})
