"""Mistakes in statements and calls over arrays: where, what came, what to write.

The line that ends with ``#!`` is the one that the message must name, in the author's own file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .array_module import refused, written

STATEMENTS = {
    "try:  #!\n    y = 1\nexcept ValueError:\n    pass": (
        "`try` is not compiled, and nothing raises in compiled code; ask before, with `if`"
    ),
    "with state:  #!\n    y = 1": "`with` is not compiled; open files outside the environment",
    "def inner():  #!\n    pass": (
        "a function inside a function; write def inner(): above the class"
    ),
    "class Inner:  #!\n    pass": (
        "a class inside a function is not compiled; keep its numbers in arrays of State"
    ),
    "global N  #!\nN = 3": (
        "`global N`: a step changes nothing but the state; add N = int32[1] (or float32[1]) "
        "to State and write state.N[0]"
    ),
    "import math  #!": "`import` belongs at the top of the file, not into a compiled function",
    "raise ValueError  #!": (
        "`raise` is not compiled; to end the episode, write: return reward, True"
    ),
    "assert action > 0  #!": (
        "`assert` is not compiled; leave it out (`operant check` looks for bad indices, NaN "
        "and bounds)"
    ),
    "y = 1\ndel y  #!": "`del` is not compiled; leave it out, variables end with the function",
    "y = z = 1  #!": "one name at a time: write y = 1, then z = 1",
    "match action:  #!\n    case 1:\n        pass": (
        "`match` is not compiled; write if x == 0: ... elif x == 1: ... else: ..."
    ),
    "y: int  #!": "y has no value; write y = 0",
    "y = [1, 2]  #!": (
        "`[1, 2]`: lists are not compiled; numbers that change are an array of State (values "
        "= int32[2]), constants a table above the class (VALUES = (1, 2))"
    ),
    "y = {1: 2}  #!": (
        "a dict is not compiled; keep its numbers in an array, with names for the indices: "
        "FUEL, HULL = range(2), then state.ship[FUEL]"
    ),
    "y = [k for k in range(3)]  #!": (
        "a comprehension is not compiled; write a loop that fills an array of State: for k in"
        " range(3): state.values[k] = k"
    ),
    "y = sum(k for k in range(3))  #!": (
        "sum() is not compiled; write total = 0, then for k in range(3): total += k"
    ),
    "y = lambda: 1  #!": "a lambda is not compiled; write above the class: def f(): return 1",
    "y = (yield)  #!": "`yield` is not compiled; a step returns once: return reward, terminated",
    "y = (z := 1)  #!": "`:=` is not compiled; write z = 1 on a line of its own before",
    "y = f'{action}'  #!": (
        "an f-string is not compiled: there is no text in compiled code; to see a value, set "
        "a breakpoint with backend='reference'; text for a picture belongs into render()"
    ),
    "y = ()  #!": (
        "`()`: lists are not compiled; numbers that change are an array of State (values = "
        "int32[1]), constants a table above the class (VALUES = (0,))"
    ),
    "y = None  #!": "None is no number; write -1 for nobody, or keep a truth value in boolean[1]",
    "while action > 5:  #!\n    pass\nelse:\n    y = 1": (
        "while ... else is not compiled; write what follows below the loop"
    ),
    "for k in range(3):  #!\n    pass\nelse:\n    y = 1": (
        "for ... else is not compiled; set found = False before, True at the break, and ask"
    ),
    "for v in state.x:  #!\n    pass": (
        "a loop is over range(); write for k in range(3): v = state.x[k]"
    ),
    "for v in (1, 2):  #!\n    pass": (
        "a loop is over range(); put VALUES = (1, 2) above the class, and write for k in "
        "range(2): v = VALUES[k]"
    ),
    "for k in range(0, 9, action):  #!\n    pass": (
        "the step of a range is a constant that is not 0, got action; count in a while loop instead"
    ),
    "for k in range(3.0):  #!\n    pass": "range() must be an int, got a float; write 3",
    "y = range(3)  #!": "range() belongs into a loop: for k in range(n)",
    "print(action)  #!": (
        "print() is not compiled; leave it out, and look at values with make(..., "
        "backend='reference') and a breakpoint, or env.get_state()"
    ),
    "for v in state.board[0]:  #!\n    pass": (
        "a loop is over range(); write for k in range(4): v = state.board[0][k]"
    ),
    "for v in square(1):  #!\n    pass": (
        "a loop is over range(); write for k in range(n), and array[k] in it"
    ),
    "try:  #!\n    pass\nexcept* ValueError:\n    pass": (
        "`try` is not compiled, and nothing raises in compiled code; ask before, with `if`"
    ),
    "y = [a + b for a in range(2) for b in range(3)]  #!": (
        "a comprehension is not compiled; write a loop that fills an array of State: for a in"
        " range(2): for b in range(3): state.values[a] = a + b"
    ),
    "async def f():  #!\n    pass": (
        "`async` is not compiled; write a plain function above the class"
    ),
    "y = []  #!": (
        "`[]`: lists are not compiled; numbers that change are an array of State (values = "
        "int32[1]), constants a table above the class (VALUES = (0,))"
    ),
    "y = [k * 2 for k in range(4)]  #!": (
        "a comprehension is not compiled; write a loop that fills an array of State: for k in"
        " range(4): state.values[k] = k * 2"
    ),
    "y = {k: 1 for k in range(2)}  #!": (
        "a comprehension is not compiled; write a loop that fills an array of State: for k in"
        " range(2): state.values[k] = 1"
    ),
    "y = {1, 2}  #!": "a set is not compiled; write x == 1 or x == 2",
    "f'{action}'  #!": (
        "an f-string is not compiled: there is no text in compiled code; to see a value, set "
        "a breakpoint with backend='reference'; text for a picture belongs into render()"
    ),
    "y = 'abc'  #!": (
        "text cannot be kept in a variable; there is no text in compiled code; write numbers "
        "(LEFT, RIGHT = 0, 1)"
    ),
    "if action == 'left':  #!\n    pass": (
        "text is compared with text only, by == and != (a parameter's, say); number what you "
        "compare: LEFT, RIGHT = 0, 1"
    ),
    "y = lambda x: x + 1  #!": (
        "a lambda is not compiled; write above the class: def f(x): return x + 1"
    ),
    "from math import sqrt  #!": (
        "`import` belongs at the top of the file, not into a compiled function"
    ),
    "action + 1  #!": (
        "`action + 1` alone does nothing; give it a name (x = action + 1) or leave it out"
    ),
    "yield 1  #!": "`yield` is not compiled; a step returns once: return reward, terminated",
    "y = 1j  #!": "1j is no int, float or bool",
    "for dy, dx in GRID:  #!\n    pass": (
        "a loop is over range(); write for k in range(2): dy, dx = GRID[k, 0], GRID[k, 1]"
    ),
    "for k, v in enumerate(state.x):  #!\n    pass": (
        "a loop is over range(); write for k in range(3): v = state.x[k]"
    ),
    "for a, b in zip(state.x, state.x):  #!\n    pass": (
        "a loop is over range(); write for k in range(3): a, b = state.x[k], state.x[k]"
    ),
    "for k, j in range(3):  #!\n    pass": (
        "a loop has one variable and plain limits: for k in range(n)"
    ),
    "for row in state.board:  #!\n    pass": (
        "a loop is over range(); write for k in range(4): row = state.board[k]"
    ),
    "for k in reversed(state.x):  #!\n    pass": (
        "a loop is over range(); write for i in range(3): k = state.x[3 - 1 - i]"
    ),
    "while True:  #!\n    pass": (
        "`while True` has no break and no return, so it never ends; let the loop change what "
        "it asks for, or write for k in range(n) with a break"
    ),
    "while True:  #!\n    for k in range(3):\n        break": (
        "`while True` has no break and no return, so it never ends; let the loop change what "
        "it asks for, or write for k in range(n) with a break"
    ),
    "y = 0\nwhile y < 10:  #!\n    state.n[0] += 1": (
        "`while y < 10` never ends once it has begun: nothing in it changes y; let the loop "
        "change what it asks for, or write for k in range(n) with a break"
    ),
    "while state.n[0] == 0:  #!\n    pass": (
        "`while state.n[0] == 0` never ends once it has begun: nothing in it changes "
        "state.n[0]; let the loop change what it asks for, or write for k in range(n) with a "
        "break"
    ),
    "while True:  #!\n    if not params.hard:\n        return 0.0, True": (
        "`while True` is left by no return with these parameters; let the loop change what it"
        " asks for, or write for k in range(n) with a break"
    ),
    "y = 0\nwhile y < 3 and state.x[0] > 0.0:  #!\n    z = 1": (
        "`while y < 3 and state.x[0] > 0.0` never ends once it has begun: nothing in it "
        "changes y and state.x[0]; let the loop change what it asks for, or write for k in "
        "range(n) with a break"
    ),
    "if (n := action + 1) > 2:  #!\n    pass": (
        "`:=` is not compiled; write n = action + 1 on a line of its own before"
    ),
}
CALLS = {
    "y = np.argmax(state.x)  #!": (
        "np.argmax() is not compiled; write best, most = 0, state.x[0], then for k in range(3): if "
        "state.x[k] > most: best, most = k, state.x[k]"
    ),
    "y = state.board.argmin()  #!": (
        "state.board.argmin() is not compiled; write best, least = 0, state.board[0, 0], then for "
        "y in range(4): for x in range(4): if state.board[y, x] < least: best, least = y * 4 + x, "
        "state.board[y, x]"
    ),
    "y = np.roll(state.x, 1)  #!": (
        "np.roll() is not compiled; write a loop over the elements of arrays"
    ),
    "y = np.linalg.norm(state.x)  #!": (
        "np.linalg.norm() is not compiled; write sqrt(x * x + y * y)"
    ),
    "y = np.linalg.inv(state.grid)  #!": (
        "np.linalg.inv() is not compiled; write a loop over the elements of arrays"
    ),
    "y = time.time()  #!": (
        "time.time() is not compiled: no step may depend on the clock; count steps in State: steps "
        "= int32[1], then state.steps[0] += 1"
    ),
    "y = COUNTER.add(1)  #!": (
        "COUNTER.add() is a method of an object, which all environments would share; write a "
        "function above the class, def add(...), and keep the object's numbers in State"
    ),
    "y = square(x=1)  #!": "square() is given its arguments in order, without x=; write square(1)",
    "y = square(*state.x)  #!": "square() is given its arguments in order, without *",
    "y = square(1, 2)  #!": "square(x) takes 1 argument, got 2",
    "y = sin(0.5, 0.5)  #!": "sin() takes 1 argument, got 2",
    "y = atan2(0.5)  #!": "atan2() takes 2 arguments, got 1",
    "y = min(1)  #!": "min() takes 2 to 8 arguments, got 1",
    "y = square('a')  #!": "square() is given numbers and arrays, not text 'a'",
    "y = square(square)  #!": "square() is given numbers and arrays, not the function square",
    "y = action(1)  #!": "action is an int and cannot be called",
    "y = TABLE()  #!": "TABLE is an array of 3 and cannot be called",
    "y = Ship()  #!": "Ship() is not compiled; keep its numbers in arrays of State",
    "y = round(0.5)  #!": (
        "round() is not compiled; write floor(x + 0.5), and to_int() of that for an int"
    ),
    "y = state.x.sum()  #!": (
        "state.x.sum() is not compiled; write total = 0.0, then for k in range(3): total += "
        "state.x[k]"
    ),
    "y = random.random()  #!": "`random.random` does not exist; write random.uniform()",
    "y = random.uniform(1, 2, 3)  #!": "random.uniform() takes 0 to 2 arguments, got 3",
    "y = random.integers()  #!": "random.integers() takes 1 to 2 arguments, got 0",
    "y = random.integers(2.5)  #!": "`2.5` must be an int, got a float; write to_int(2.5)",
    "y = random  #!": "the random numbers cannot be kept in a variable; use it by its own name",
    "y = nothing(state)  #!": (
        "nothing, which the call returns, cannot be kept in a variable; call it on a line of "
        "its own"
    ),
    "y = nothing(state) + 1  #!": (
        "`nothing(state)` must be a number, got nothing; let it return a number, or call it "
        "on a line of its own"
    ),
    "y = sin(state.x)  #!": (
        "`state.x` must be a number, got an array of 3; write one element, state.x[k], or a loop"
    ),
    "y = any(v > 0.0 for v in state.x)  #!": (
        "any() is not compiled; write found = False, then for index in range(len(state.x)): v"
        " = state.x[index]; found = found or v > 0.0"
    ),
    "y = random()  #!": "random is the random numbers and cannot be called; write random.uniform()",
    "y = np.max(3)  #!": "np.max() is not compiled; write a loop over the elements of arrays",
    "y = lang.flor(0.5)  #!": "lang is a module and has no 'flor'; did you mean floor?",
    "y = len(SCORES)  #!": "len() is of an array, got a list",
    "y = double_sum(b=1, a=2)  #!": (
        "double_sum() is given its arguments in order, without b=; write double_sum(2, 1)"
    ),
    "y = square(**{})  #!": "square() is given its arguments in order, without **",
    "y = float32(action)  #!": "float32() is not compiled; write to_float(x)",
    "y = uint8(action)  #!": "uint8() is not compiled; write to_int(x)",
    "y = boolean(action)  #!": "boolean() is not compiled; write x != 0",
    "y = sum(state.x)  #!": (
        "sum() is not compiled; write total = 0.0, then for k in range(3): total += state.x[k]"
    ),
    "y = sum(state.board)  #!": (
        "sum() is not compiled; write total = 0, then for y in range(4): for x in range(4): "
        "total += state.board[y, x]"
    ),
    "y = sum(state.board[0, k] for k in range(4))  #!": (
        "sum() is not compiled; write total = 0, then for k in range(4): total += state.board[0, k]"
    ),
    "y = sum(state.x[k] for k in range(3) if state.flags[k])  #!": (
        "sum() is not compiled; write total = 0.0, then for k in range(3): if state.flags[k]:"
        " total += state.x[k]"
    ),
    "y = sum(state.n[k] > 0 for k in range(4))  #!": (
        "sum() is not compiled; write total = 0, then for k in range(4): total += "
        "to_int(state.n[k] > 0)"
    ),
    "y = any(state.flags)  #!": (
        "any() is not compiled; write found = False, then for k in range(5): found = found or"
        " state.flags[k]"
    ),
    "y = any(state.n[k] > 0 for k in range(4))  #!": (
        "any() is not compiled; write found = False, then for k in range(4): found = found or"
        " state.n[k] > 0"
    ),
    "y = all(state.n)  #!": (
        "all() is not compiled; write found = True, then for k in range(4): found = found and"
        " state.n[k] != 0"
    ),
    "y = min(state.x)  #!": (
        "min() is not compiled; write least = state.x[0], then for k in range(3): least = "
        "min(least, state.x[k])"
    ),
    "y = max(state.n[k] for k in range(4))  #!": (
        "max() is not compiled; write most = the first of them, then for k in range(4): most "
        "= max(most, state.n[k])"
    ),
    "y = np.sum(state.x)  #!": (
        "np.sum() is not compiled; write total = 0.0, then for k in range(3): total += state.x[k]"
    ),
    "y = state.board.sum()  #!": (
        "state.board.sum() is not compiled; write total = 0, then for y in range(4): for x in"
        " range(4): total += state.board[y, x]"
    ),
    "y = state.x.max()  #!": (
        "state.x.max() is not compiled; write most = state.x[0], then for k in range(3): most"
        " = max(most, state.x[k])"
    ),
    "y = np.random.rand()  #!": (
        "np.random.rand() is not compiled and ignores the seed; write random.uniform()"
    ),
    "y = np.random.default_rng()  #!": (
        "np.random.default_rng() is not compiled and ignores the seed; leave it out: `random`"
        " is an argument of reset() and step()"
    ),
    "y = rnd.randint(0, 3)  #!": (
        "rnd.randint() is not compiled and ignores the seed; write random.integers(low, "
        "high), which ends at high - 1"
    ),
    "y = random.randint(0, 3)  #!": (
        "`random.randint` does not exist; write random.integers(low, high), which ends at high - 1"
    ),
    "y = random.choice(TABLE)  #!": (
        "`random.choice` does not exist; write TABLE[random.integers(len(TABLE))]"
    ),
    "random.shuffle(state.x)  #!": (
        "`random.shuffle` does not exist; write a loop that swaps element k with element "
        "random.integers(k + 1)"
    ),
    "y = random.exponential()  #!": (
        "`random.exponential` does not exist; there are random.uniform(), random.integers(), "
        "random.chance(), random.normal()"
    ),
    "y = random.uniform(low=0.0, high=1.0)  #!": (
        "random.uniform() is given its arguments in order, without low="
    ),
    "y = divmod(action, 2)  #!": "divmod() is not compiled; write q, r = a // b, a % b",
    "y = pow(action, 2)  #!": "pow() is not compiled; write x * x, or exp(y * log(x))",
    "y = sorted(state.x)  #!": (
        "sorted() is not compiled; arrays are not sorted; write loops that swap elements"
    ),
    "y = list(state.x)  #!": (
        "list() is not compiled; keep numbers in an array of State, such as values = int32[8]"
    ),
    "y = str(action)  #!": (
        "str() is not compiled; there is no text in compiled code; to see a value, set a "
        "breakpoint with backend='reference'; text for a picture belongs into render()"
    ),
    "y = isinstance(action, int)  #!": (
        "isinstance() is not compiled; a variable is an int, a float or a bool, and which one"
        " is known"
    ),
    "y = len(3)  #!": "len() is of an array, got an int",
    "SCORES.append(1)  #!": (
        "SCORES.append() changes SCORES, which all environments would share; keep it in "
        "State: scores = int32[8], and a count n = int32[1]"
    ),
    "y = cached(1)  #!": (
        "cached() is decorated, which is not compiled; write a plain function with def"
    ),
    "y = COSTS['wood']  #!": (
        "only arrays have elements, and COSTS is a dict; write COSTS = (1, 2) and a name for "
        "each index: WOOD = 0"
    ),
    "y = square(pair(1.0))  #!": "square() is given numbers and arrays, not the tuple pair(1.0)",
    "y = int('3')  #!": (
        "`'3'` must be a number, got text; there is no text in compiled code; write numbers "
        "(LEFT, RIGHT = 0, 1)"
    ),
    "y = open('x')  #!": (
        "open() is not compiled; read files above the class, into a table such as LEVEL = "
        "np.loadtxt(...)"
    ),
    "state.x = (1.0, 2.0, 3.0)  #!": (
        "a tuple of 3 cannot be kept in a variable; write the elements: state.x[0], state.x[1], "
        "state.x[2] = ..."
    ),
    "step(state)  #!": (
        "nothing is called step here: step is a name of the class, which functions do not see; "
        "write it above"
    ),
    "y = max(1, 2, key=square)  #!": "max() is given its arguments in order, without key=",
}
TABLE = STATEMENTS | CALLS


@pytest.mark.parametrize(
    ("code", "message"), TABLE.items(), ids=[code.split("  #!")[0] for code in TABLE]
)
def test_mistake(tmp_path: Path, code: str, message: str) -> None:
    assert refused(tmp_path, written(code)) == message
