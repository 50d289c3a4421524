"""What functions over arrays may say: what is refused, where and why, and what is printed."""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import count
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest

from operant.envs.rules import Rules
from operant.lang.advice import LanguageError
from operant.vector.reference import ReferenceBackend

HEAD = """\
import math
from enum import IntEnum
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


class Ship:
    SPEED = 0.5
    COUNT = 3


class Way(IntEnum):
    UP = 0
    DOWN = 1


def square(x):
    return x * x


def pair(x):
    return x, x > 0.0


def nothing(state):
    state.n[0] = 1


def write(row):
    row[0] = 1.5

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
    name = f"array_functions_{next(_numbers)}"
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    try:
        spec.loader.exec_module(loaded)
    finally:
        del sys.modules[name]
    return loaded


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


# What is refused ----------------------------------------------------------------------------------
STATEMENTS = {
    "try:  #!\n    y = 1\nexcept ValueError:\n    pass": "compiled functions have no try statement",
    "with state:  #!\n    y = 1": "compiled functions have no with statement",
    "def inner():  #!\n    pass": "compiled functions have no functiondef statement",
    "class Inner:  #!\n    pass": "compiled functions have no classdef statement",
    "global N  #!\nN = 3": "compiled functions have no global statement",
    "import math  #!": "compiled functions have no import statement",
    "raise ValueError  #!": "compiled functions have no raise statement",
    "assert action > 0  #!": "compiled functions have no assert statement",
    "y = 1\ndel y  #!": "compiled functions have no delete statement",
    "y = z = 1  #!": "one name at a time: write x = 0, then y = 0",
    "match action:  #!\n    case 1:\n        pass": "compiled functions have no match statement",
    "y: int  #!": "compiled functions have no annassign statement",
    "y = [1, 2]  #!": "compiled functions have no List; use numbers, arrays and loops",
    "y = {1: 2}  #!": "compiled functions have no Dict",
    "y = [k for k in range(3)]  #!": "compiled functions have no ListComp",
    "y = sum(k for k in range(3))  #!": "sum() cannot be compiled; see operant.lang",
    "y = lambda: 1  #!": "compiled functions have no Lambda",
    "y = (yield)  #!": "compiled functions have no Yield",
    "y = (z := 1)  #!": "compiled functions have no NamedExpr",
    "y = f'{action}'  #!": "compiled functions have no JoinedStr",
    "y = ()  #!": "compiled functions have no Tuple",
    "y = None  #!": "compiled functions have no Constant",
    "while action > 5:  #!\n    pass\nelse:\n    y = 1": "while has no else here",
    "for k in range(3):  #!\n    pass\nelse:\n    y = 1": "loops are written: for i in range(n)",
    "for v in state.x:  #!\n    pass": "loops are written: for i in range(n)",
    "for v in (1, 2):  #!\n    pass": "loops are written: for i in range(n)",
    "for k in range(0, 9, action):  #!\n    pass": "the step of a range is a constant",
    "for k in range(3.0):  #!\n    pass": "range() must be an int, got a float; write to_int(x)",
    "y = range(3)  #!": "range() belongs into a for",
    "print(action)  #!": "print() is not compiled",
}
NUMBERS = {
    "y = 1\nif action > 0:\n    y = 2.0  #!": "y is an int elsewhere and a float here; ",
    "y = 0\ny += 0.5  #!": "y is an int elsewhere and a float here",
    "y = 0.5\nfor y in range(3):  #!\n    pass": "y is a float elsewhere and an int here",
    "y = 1 if action > 0 else 2.0  #!": "a choice between an int and a float; write 1.0",
    "y = (action > 0) + 1  #!": "+ of a truth value; write to_int(x) or to_float(x)",
    "y = -(action > 0)  #!": "this is a truth value; write not x",
    "y = abs(action > 0)  #!": "abs() of a truth value",
    "y = min(action > 0, action > 1)  #!": "minimum() of truth values",
    "y = (action > 0) == 1  #!": "a comparison mixes truth values and numbers; write to_int(x)",
    "y = where(action > 0, action > 1, 2)  #!": "where() mixes truth values and numbers",
    "y = action / 2  #!": "int / int: write to_float(a) / b, or a // b for a whole number",
    "y = action ** 2  #!": "powers are not compiled; write x * x, or exp(y * log(x))",
    "y = state.x[0] ** 0.5  #!": "powers are not compiled",
    "y = state.x[0] % 1.0  #!": "% is for ints; for floats write floor(a / b)",
    "y = state.x[0] // 2  #!": "// is for ints; for floats write floor(a / b)",
    "y = ~state.x[0]  #!": "~ is for ints",
    "y = state.x @ state.x  #!": "this must be a number, got an array of (3,)",
    "y = action // 0  #!": "// by zero",
    "y = N % 0  #!": "% by zero",
    "y = action << 64  #!": "<< is by 0 to 63 bits, got 64",
    "y = action >> -1  #!": ">> is by 0 to 63 bits, got -1",
    "y = 9223372036854775808  #!": "9223372036854775808 does not fit into 64 bits",
    "y = BIG * 4  #!": "18446744073709551616 does not fit into 64 bits",
    "y = action if action else 2  #!": "a condition must be a bool, got an int; write x != 0",
    "if state.x[0]:  #!\n    pass": "a condition must be a bool, got a float; write x != 0",
    "y = not action  #!": "a condition must be a bool, got an int; write x != 0",
    "y = action is N  #!": "compiled functions have no Is",
    "y = action in GRID  #!": "compiled functions have no In",
    "y = params.mode == 3  #!": "text is compared with text, by == and !=",
    "y = params.mode < 'day'  #!": "text is compared with text, by == and !=",
    "y = 0 < square(action) < 3  #!": "a call in the middle of a comparison",
}
NAMES = {
    "y = nowhere  #!": "nothing is called nowhere here (put helpers above the class)",
    "y = Task.count  #!": "nothing is called Task here (put helpers above the class)",
    "y = NAMES[0]  #!": "NAMES is a tuple of other things than numbers; tables hold numbers",
    "y = z  #!\nz = 1": "z has no value yet here",
    "if action > 0:\n    y = 1\nz = y  #!": "y may have no value yet here; give it one before",
    "for k in range(3):\n    y = 1\nz = y  #!": "y may have no value yet here",
    "for k in range(3):\n    pass\nz = k  #!": "k may have no value yet here",
    "while action > 5:\n    y = 1\nz = y  #!": "y may have no value yet here",
    "if params.hard:\n    y = 1\nelse:\n    z = 1\ny = z  #!": "z has no value yet here",
    "y = state.speed[0]  #!": "the state has no array 'speed'; it has x, grid, n, board, flags",
    "y = params.speed  #!": "there is no parameter 'speed'; there are: gravity, count, hard, mode",
    "y = params.mode + 1  #!": "this must be a number, got a text",
    "y = 'text'  #!": "a text cannot be kept in a variable",
    "y = state  #!": "the state cannot be kept in a variable",
    "y = math.sin(0.5)  #!": "use the words of operant.lang, not math.sin",
    "y = np.sin(0.5)  #!": "use the words of operant.lang, not np.sin",
    "y = math.pi  #!": "write pi as a constant of the module: PI = ...",
    "y = Ship.SPEED  #!": "write SPEED as a constant of the module: SPEED = ...",
    "y = Ship.WEIGHT  #!": "Ship.WEIGHT is not known when the function is compiled",
}
ARRAYS = {
    "y = state.x[3]  #!": "index 3 of state.x is outside 0..2",
    "y = state.x[-1]  #!": "index -1 of state.x is outside 0..2",
    "y = state.board[1, 4]  #!": "index 4 of state.board is outside 0..3",
    "state.board[N, 0] = 1  #!": "index 4 of state.board is outside 0..3",
    "y = state.x[0.0]  #!": "an index must be an int, got a float; write to_int(x)",
    "y = state.x[action > 0]  #!": "an index must be an int, got a bool; write to_int(x)",
    "y = state.x[0, 1]  #!": "state.x has 1 dimensions, got 2 indices",
    "y = state.x[0:2]  #!": "slices are not compiled; write a loop, or array[:] = value",
    "y = state.x[:]  #!": "slices are not compiled",
    "state.grid[:, 0] = 1.0  #!": "slices are not compiled",
    "y = action[0]  #!": "only arrays have elements, not an int",
    "y = state.x + 1.0  #!": "this must be a number, got an array of (3,)",
    "y = GRID[2, 0]  #!": "index 2 of GRID is outside 0..1",
    "TABLE[0] = 1.0  #!": "TABLE is a constant",
    "row = GRID[0]\nrow[1] = 2  #!": "a part of GRID is a constant",
    "TABLE[:] = 1.0  #!": "TABLE is a constant",
    "state.x = TABLE  #!": "an array is copied with a loop, element by element",
    "state.x = 1.0  #!": "state.x cannot be written to",
    "state.x += 1.0  #!": "state.x cannot be written to",
    "state.n[0] = 1.0  #!": "an element of state.n must be an int, got a float; write to_int(x)",
    "state.flags[0] = 1  #!": "an element of state.flags must be a bool, got an int; write x != 0",
    "state.grid[0] = 1.0  #!": "this is an array of (4,); write array[:] = value",
    "state.grid[0] += 1.0  #!": "an array of (4,) has no state.grid[0] += 1.0",
    "state.x[:] = state.x  #!": "an array is copied with a loop, element by element",
    "y = 1\ny[0] = 2  #!": "y cannot be written to",
    "y = state.grid[0]\ny = state.x  #!": "y stands for something else elsewhere",
    "y = TABLE\ny = state.x  #!": "y stands for something else elsewhere",
    "y = 1\ny = state.x  #!": "y stands for something else elsewhere",
    "y = state.x\ny = 1  #!": "y stands for an array elsewhere",
    "state.grid[random.integers(3)][0] += 1.0  #!": "a call in what is written to",
    "y = random.integers(0)  #!": "integers() chooses among 1 to 2**24 numbers, got 0",
    "y = random.integers(5, 5)  #!": "integers() chooses among 1 to 2**24 numbers, got 0",
    "y = random.integers(1 << 25)  #!": "integers() chooses among 1 to 2**24 numbers",
    "länge = 1  #!": "länge: names in compiled functions are ASCII letters",
    "y = len(action)  #!": "len() of an int",
    "a, b = pair(1.0), 2  #!": "this must be a number, got a tuple of 2",
    "a, b, c = pair(1.0)  #!": "3 names for a tuple of 2",
    "a, b = 1  #!": "2 names for an int",
    "y = pair(1.0)  #!": "a tuple of 2 cannot be kept in a variable",
    "y = pair(1.0)[0]  #!": "only arrays have elements, not a tuple of 2",
}
CALLS = {
    "y = square(x=1)  #!": "arguments are given by position",
    "y = square(*state.x)  #!": "arguments are given by position",
    "y = square(1, 2)  #!": "square() takes 1 arguments, got 2",
    "y = sin(0.5, 0.5)  #!": "sin() takes 1 arguments, got 2",
    "y = atan2(0.5)  #!": "atan2() takes 2 arguments, got 1",
    "y = min(1)  #!": "min() takes 2 to 8 arguments, got 1",
    "y = square('a')  #!": "a function is given numbers and arrays, not 'a'",
    "y = square(square)  #!": "a function is given numbers and arrays, not square",
    "y = action(1)  #!": "action cannot be called",
    "y = TABLE()  #!": "TABLE cannot be called",
    "y = Ship()  #!": "Ship() cannot be compiled; see operant.lang",
    "y = round(0.5)  #!": "round() cannot be compiled; see operant.lang",
    "y = state.x.sum()  #!": "state.x.sum is not known when the function is compiled",
    "y = random.random()  #!": "random numbers have no random(); there are uniform(), integers(), ",
    "y = random.uniform(1, 2, 3)  #!": "random.uniform() takes 0 to 2 arguments, got 3",
    "y = random.integers()  #!": "random.integers() takes 1 to 2 arguments, got 0",
    "y = random.integers(2.5)  #!": "this must be an int, got a float; write to_int(x)",
    "y = random  #!": "the random cannot be kept in a variable",
    "y = nothing(state)  #!": "nothing cannot be kept in a variable",
    "y = nothing(state) + 1  #!": "this must be a number, got nothing",
    "y = sin(state.x)  #!": "this must be a number, got an array of (3,)",
}
RETURNS = {
    "return 1.0  #!": "step() must return (float, bool)",
    "return 1.0, False, 2  #!": "step() must return (float, bool)",
    "return 1.0, 0  #!": "what is returned must be a bool, got an int; write x != 0",
    "return action > 0, False  #!": "what is returned must be a float, got a bool",
    "return pair(1)  #!": "step() must return (float, bool)",
    "if action > 0:\n    return 1.0, False\nreturn  #!": "returns nothing here and a tuple",
}
TABLE = STATEMENTS | NUMBERS | NAMES | ARRAYS | CALLS | RETURNS


@pytest.mark.parametrize(
    ("code", "message"), TABLE.items(), ids=[code.split("  #!")[0] for code in TABLE]
)
def test_refused(tmp_path: Path, code: str, message: str) -> None:
    assert refused(tmp_path, written(code)).startswith(message)


HELPERS = {
    "def f(x):\n    return f(x)  #!": "f() calls itself; write a loop",
    "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)  #!": "f() calls itself; write a loop",
    "def f(x):\n    x = 2  # no\n    return x": "the argument x is given another value",
    "def f(x):\n    for x in range(3):\n        pass": "the argument x is given another value",
    "def f(x):  #!\n    if x > 0:\n        return 1": "f() may end without a return",
    "def f(x):  #!\n    while x > 0:\n        return 1": "f() may end without a return",
    "def f(x):\n    if x > 0:\n        return 1\n    return 2.0  #!": "returns a float here and",
    "def f(x):\n    return TABLE  #!": "a function returns numbers, not an array of (3,)",
    "def f(x):\n    write(TABLE)\ndef write(row):\n    row[0] = 1.5  #!": "row of write() is a",
    "f = lambda x: x  #!": "write <lambda> with def",
    "def twice(g):\n    @wraps(g)\n    def h(x):\n        return 2 * g(x)\n    return h\n"
    "@twice  #!\ndef f(x):\n    return x": "@twice is not compiled; write a plain function",
    "def twice(g):\n    @wraps(g)\n    def h(x):\n        return 2 * g(x)\n    return h\n"
    "def f(x):  #!\n    return x\nf = twice(f)": "what is called is h(), which is wrapped around",
    "def f(x):\n    for k in range(3):  #!\n        pass\ndef range(n):\n    return n": (
        "range is something else here"
    ),
}


def test_a_wrapped_function_of_the_class_is_refused(tmp_path: Path) -> None:
    """The wrapper would be left out, in plain Python as well."""
    before = (
        "def twice(g):\n    @wraps(g)\n    def h(*given):\n        return g(*given)\n    return h\n"
    )
    text = written("y = 1", before)
    head = next(line for line in text.splitlines() if line.lstrip().startswith("def step("))
    text = text.replace(head, f"{head}  #!").rstrip() + "\n\n    step = twice(step)\n"
    assert refused(tmp_path, text).endswith(
        ".step is wrapped around step(); write a plain function"
    )


@pytest.mark.parametrize(("before", "message"), HELPERS.items())
def test_refused_helpers(tmp_path: Path, before: str, message: str) -> None:
    if "#!" not in before:
        before = before.replace("def f(x):", "def f(x):  #!")
    assert refused(tmp_path, written("y = 1\nf(y)", before + "\n")).startswith(message)


@pytest.mark.parametrize(
    "head", ["def f(x, y=2):", "def f(*x):", "def f(x, **more):", "def f(x, *, y):", "def f(x, /):"]
)
def test_refused_arguments_of_helpers(tmp_path: Path, head: str) -> None:
    text = written("y = 1\nf(y)  #!", f"{head}\n    return 1\n")
    assert refused(tmp_path, text) == "f() takes plain arguments only"


ENTRIES = {
    "    def step(state, action):  #!\n        state.x[0] = 1.0\n\n" + OBSERVE: (
        "step() must return (float, bool)"
    ),
    "    def step(state, action):  #!\n        if action > 0:\n            return 1.0, True\n\n"
    + OBSERVE: "step() may end without a return",
    "    def step(state, action):  #!\n        action = 2\n        return 1.0, True\n\n"
    + OBSERVE: "the argument action is given another value; use a new name",
    STEP + "        return 0.0, True\n\n    def observe(state):\n        return state.x[0]  #!\n": (
        "observe() writes in place and returns nothing"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state, random):  #!\n        pass\n": (
        "observe() of a state of arrays takes any of state, obs, params; got the argument 'random'"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state, obs):\n        obs[2] = 1.0  #!\n": (
        "index 2 of obs is outside 0..1"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state):\n        state.x[0] = 1.0  #!\n": (
        "observe() and action_mask() look at the state; only step() changes it"
    ),
    STEP
    + "        return 0.0, True\n\n"
    + OBSERVE
    + "\n    def action_mask(state, mask):\n        row = state.x\n        row[:] = 1.0  #!\n": (
        "observe() and action_mask() look at the state; only step() changes it"
    ),
    STEP
    + "        return 0.0, True\n\n"
    + OBSERVE
    + "\n    def action_mask(state, mask):\n        mask[3] = True  #!\n": (
        "index 3 of mask is outside 0..2"
    ),
    STEP
    + "        return 0.0, True\n\n"
    + OBSERVE
    + "\n    def action_mask(state, mask):\n        mask[0] = 1  #!\n": (
        "an element of mask must be a bool, got an int; write x != 0"
    ),
}


@pytest.mark.parametrize(("functions", "message"), ENTRIES.items())
def test_refused_entry_points(tmp_path: Path, functions: str, message: str) -> None:
    text = HEAD + ENV.format(functions=functions, actions="Discrete(3)")
    assert refused(tmp_path, text).startswith(message)


def test_a_helper_of_step_may_write_what_the_same_helper_of_observe_may_not(tmp_path: Path) -> None:
    functions = STEP + "        nothing(state)\n        return 0.0, True\n\n"
    functions += "    def observe(state, obs):\n        nothing(state)\n"
    text = HEAD + ENV.format(functions=functions, actions="Discrete(3)")
    text = text.replace("    state.n[0] = 1\n", "    state.n[0] = 1  #!\n")
    assert refused(tmp_path, text).startswith("observe() and action_mask() look at the state")


def test_parameters_are_given_once(tmp_path: Path) -> None:
    before = "def f(p, q):\n    return p.gravity + q.gravity\n"
    text = written("y = f(params, params)  #!", before)
    assert refused(tmp_path, text) == "f() is given the parameters twice"


def test_a_mask_needs_actions_that_are_counted(tmp_path: Path) -> None:
    functions = f"{STEP}        return 0.0, True\n\n{OBSERVE}"
    functions += "\n    def action_mask(state, mask):\n        pass\n"
    text = HEAD + ENV.format(functions=functions, actions="Box(-1, 1, (2,))")
    with pytest.raises(
        LanguageError, match=r"Task.action_mask\(\) chooses among the actions of a "
    ):
        module(tmp_path, text)


def test_what_a_parameter_selects_is_looked_at_again(tmp_path: Path) -> None:
    """A branch that the defaults leave out is refused when a parameter asks for it."""
    task = module(tmp_path, written("if params.mode == 'night':\n    y = state.x[7]\n")).Task
    with pytest.raises(LanguageError, match="index 7 of state"):
        Rules.of(task, {"mode": "night"})


def test_without_source_there_is_nothing_to_print(tmp_path: Path) -> None:
    with pytest.raises(
        LanguageError, match=r"the source of .*\(\) cannot be read; write it in a file"
    ):
        exec(compile(written("y = 1"), "<made>", "exec"), {"__name__": "made"})


# What is accepted ---------------------------------------------------------------------------------
def played(tmp_path: Path, code: str, before: str = "", **options: Any) -> np.ndarray:
    """What ``step`` leaves in ``state.x`` on the reference backend, actions all 1."""
    import operant

    actions = options.pop("actions", "Discrete(3)")
    task = module(tmp_path, written(code, before, actions)).Task
    batch = operant.make(task, 1, backend="reference", seed=0, **options)
    assert isinstance(batch._backend, ReferenceBackend)  # type: ignore[attr-defined]
    batch.reset()
    batch.step(np.ones((1, *batch.rules.action.shape), np.int32))
    return batch.get_state()["state.x"][0]


def printed(tmp_path: Path, code: str, before: str = "", **params: Any) -> str:
    """The functions as they go to Numba."""
    from operant.lang.dialects import PythonText

    task = module(tmp_path, written(code, before)).Task
    rules: Any = Rules.of(task, params)
    return "\n".join(rules.library(PythonText())[0].texts)


ACCEPTED = {
    "state.x[Way.DOWN] = GRID[Way.UP, 2] * 1.5": (1, 4.5),
    "a, b = 1.0, 2.0\na, b = b, a\nstate.x[0] = a - b": (0, 1.0),
    "state.x[0], state.x[1] = 1.0, 2.0\nstate.x[0], state.x[1] = state.x[1], state.x[0]": (0, 2.0),
    "state.x[1] = square(3)\nstate.x[1] += square(0.5)": (1, 9.25),
    "row = state.grid[action]\nrow[2] = 7.0\nstate.x[0] = state.grid[1, 2]": (0, 7.0),
    "write(state.grid[2])\nstate.x[0] = state.grid[2][0]": (0, 1.5),
    "state.x[:] = 2.5\nstate.grid[1][:] = 3.0\nstate.x[0] += state.grid[1, 3] + state.grid[0, 3]": (
        0,
        5.5,
    ),
    "state.x[0] = 0.25\nstate.x[:] = state.x[0] + 1.0": (2, 1.25),
    "y = 0\nfor i in range(3):\n    for j in range(i, 4):\n        if j == 2:\n"
    "            continue\n        y += i * j\n        if y > 8:\n            break\n"
    "state.x[0] = y": (0, 10.0),
    "y = 0\nwhile True:\n    y += 1\n    if y == 5:\n        break\nstate.x[0] = y": (0, 5.0),
    "y = 0\nfor i in range(7, 0, -2):\n    y = 10 * y + i\nstate.x[0] = y": (0, 7531.0),
    "state.x[0] = 3.0\nif action == 1:\n    return 1.0, True\nstate.x[0] = 2.0\n"
    "return 0.0, False": (0, 3.0),
    "if params.hard:\n    state.x[0] = 3.0\nelse:\n    state.x[99] = 1": (0, 3.0),
    "state.x[0] = 1.0 if params.mode == 'day' else nowhere": (0, 1.0),
    "state.x[0] = params.gravity * params.count": (0, np.float32(9.81) * np.float32(3.0)),
    "state.x[0] = 1 / 3 + 2 ** 0.5": (0, np.float32(1 / 3 + 2**0.5)),
    "state.x[0] = ~N + (~3) + 10": (0, 1.0),
    "y = state.x\ny[1] = len(y) + len(GRID)": (1, 5.0),
    "state.flags[1] = True\nstate.x[0] = to_float(state.flags[1]) + to_int(state.flags[0])": (
        0,
        1.0,
    ),
    "state.x[0] = clip(7, 0, 4) + clip(0.5, 1, 2) + max(1, 2.5, 2)": (0, 7.5),
    'y = 3  # a comment\n"""text"""\npass\nstate.x[0] = y': (0, 3.0),
    "y: float = 1.5\nstate.x[0] = y": (0, 1.5),
    "state.x[0] = Ship.COUNT * 0.5": (0, 1.5),
    "state.x[0] = Way.DOWN * 0.1": (0, np.float32(0.1)),
    "state.x[0] = lang.sqrt(6.25)": (0, 2.5),
    "state.x[0], ended = pair(0.5)\nreturn 0.0, ended": (0, 0.5),
    "return pair(2.0)": (1, 0.0),
}


@pytest.mark.parametrize(("code", "expected"), ACCEPTED.items())
def test_accepted(tmp_path: Path, code: str, expected: tuple[int, float]) -> None:
    place, value = expected
    assert played(tmp_path, code)[place] == np.float32(value)


TABLES = """
FLOATS = np.array([0.1, 0.2])
WHOLE = np.array([[1, 2], [3, 250]], np.uint8)
FLAGS = (True, False)
NEGATIVE, POSITIVE = (-0.0, 1.0), (0.0, 1.0)
DEEP = (((1.0, 2.0), (3.0, 4.0)),)

