"""Modules with an environment of arrays, written by a test and imported from a file."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from operant.lang.advice import LanguageError

from ...modules import load

HEAD = """\
import math
import random as rnd
import time
from enum import Enum, IntEnum
from functools import lru_cache, wraps
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant import lang
from operant.lang import (
    Arrays, abs, atan2, boolean, clip, cos, exp, float32, floor, int32, log, maximum, minimum, sin,
    sqrt, to_float, to_int, uint8, where,
)

TABLE = (1.5, 2.5, 3.5)
GRID = ((1, 2, 3), (4, 5, 6))
NAMES = ("a", "b")
N = 4
BIG = 2**62
SCORES = []
COSTS = {"wood": 1}
MOVES = {0: (0, 1), 1: (1, 0)}
PRICES = {0: 5, 1: 7}


class Ship:
    SPEED = 0.5
    COUNT = 3


class Side(Enum):
    LEFT = 0


class Counter:
    def add(self, x):
        return x


COUNTER = Counter()


class Way(IntEnum):
    UP = 0
    DOWN = 1


def square(x):
    return x * x


def double_sum(a, b):
    return 2 * a + b


def pair(x):
    return x, x > 0.0


def nothing(state):
    state.n[0] = 1


def write(row):
    row[0] = 1.5


@lru_cache
def cached(x):
    return x

"""
ENV = """
class Task(operant.Env):
    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = {actions}

    class Params(NamedTuple):
        gravity: float = 9.81
        count: int = 3
        hard: bool = True
        mode: str = "day"

    class State(Arrays):
        x = float32[3]
        grid = float32[3, 4]
        n = int32[4]
        board = uint8[4, 4]
        flags = boolean[5]

    def reset(state, random):
        state.x[0] = random.uniform()

{functions}
"""
STEP = "    def step(state, action, random, params):\n"
OBSERVE = "    def observe(state, obs):\n        obs[0] = state.x[0]\n"
_numbers = count()


def module(tmp_path: Path, text: str) -> Any:
    """A module with this text, imported from a file, so that its source can be read."""
    path = tmp_path / f"array_functions_{next(_numbers)}.py"
    path.write_text(text)
    try:
        return load(path)
    finally:
        del sys.modules[path.stem]


def written(code: str, before: str = "", actions: str = "Discrete(3)") -> str:
    """The text of a module whose ``step`` is `code`; a return is added where none is."""
    body = dedent(code).strip("\n")
    if "return" not in body:
        body += "\nreturn 0.0, False"
    functions = STEP + indent(body, " " * 8) + "\n\n" + OBSERVE
    return HEAD + dedent(before) + ENV.format(functions=functions, actions=actions)


def refused(tmp_path: Path, text: str) -> str:
    """The message for a module; its place must be the line that ends with ``#!``."""
    with pytest.raises(LanguageError) as found:
        module(tmp_path, text)
    place, _, message = str(found.value).partition(": ")
    marked = [k for k, line in enumerate(text.splitlines(), 1) if line.endswith("#!")]
    file, _, line = place.rpartition(":")
    assert Path(file).parent == tmp_path
    assert [int(line)] == marked
    return message
