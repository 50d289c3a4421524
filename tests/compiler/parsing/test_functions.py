"""What functions over arrays may say: what is refused, where and why, and what is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.backends.reference.numbers import ReferenceBackend
from operant.compiler.spec.rules import Rules
from operant.lang.advice import LanguageError

from .array_module import ENV, HEAD, OBSERVE, STEP, module, refused, written

# What is refused ----------------------------------------------------------------------------------
HELPERS = {
    "def f(x):\n    return f(x)  #!": "f() calls itself; write a loop",
    "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)  #!": "f() calls itself; write a loop",
    "def f(x):\n    x = 2  #!\n    return x": "the argument x is given another value; use a new",
    "def f(x):\n    for x in range(3):  #!\n        pass": "the argument x is given another value",
    "def f(x):  #!\n    if x > 0:\n        return 1": "f() may end without a return",
    "def f(x):  #!\n    while x > 0:\n        return 1": "f() may end without a return",
    "def f(x):\n    if x > 0:\n        return 1\n    return 2.0  #!": "returns a float here and",
    "def f(x):\n    return TABLE  #!": "a function returns numbers, not an array of 3; hand it",
    "def f(x):\n    write(TABLE)\ndef write(row):\n    row[0] = 1.5  #!": "row of write() is a",
    "def f(x):\n    return rnd.randint(0, 3)  #!": (
        "rnd.randint() is not compiled and ignores the seed; take `random` as an argument of "
        "reset() or step(), and write random.integers(low, high), which ends at high - 1"
    ),
    "def f(x):\n    return random.uniform() * x  #!": (
        "nothing is called random here; take it as an argument: def f(x, random)"
    ),
    "def f(x):\n    return math.sqrt(x)  #!": "math.sqrt() is not compiled; write operant.",
    "f = lambda x: x  #!": "a lambda is not compiled; write a plain function with def",
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
    assert refused(tmp_path, written("y = 1\nf(y)", before + "\n")).startswith(message)


@pytest.mark.parametrize(
    "head", ["def f(x, y=2):", "def f(*x):", "def f(x, **more):", "def f(x, *, y):", "def f(x, /):"]
)
def test_refused_arguments_of_helpers(tmp_path: Path, head: str) -> None:
    text = written("y = 1\nf(y)  #!", f"{head}\n    return 1\n")
    assert refused(tmp_path, text) == (
        "f() takes plain arguments only, without defaults, * and /, got " + head.rstrip(":")
    )


ENTRIES = {
    "    def step(state, action):  #!\n        state.x[0] = 1.0\n\n" + OBSERVE: (
        "step() must return two values, reward and terminated (0.0, False), and it has no return"
    ),
    "    def step(state, action):  #!\n        if action > 0:\n            return 1.0, True\n\n"
    + OBSERVE: "step() may end without a return",
    "    def step(state, action):\n        action = 2  #!\n        return 1.0, True\n\n"
    + OBSERVE: "the argument action is given another value; use a new name",
    STEP + "        return 0.0, True\n\n    def observe(state):\n        return state.x[0]  #!\n": (
        "observe() writes in place (obs[k] = ...) and returns nothing"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state, random):  #!\n        pass\n": (
        "observe() of a state of arrays takes any of state, obs, params; got the argument 'random'"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state, obs):\n        obs[2] = 1.0  #!\n": (
        "index 2 of obs is outside 0..1"
    ),
    STEP + "        return 0.0, True\n\n    def observe(state):\n        state.x[0] = 1.0  #!\n": (
        "observe() and action_mask() only look at the state; write to it in step()"
    ),
    STEP
    + "        return 0.0, True\n\n"
    + OBSERVE
    + "\n    def action_mask(state, mask):\n        row = state.x\n        row[:] = 1.0  #!\n": (
        "observe() and action_mask() only look at the state; write to it in step()"
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
        "an element of mask must be a bool, got an int; write True"
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
    assert refused(tmp_path, text).startswith("observe() and action_mask() only look at the state")


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


def test_a_mask_is_written(tmp_path: Path) -> None:
    functions = f"{STEP}        return 0.0, True\n\n{OBSERVE}"
    functions += "\n    def action_mask(state, mask):  #!\n        y = mask[0]\n"
    assert refused(tmp_path, HEAD + ENV.format(functions=functions, actions="Discrete(3)")) == (
        "action_mask() never writes to `mask`, so every action is allowed; write mask[0] = False "
        "where action 0 is not"
    )


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
    from operant.compiler.emit.dialects import PythonText

    task = module(tmp_path, written(code, before)).Task
    rules: Any = Rules.of(task, params)
    return "\n".join(rules.library(PythonText())[0].texts)


ACCEPTED = {
    "state.x[Way.DOWN] = GRID[Way.UP, 2] * 1.5": (1, 4.5),
    "a, b = 1.0, 2.0\na, b = b, a\nstate.x[0] = a - b": (0, 1.0),
    "[a, b] = 1.0, 2.0\nstate.x[0] = a - b": (0, -1.0),
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
    assert refused(tmp_path, text) == (
        "a part is chosen by a constant from 0 to 1; what an index chooses is in a table above the "
        "class"
    )


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