def first(block, k):
    row = block[k]
    return row[1]
"""


def test_tables(tmp_path: Path) -> None:
    code = """
    state.x[0] = FLOATS[action] * WHOLE[1, action]
    if FLAGS[0] and not FLAGS[action]:
        state.x[1] = first(DEEP[0], action)
    state.x[2] = 1.0 / NEGATIVE[0] + to_float(POSITIVE[0] < 0.0)
    """
    values = played(tmp_path, code, TABLES)
    np.testing.assert_array_equal(
        values, np.array([np.float32(0.2) * np.float32(250), 4.0, -np.inf], np.float32)
    )
    assert "_POSITIVE[" in printed(tmp_path, code, TABLES)  # zeros of two signs, two tables


def test_two_specialisations(tmp_path: Path) -> None:
    """A function is printed once for every combination of kinds; names never meet."""
    before = "def square_2(x):\n    return x\n\n\ndef both(x):\n    return square(x) + square(1)\n"
    code = "state.x[0] = square(1) + square(2.0) + square(3) + square_2(4.0) + both(5) + both(0.5)"
    text = printed(tmp_path, code, before)
    heads = re.findall(r"def (\w+)\(", text)
    assert len(heads) == len(set(heads))
    assert sum(re.match(r"f_\d+_square", head) is not None for head in heads) == 3
    assert sum(re.match(r"f_\d+_both", head) is not None for head in heads) == 2
    assert played(tmp_path, code, before)[0] == 1 + 4 + 9 + 4 + 26 + 1.25


def test_what_parameters_leave_out_is_not_printed(tmp_path: Path) -> None:
    code = "if params.hard:\n    state.x[0] = 11.0\nelse:\n    state.x[0] = 22.0\n"
    code += "if params.count > 2 and params.mode == 'day':\n    state.x[1] = 33.0"
    assert "11.0" in printed(tmp_path, code)
    assert "22.0" not in printed(tmp_path, code)
    assert "22.0" in printed(tmp_path, code, hard=False)
    assert "11.0" not in printed(tmp_path, code, hard=False)


def test_literals_are_folded_as_python_does(tmp_path: Path) -> None:
    text = printed(tmp_path, "state.x[0] = (0.1 + 0.2) * 3 - action * (2 + 3) * N")
    assert f"f32({(0.1 + 0.2) * 3!r})" in text
    assert "* u64(5))" in text


def test_indices_that_are_sure_are_not_looked_at(tmp_path: Path) -> None:
    code = "for i in range(3):\n    state.x[i] = 1.0\n    state.x[action] = 2.0"
    assert printed(tmp_path, code).count("inside(") == 1
    for other in (
        "for i in range(4):\n    state.x[i] = 1.0",
        "for i in range(-1, 3):\n    state.x[i] = 1.0",
        "for i in range(3):\n    i += 1\n    state.x[i] = 1.0",
        "for i in range(3):\n    for i in range(9):\n        pass\n    state.x[i] = 1.0",
        "for i in range(params.count, 3):\n    pass\nfor i in range(action):\n    state.x[i] = 1.0",
    ):
        assert printed(tmp_path, other).count("inside(") == 1, other


CLOSURE = """
def made(weight, table, wide):
    def bent(x):
        y = x * weight
        return y + table[1]

    class Task(operant.Env):
        observation_space = Box(-1, 1, (2,), np.float32)
        action_space = Discrete(3)

        class State(Arrays):
            x = float32[wide]

        @staticmethod
        def reset(state):
            state.x[0] = 0.0

        def step(state, action):
