"""Environments to check that live in files of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from operant.check.env_check import check_env

from ..modules import load

TESTS = Path(__file__).parents[1]


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
