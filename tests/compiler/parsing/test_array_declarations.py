"""Mistakes where a state of arrays and the functions over it are declared, and what they return."""

from __future__ import annotations

from pathlib import Path

import pytest

from .array_module import refused, written

FIELD = "        n = int32[4]\n"
STATE = "    class State(Arrays):\n"
AN_ARRAY = "Task.State.n must be an array such as float32[4], int32[2, 3], uint8[8] or boolean[1]"
ON_THE_LINE = {
    "n = uint8[4][4]": "an array has all its sizes in one pair of brackets; write uint8[4, 4]",
    "n = boolean[2, 3][4]": (
        "an array has all its sizes in one pair of brackets; write boolean[2, 3, 4]"
    ),
    "n = int32(4)": "sizes stand in square brackets; write int32[4]",
    "n = float32()": "sizes stand in square brackets; write float32[1]",
    "n = int32[1.5]": "int32 takes sizes of at least 1, such as int32[8], got 1.5",
    "n = int32[0]": "int32 takes sizes of at least 1, such as int32[8], got 0",
    "n = 0": f"{AN_ARRAY}, got 0; write n = int32[1], and its first values in reset()",
    "n = [0, 0]": f"{AN_ARRAY}, got [0, 0]; write n = int32[2], and its first values in reset()",
    "n = np.zeros(2)": (
        f"{AN_ARRAY}, got array([0., 0.]); write n = float32[2], and its first values in reset()"
    ),
    "n = int32": f"{AN_ARRAY}, got int32; write n = int32[1]",
    "n = float": f"{AN_ARRAY}, got <class 'float'>; write n = float32[1]",
    "n = 'four'": f"{AN_ARRAY}, got 'four'",
    "fields = int32[4]": (
        "Task.State.fields: no array is called `fields` or begins with _; write another name"
    ),
    "_n = int32[4]": (
        "Task.State._n: no array is called `fields` or begins with _; write another name"
    ),
    "n: int32[4]": "an array is not annotated: write n = int32[4], not n: int32[4]",
    "n: int": "an array is not annotated: write n = int32[1], not n: int",
}
OF_THE_CLASS = {
    "n = int32[1024, 1024]": (
        "Task.State needs at least one array and at most 1048576 bytes, got 5 arrays of 4194385 "
        "bytes"
    ),
}
HEADS = {
    "def step(self, state, action):": (
        "step() of a state of arrays takes any of state, action, random, params; got the argument "
        "'self': leave it out, what an environment remembers is in `state`"
    ),
    "def step(state, action, seed):": (
        "step() of a state of arrays takes any of state, action, random, params; got the argument "
        "'seed'"
    ),
    "def step(state, act, random):": (
        "step() of a state of arrays takes any of state, action, random, params; got the argument "
        "'act'; did you mean 'action'?"
    ),
    "def step(state, action, random=None):": (
        "step() takes plain arguments only, without defaults, * and /, got def step(state, action, "
        "random=None)"
    ),
    "async def step(state, action):": (
        "Task.step() is not compiled; write a plain function with def"
    ),
}

RETURNS = {
    "return 1.0  #!": (
        "step() must return two values, reward and terminated (0.0, False); got a float"
    ),
    "return 1.0, False, 2  #!": (
        "step() must return two values, reward and terminated (0.0, False); got 3 values (the"
        " state is changed in place; the time limit is max_episode_steps)"
    ),
    "return 1.0, 0  #!": (
        "terminated, the second value returned, must be a bool, got an int; write False"
    ),
    "return action > 0, False  #!": (
        "the reward, the first value returned, must be a float, got a bool; write "
        "to_float(action > 0)"
    ),
    "return action > 0, 1.0  #!": (
        "reward and terminated are swapped; write return reward, terminated"
    ),
    "return pair(1)  #!": (
        "step() must return two values, reward and terminated (0.0, False); got a tuple of 2"
    ),
    "if action > 0:\n    return 1.0, False\nreturn  #!": (
        "step() must return two values, reward and terminated (0.0, False); got nothing"
    ),
    "return 1.0, False, False  #!": (
        "step() must return two values, reward and terminated (0.0, False); got 3 values (the"
        " state is changed in place; the time limit is max_episode_steps)"
    ),
    "return state, 1.0, False, False, {}  #!": (
        "step() must return two values, reward and terminated (0.0, False); got 5 values (the"
        " state is changed in place; the time limit is max_episode_steps)"
    ),
    "return  #!": "step() must return two values, reward and terminated (0.0, False); got nothing",
    "return [1.0, False]  #!": (
        "step() must return two values, reward and terminated (0.0, False); got [1.0, False]"
    ),
    "return None  #!": (
        "step() must return two values, reward and terminated (0.0, False); got None"
    ),
    "return state.x, False  #!": (
        "the reward, the first value returned, must be a number, got an array of 3; write one"
        " element, state.x[k], or a loop"
    ),
    "return True, False  #!": (
        "the reward, the first value returned, must be a float, got a bool; write 1.0"
    ),
    "return 1.0, 1  #!": (
        "terminated, the second value returned, must be a bool, got an int; write True"
    ),
    "return None, False  #!": (
        "step() must return two values, reward and terminated (0.0, False); got (None, False)"
    ),
    "return 'a', False  #!": (
        "the reward, the first value returned, must be a number, got text; there is no text "
        "in compiled code; write numbers (LEFT, RIGHT = 0, 1)"
    ),
    "return {}  #!": "step() must return two values, reward and terminated (0.0, False); got {}",
    "return state  #!": (
        "step() must return two values, reward and terminated (0.0, False); got the state"
    ),
}


@pytest.mark.parametrize(("line", "message"), ON_THE_LINE.items())
def test_a_wrong_size(tmp_path: Path, line: str, message: str) -> None:
    text = written("y = 1").replace(FIELD, f"        {line}  #!\n")
    assert refused(tmp_path, text) == message


@pytest.mark.parametrize(("line", "message"), OF_THE_CLASS.items())
def test_no_array(tmp_path: Path, line: str, message: str) -> None:
    text = written("y = 1").replace(FIELD, f"        {line}\n")
    assert refused(tmp_path, text.replace(STATE, STATE.replace("\n", "  #!\n"))) == message


def test_arrays_in_a_plain_class(tmp_path: Path) -> None:
    text = written("y = 1").replace(STATE, "    class State:  #!\n")
    assert refused(tmp_path, text) == (
        "Task.State must be a subclass of Arrays, got the class State; write class State(Arrays): "
        "its fields are arrays"
    )


@pytest.mark.parametrize(("head", "message"), HEADS.items())
def test_a_wrong_head(tmp_path: Path, head: str, message: str) -> None:
    text = written("y = 1").replace("def step(state, action, random, params):", f"{head}  #!")
    assert refused(tmp_path, text) == message


def test_a_method_of_the_class_is_no_plain_function(tmp_path: Path) -> None:
    text = written("y = 1").replace("    def step(", "    @classmethod  #!\n    def step(")
    assert refused(tmp_path, text) == (
        "Task.step must be a plain function written with def, without @classmethod, got a method"
    )


@pytest.mark.parametrize(("code", "message"), RETURNS.items())
def test_a_wrong_return(tmp_path: Path, code: str, message: str) -> None:
    assert refused(tmp_path, written(code)) == message