# A comment may stand anywhere.
            '''and so
may text'''
            state.x[wide - 1] = bent(weight)
            return 0.0, False

        def observe(state, obs):
            obs[0] = state.x[0]

    return Task

Task = made(0.1, (1.0, 0.7), 3)
Other = made(0.2, (1.0, 0.5), 2)
"""


def test_a_class_made_inside_a_function(tmp_path: Path) -> None:
    import operant

    made = module(tmp_path, HEAD + CLOSURE)
    for task, weight, added, wide in ((made.Task, 0.1, 0.7, 3), (made.Other, 0.2, 0.5, 2)):
        batch = operant.make(task, 1, backend="reference")
        batch.reset()
        batch.step(np.ones(1, np.int32))
        weight, added = np.float32(weight), np.float32(added)
        assert batch.get_state()["state.x"][0, wide - 1] == weight * weight + added


def test_floats_are_rounded_wherever_they_are_written(tmp_path: Path) -> None:
    """Python keeps ``0.1, 0.7`` as one constant; a class and a module are looked into."""
    before = "class Tool:\n    def bent(x):\n        y = 0.1\n        return y * y * x\n"
    f = np.float32
    found = played(tmp_path, "a, b = 0.1, 0.7\nstate.x[0] = a * b * b", before)
    assert found[0] == f(0.1) * f(0.7) * f(0.7)
    found = played(tmp_path, "state.x[0] = Tool.bent(0.3)", before)
    assert found[0] == f(0.1) * f(0.1) * f(0.3)
    code = "state.x[0] = lang.sin(0.5) * 1.0\nstate.x[1] = sin(0.5)"
    found = played(tmp_path, code)
    assert found[0] == found[1]


def test_an_action_of_several_parts(tmp_path: Path) -> None:
    code = "a, b = action\nstate.x[0] = a + 2 * b + 4 * action[1]"
    assert played(tmp_path, code, actions="MultiDiscrete([2, 3])")[0] == 7.0
    text = written("y = action[state.n[0]]  #!", actions="MultiDiscrete([2, 3])")
    assert refused(tmp_path, text) == "a part is chosen by a constant from 0 to 1"


@pytest.mark.parametrize("value", ["math.nan", "math.inf", "1e30"])
def test_floats_that_are_no_ints(tmp_path: Path, value: str) -> None:
    """Compiled code would make up a number."""
    with pytest.raises((ValueError, OverflowError)):
        played(tmp_path, "state.n[0] = to_int(BAD) % 3", f"BAD = {value}\n")


def test_both_sides_of_and_with_a_sign_are_computed(tmp_path: Path) -> None:
    """``&`` draws twice, ``and`` only once where the first is False."""
    for sign, drawn in (("&", 2), ("and", 1)):
        code = (
            f"ended = random.chance(0.0) {sign} random.chance(0.0)\nstate.x[0] = random.uniform()"
        )
        after = played(tmp_path, code)[0]
        plain = played(
            tmp_path,
            f"for k in range({drawn}):\n    random.uniform()\nstate.x[0] = random.uniform()",
        )
        assert after == plain[0]
        assert (" & " in printed(tmp_path, code)) == (sign == "&")
