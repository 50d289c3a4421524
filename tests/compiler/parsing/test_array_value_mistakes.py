"""Mistakes in numbers, names and elements of arrays: where, what came, what to write.

The line that ends with ``#!`` is the one that the message must name, in the author's own file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .array_module import module, refused, written

NUMBERS = {
    "y = 1\nif action > 0:\n    y = 2.0  #!": (
        "y is an int elsewhere and a float here; a variable keeps its kind (begin with 0.0, "
        "or write to_float, to_int)"
    ),
    "y = 0\ny += 0.5  #!": (
        "y is an int elsewhere and a float here; a variable keeps its kind (begin with 0.0, "
        "or write to_float, to_int)"
    ),
    "y = 0.5\nfor y in range(3):  #!\n    pass": (
        "y is a float elsewhere and an int here; a variable keeps its kind (begin with 0.0, "
        "or write to_float, to_int)"
    ),
    "y = 1 if action > 0 else 2.0  #!": "a choice between an int and a float; write 1.0, not 1",
    "y = (action > 0) + 1  #!": "+ of a truth value; write to_int(x) or to_float(x) of it",
    "y = -(action > 0)  #!": "action > 0 is a truth value; write not x",
    "y = abs(action > 0)  #!": "abs() of a truth value; write to_int(x)",
    "y = min(action > 0, action > 1)  #!": "minimum() of truth values; write a and b, or a or b",
    "y = (action > 0) == 1  #!": "a comparison mixes truth values and numbers; write to_int(x)",
    "y = where(action > 0, action > 1, 2)  #!": (
        "where() mixes truth values and numbers; write to_int(x)"
    ),
    "if action == 2 & state.n[0] > 0:  #!\n    pass": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write (action == 2) and "
        "(state.n[0] > 0)"
    ),
    "if action == 2 & (state.n[0] > 3):  #!\n    pass": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write "
        "(action == 2) and (state.n[0] > 3)"
    ),
    "if (action == 2) & state.n[0] > 3:  #!\n    pass": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write "
        "(action == 2) and (state.n[0] > 3)"
    ),
    "hit = state.n[0] > 3\nif action == 2 & hit:  #!\n    pass": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write "
        "(action == 2) and hit"
    ),
    "y = (0 < action | state.n[0] < 3)  #!": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write (0 < action) or "
        "(state.n[0] < 3)"
    ),
    "y = state.n[0] & (1) == 1 == (action)  #!": (
        "`&` and `|` bind tighter than comparisons: brackets are missing; write (state.n[0]) "
        "and (1 == 1 == action)"
    ),
    "y = action / 2  #!": "int / int: write to_float(a) / b, or a // b for a whole number",
    "y = action ** 2  #!": "powers are not compiled; write x * x, or exp(y * log(x))",
    "y = state.x[0] ** 0.5  #!": "powers are not compiled; write x * x, or exp(y * log(x))",
    "y = state.x[0] % 1.0  #!": "% is for ints; for floats write a - b * floor(a / b)",
    "y = state.x[0] // 2  #!": "// is for ints; for floats write floor(a / b)",
    "y = ~state.x[0]  #!": "~ is for ints; for a truth value write not x",
    "y = state.x @ state.x  #!": (
        "`state.x` must be a number, got an array of 3; write one element, state.x[k], or a loop"
    ),
    "y = action // 0  #!": "action // 0 divides by zero",
    "y = N % 0  #!": "N % 0 divides by zero",
    "y = action << 64  #!": "<< is by 0 to 63 bits, got 64",
    "y = action >> -1  #!": ">> is by 0 to 63 bits, got -1",
    "y = 9223372036854775808  #!": "9223372036854775808 does not fit into 64 bits",
    "y = BIG * 4  #!": "18446744073709551616 does not fit into 64 bits",
    "y = action if action else 2  #!": "a condition must be a bool, got an int; write action != 0",
    "if state.x[0]:  #!\n    pass": (
        "a condition must be a bool, got a float; write state.x[0] != 0"
    ),
    "y = not action  #!": "a condition must be a bool, got an int; write action != 0",
    "y = action is N  #!": "`is` is not compiled; write action == N",
    "y = action in GRID  #!": (
        "`in` is not compiled; write found = False, then for k in range(len(GRID)): found = "
        "found or GRID[k] == action"
    ),
    "y = params.mode == 3  #!": (
        "text is compared with text only, by == and != (a parameter's, say); number what you "
        "compare: LEFT, RIGHT = 0, 1"
    ),
    "y = params.mode < 'day'  #!": (
        "text is compared with text only, by == and != (a parameter's, say); number what you "
        "compare: LEFT, RIGHT = 0, 1"
    ),
    "y = 0 < square(action) < 3  #!": (
        "a call in the middle of a comparison; give its result a name"
    ),
    "y = action in state.n  #!": (
        "`in` is not compiled; write found = False, then for k in range(len(state.n)): found "
        "= found or state.n[k] == action"
    ),
    "y = (1, 2)[action]  #!": (
        "a part is chosen by a constant from 0 to 1; what an index chooses is in a table "
        "above the class"
    ),
    "y = action in (1, 2)  #!": "`in` is not compiled; write action == 1 or action == 2",
    "y = action not in {1, 2}  #!": "`not in` is not compiled; write action != 1 and action != 2",
    "y = action in range(1, 3)  #!": "`in` is not compiled; write 1 <= action < 3",
    "y = action is None  #!": (
        "action is never None in compiled code; write -1 for nobody, and action == -1"
    ),
    "y = action is not N  #!": "`is` is not compiled; write action != N",
    "y = (state.n[0], state.n[1]) == (0, N)  #!": (
        "tuples are not compared; write state.n[0] == 0 and state.n[1] == N"
    ),
    "y = (state.n[0], action) != (0, 1)  #!": (
        "tuples are not compared; write state.n[0] != 0 or action != 1"
    ),
    "y = action == Side.LEFT  #!": (
        "what is compared must be a number, got a member of Side; make it class Side(enum.IntEnum)"
    ),
    "y = MOVES[action]  #!": (
        "only arrays have elements, and MOVES is a dict; write MOVES = ((0, 1), (1, 0)), a table, "
        "and MOVES[action, 0]"
    ),
    "y = PRICES[action]  #!": (
        "only arrays have elements, and PRICES is a dict; write PRICES = (5, 7), a table, and "
        "PRICES[action]"
    ),
    "y = state.n == 0  #!": (
        "what is compared must be a number, got an array of 4; write one element, state.n[k],"
        " or a loop"
    ),
    "y = state.board[0] == state.board[1]  #!": (
        "what is compared must be a number, got an array of 4; write one element, "
        "state.board[0][k], or a loop"
    ),
    "y = state.n + 1  #!": (
        "`state.n` must be a number, got an array of 4; write one element, state.n[k], or a loop"
    ),
    "if state.flags:  #!\n    pass": (
        "a condition must be a number, got an array of 5; write one element, state.flags[k], "
        "or a loop"
    ),
    "y = (1, 2)  #!": (
        "a tuple of 2 cannot be kept in a variable; give each part a name: y0, y1 = ..."
    ),
    "y = state.x[0] if action > 0 else 1  #!": (
        "a choice between a float and an int; write 1.0, not 1"
    ),
}
NAMES = {
    "y = nowhere  #!": "nothing is called nowhere here; did you mean where?",
    "y = Task.count  #!": (
        "nothing is called Task here: Task is still being defined; write constants and "
        "helpers above the class"
    ),
    "y = NAMES[0]  #!": (
        "NAMES is a tuple of other things than numbers; tables hold numbers: (0, 1, 2)"
    ),
    "y = z  #!\nz = 1": "z has no value yet here; give it one before",
    "if action > 0:\n    y = 1\nz = y  #!": "y may have no value yet here; give it one before",
    "for k in range(3):\n    y = 1\nz = y  #!": "y may have no value yet here; give it one before",
    "for k in range(3):\n    pass\nz = k  #!": "k may have no value yet here; give it one before",
    "while action > 5:\n    y = 1\n    break\nz = y  #!": (
        "y may have no value yet here; give it one before"
    ),
    "if params.hard:\n    y = 1\nelse:\n    z = 1\ny = z  #!": (
        "z has no value yet here; give it one before"
    ),
    "y = state.speed[0]  #!": "the state has no array 'speed'; it has x, grid, n, board, flags",
    "y = params.speed  #!": "there is no parameter 'speed'; there are: gravity, count, hard, mode",
    "y = params.mode + 1  #!": (
        "`params.mode` must be a number, got text; there is no text in compiled code; write "
        "numbers (LEFT, RIGHT = 0, 1)"
    ),
    "y = 'text'  #!": (
        "text cannot be kept in a variable; there is no text in compiled code; write numbers "
        "(LEFT, RIGHT = 0, 1)"
    ),
    "y = state  #!": "the state cannot be kept in a variable; use it by its own name",
    "y = math.sin(0.5)  #!": "math.sin() is not compiled; write operant.lang.sin",
    "y = np.sin(0.5)  #!": "np.sin() is not compiled; write operant.lang.sin",
    "y = math.pi  #!": "math.pi is not compiled; write from operant.lang import pi, then pi",
    "y = Ship.SPEED  #!": "give Ship.SPEED a name above the class: SPEED = Ship.SPEED",
    "y = Ship.WEIGHT  #!": "Ship is a class and has no 'WEIGHT'",
    "y = squar(1)  #!": "nothing is called squar here; did you mean square?",
    "y = GRIT[0, 0]  #!": "nothing is called GRIT here; did you mean GRID?",
    "y = state.bord[0, 0]  #!": (
        "the state has no array 'bord'; it has x, grid, n, board, flags; did you mean board?"
    ),
    "state.bord[0, 0] = 1  #!": (
        "the state has no array 'bord'; it has x, grid, n, board, flags; did you mean board?"
    ),
    "state.score = 0  #!": (
        "the state has no array 'score'; it has x, grid, n, board, flags; or add score = "
        "int32[1] to State and write state.score[0] = 0"
    ),
    "state.speed += 0.5  #!": (
        "the state has no array 'speed'; it has x, grid, n, board, flags; or add speed = "
        "float32[1] to State and write state.speed[0] += 0.5"
    ),
    "y = self.n  #!": (
        "nothing is called self here: an environment has no self; what it remembers is in `state`"
    ),
    "self.n = 1  #!": (
        "nothing is called self here: an environment has no self; what it remembers is in `state`"
    ),
    "y = obs[0]  #!": (
        "nothing is called obs here; the observation is written in observe(state, obs)"
    ),
    "y = mask[0]  #!": (
        "nothing is called mask here; the mask is written in action_mask(state, mask)"
    ),
    "N += 1  #!": (
        "N has no value yet here: the N of the module cannot be changed; add N = int32[1] (or"
        " float32[1]) to State and write state.N[0]"
    ),
    "y = math.inf  #!": "give math.inf a name above the class: INF = math.inf",
    "y = np.pi  #!": "np.pi is not compiled; write from operant.lang import pi, then pi",
    "y = math.sqrt(2.0)  #!": "math.sqrt() is not compiled; write operant.lang.sqrt",
    "y = np.zeros(4)  #!": "np.zeros() is not compiled; declare arrays in State: x = float32[8]",
    "y = params.gravty  #!": (
        "there is no parameter 'gravty'; there are: gravity, count, hard, mode; did you mean "
        "gravity?"
    ),
    "params.gravity = 1.0  #!": "parameters do not change; keep gravity in State",
    "y = math  #!": "a module cannot be kept in a variable; use it by its own name",
    "y = square.x  #!": "square is a function and has no 'x'",
    "y = action.x  #!": "action is an int and has no 'x'",
}
ARRAYS = {
    "y = state.x[3]  #!": "index 3 of state.x is outside 0..2; write a number in that range",
    "y = state.x[-1]  #!": "index -1 of state.x is outside 0..2; the last is 2",
    "y = state.board[1, 4]  #!": (
        "index 4 of axis 1 of state.board is outside 0..3; write a number in that range"
    ),
    "state.board[N, 0] = 1  #!": (
        "index 4 of axis 0 of state.board is outside 0..3; write a number in that range"
    ),
    "y = state.x[0.0]  #!": "an index must be an int, got a float; write 0",
    "y = state.x[action > 0]  #!": "an index must be an int, got a bool; write to_int(action > 0)",
    "y = state.x[0, 1]  #!": "state.x is an array of 3, got 2 indices; write state.x[k]",
    "y = state.x[0:2]  #!": (
        "the slice state.x[0:2] is not compiled; write for k in range(0, 2): ... state.x[k] ..."
    ),
    "y = state.x[:]  #!": (
        "the slice state.x[:] is not compiled; write state.x[:] = value to fill it, or "
        "state.x alone to hand it to a function"
    ),
    "state.grid[:, 0] = 1.0  #!": (
        "the slice state.grid[:, 0] is not compiled; write for k in range(3): ... "
        "state.grid[k, 0] ..."
    ),
    "y = action[0]  #!": "only arrays have elements, and action is an int; write action alone",
    "y = state.x + 1.0  #!": (
        "`state.x` must be a number, got an array of 3; write one element, state.x[k], or a loop"
    ),
    "y = GRID[2, 0]  #!": "index 2 of axis 0 of GRID is outside 0..1; write a number in that range",
    "TABLE[0] = 1.0  #!": "TABLE is a constant; what changes is in State: name = int32[8]",
    "row = GRID[0]\nrow[1] = 2  #!": (
        "a part of GRID is a constant; what changes is in State: name = int32[8]"
    ),
    "TABLE[:] = 1.0  #!": "TABLE is a constant; what changes is in State: name = int32[8]",
    "state.x = TABLE  #!": (
        "an array is copied with a loop, element by element: for k in range(3): state.x[k] = "
        "TABLE[k]"
    ),
    "state.x = 1.0  #!": (
        "state.x is an array of 3 and stays where it is; write state.x[0] = 1.0 (or another "
        "index, or state.x[:] = 1.0 for all of it)"
    ),
    "state.x += 1.0  #!": (
        "state.x is an array of 3 and stays where it is; write state.x[0] += 1.0 (or another index)"
    ),
    "state.n[0] = 1.0  #!": "an element of state.n must be an int, got a float; write 1",
    "state.flags[0] = 1  #!": "an element of state.flags must be a bool, got an int; write True",
    "state.grid[0] = 1.0  #!": (
        "state.grid[0] is an array of 4; write state.grid[0][:] = value to fill it"
    ),
    "state.grid[0] += 1.0  #!": (
        "what is changed must be a number, got an array of 4; write one element, "
        "state.grid[0][k], or a loop"
    ),
    "state.x[:] = state.x  #!": (
        "an array is copied with a loop, element by element: for k in range(3): state.x[k] = "
        "state.x[k]"
    ),
    "y = 1\ny[0] = 2  #!": "only arrays have elements, and y is an int; write y alone",
    "y = state.grid[0]\ny = state.x  #!": "y stands for something else elsewhere; use a new name",
    "y = TABLE\ny = state.x  #!": "y stands for something else elsewhere; use a new name",
    "y = 1\ny = state.x  #!": "y stands for something else elsewhere; use a new name",
    "y = state.x\ny = 1  #!": "y stands for an array elsewhere; use a new name",
    "state.grid[random.integers(3)][0] += 1.0  #!": (
        "a call in what is written to; give its result a name first"
    ),
    "y = random.integers(0)  #!": "integers() chooses among 1 to 2**24 numbers, got 0",
    "y = random.integers(5, 5)  #!": "integers() chooses among 1 to 2**24 numbers, got 0",
    "y = random.integers(1 << 25)  #!": "integers() chooses among 1 to 2**24 numbers, got 33554432",
    "länge = 1  #!": "länge: names in compiled functions are ASCII letters",
    "y = len(action)  #!": "len() is of an array, got an int",
    "a, b = pair(1.0), 2  #!": (
        "`pair(1.0)` must be a number, got a tuple of 2; write a, b = pair(1.0) first"
    ),
    "a, b, c = pair(1.0)  #!": (
        "3 names for a tuple of 2; write as many names as there are values, without *"
    ),
    "a, b = 1  #!": "2 names for an int; write as many names as there are values, without *",
    "y = pair(1.0)  #!": (
        "a tuple of 2 cannot be kept in a variable; give each part a name: y0, y1 = ..."
    ),
    "y = pair(1.0)[0]  #!": (
        "only arrays have elements, and pair(1.0) is a tuple of 2; write a, b = pair(1.0) first"
    ),
    "y = state.grid[0:1, 1:2]  #!": (
        "the slice state.grid[0:1, 1:2] is not compiled; write for k in range(3): for j in "
        "range(4): ... state.grid[k, j] ..."
    ),
    "y = state['x']  #!": "only arrays have elements, and state is the state; write state.x",
    "y = params['gravity']  #!": (
        "only arrays have elements, and params is the parameters; write params.gravity"
    ),
    "state.n += 1  #!": (
        "state.n is an array of 4 and stays where it is; write state.n[0] += 1 (or another index)"
    ),
    "state.n = 1  #!": (
        "state.n is an array of 4 and stays where it is; write state.n[0] = 1 (or another "
        "index, or state.n[:] = 1 for all of it)"
    ),
    "state.flags = True  #!": (
        "state.flags is an array of 5 and stays where it is; write state.flags[0] = True (or "
        "another index, or state.flags[:] = True for all of it)"
    ),
    "state.board = 0  #!": (
        "state.board is an array of 4 x 4 and stays where it is; write state.board[0, 0] = 0 "
        "(or another index, or state.board[:] = 0 for all of it)"
    ),
    "state.n = state.n + 1  #!": (
        "`state.n` must be a number, got an array of 4; write one element, state.n[k], or a loop"
    ),
    "y = state.x[::-1]  #!": (
        "the slice state.x[::-1] is not compiled; write for k in range(3): ... state.x[k] ..."
    ),
    "y = state.grid[:, 0]  #!": (
        "the slice state.grid[:, 0] is not compiled; write for k in range(3): ... "
        "state.grid[k, 0] ..."
    ),
    "state.grid[0, :] = 1.0  #!": (
        "the slice state.grid[0, :] is not compiled; write state.grid[0][:] = value to fill "
        "it, or state.grid[0] alone to hand it to a function"
    ),
    "a, b = state.n  #!": "2 names for an array of 4; write a, b = state.n[0], state.n[1]",
    "a, *b = 1, 2, 3  #!": (
        "2 names for a tuple of 3; write as many names as there are values, without *"
    ),
    "a, b = 1, 2, 3  #!": (
        "2 names for a tuple of 3; write as many names as there are values, without *"
    ),
    "(a, b), c = (1, 2), 3  #!": (
        "`(1, 2)` must be a number, got a tuple of 2; write a, b = (1, 2) first"
    ),
    "state.board[0, 0] = 300  #!": (
        "300 does not fit into state.board, which is uint8: 0 to 255; write a number in that "
        "range, or declare it int32"
    ),
    "state.board[0, 0] = -1  #!": (
        "-1 does not fit into state.board, which is uint8: 0 to 255; write a number in that "
        "range, or declare it int32"
    ),
    "state.board[:] = 256  #!": (
        "256 does not fit into state.board, which is uint8: 0 to 255; write a number in that "
        "range, or declare it int32"
    ),
    "state.n[0] = 1 << 31  #!": (
        "2147483648 does not fit into state.n, which is int32: -2147483648 to 2147483647; "
        "write a number in that range"
    ),
    "GRID[0] = 1  #!": "GRID is a constant; what changes is in State: name = int32[8]",
    "y = random[0]  #!": (
        "only arrays have elements, and random is the random numbers; numbers are drawn one "
        "after the other: random.uniform()"
    ),
    "state.x[state.x > 0.0] = 1.0  #!": (
        "what is compared must be a number, got an array of 3; write one element, state.x[k],"
        " or a loop"
    ),
    "y = state.board.shape[0]  #!": (
        "state.board.shape is not compiled; write len(state.board), or a constant such as "
        "SIZE above the class"
    ),
    "y = state.board.copy()  #!": (
        "state.board.copy is not compiled; write a loop that copies element by element into "
        "another array of State"
    ),
    "state.board.fill(0)  #!": "state.board.fill is not compiled; write state.board[:] = value",
    "state.n.append(1)  #!": (
        "state.n.append is not compiled; write state.n[n] = value, with the count n kept in "
        "State (n = int32[1]): arrays keep their size"
    ),
    "y = state.x.T  #!": (
        "state.x.T is not compiled; read and write its elements, state.x[k], in a loop"
    ),
    "y = state.n[state.x[0]]  #!": "an index must be an int, got a float; write to_int(state.x[0])",
    "state.grid[0][:] = state.x  #!": (
        "an array is copied with a loop, element by element: for k in range(3): "
        "state.grid[0][k] = state.x[k]"
    ),
}
TABLE = NUMBERS | NAMES | ARRAYS


@pytest.mark.parametrize(
    ("code", "message"), TABLE.items(), ids=[code.split("  #!")[0] for code in TABLE]
)
def test_mistake(tmp_path: Path, code: str, message: str) -> None:
    assert refused(tmp_path, written(code)) == message


@pytest.mark.parametrize(
    "code",
    [
        "y = action == (2 & state.n[0]) > 0",
        "y = 0 <= (  # its lowest bits\n    state.n[0] & 3\n) < 2",
        "y = (state.n[0] & 3) < (action | 1) < 9",
        "y = state.n[0] & 1 == 0",  # Python reads it as people mean it
        "y = 0 < state.n[0] << 1 < 9",
    ],
)
def test_bits_in_brackets_are_compared(tmp_path: Path, code: str) -> None:
    module(tmp_path, written(code))
