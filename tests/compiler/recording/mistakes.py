"""What a new author gets wrong in an environment of numbers, and the sentence that is said of it.

Each row changes a working file. The line with ``#!`` is named, or else that of the class.
"""

from __future__ import annotations

Change = tuple[str, str]
GOOD = """\
import math
import random as python_random
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import operant
from operant.lang import abs, clip, randint, to_float, uniform, where

LOG = []
COUNTS = {'v': []}


class Tracker:
    total = 0

    def add(self):
        self.total += 1


TRACKER = Tracker()
RNG = np.random.default_rng()


class Cart(operant.Env):
    class State(NamedTuple):
        x: float
        v: float
        n: int

    class Params(NamedTuple):
        gravity: float = 9.8

    observation_space = Box(-10.0, 10.0, (2,))
    action_space = Discrete(3)
    max_episode_steps = 50

    def reset(random):
        return Cart.State(uniform(random[0], -1.0, 1.0), 0.0, 0)

    def step(state, action, params):
        v = state.v + 0.1 * (action - 1)
        x = state.x + v
        return Cart.State(x, v, state.n + 1), -x * x, abs(x) > 5.0

    def observe(state):
        return state.x, state.v
"""
DRAW = "return Cart.State(uniform(random[0], -1.0, 1.0), 0.0, 0)"
LINE = "x = state.x + v"
RETURN = "return Cart.State(x, v, state.n + 1), -x * x, abs(x) > 5.0"
OBSERVE = "return state.x, state.v"
FIELD = "        n: int\n"
SPACE = "observation_space = Box(-10.0, 10.0, (2,))"
ACTIONS = "action_space = Discrete(3)"
HEAD = "class Cart(operant.Env):"


def reset(state: str) -> Change:
    return DRAW, f"return Cart.State({state}, 0.0, 0)  #!"


def step(lines: str) -> Change:
    """Lines after that of `x`; the last is the wrong one, unless another is marked."""
    text = lines if "#!" in lines else f"{lines}  #!"
    return LINE, f"{LINE}\n        " + text.replace("\n", "\n        ")


def returned(values: str) -> Change:
    return RETURN, f"return {values}  #!"


PER_ENV = "a value that differs per environment"
TEXT = f"of {PER_ENV} and is not known here; remove it, and print env.get_state() after env.step()"
ONCE = "would run while the class is defined and never in a compiled step; "
SPOKEN = f"() {ONCE}remove it, and print env.get_state() after env.step()"
CHANGED = f"` changes what outlives the call: it {ONCE}put what must be remembered into State"
BRACKETS = "`&` and `|` bind tighter than comparisons: brackets are missing; write "
THREE = "step() must return three values, (State, reward, terminated); got "
FIELDS = "(it has: x, v, n)"
NEW = "make a new one: Cart.State(x, v, n), or state._replace(v=...)"
TUPLE = "random has no {}() here{}: it is a tuple of 4 uniform numbers in [0, 1); write {}"
ARRAYS = " (that is for states of arrays)"
DRAWN = (
    "() draws once, when the class is defined, and not in each episode; write uniform(random[0], "
    "low, high), randint(random[0], n) or normal(random[0], random[1])"
)
FUNCTION_MISTAKES: dict[str, tuple[Change | list[Change], str]] = {
    # Random numbers
    "random[7]": (
        reset("random[7]"),
        "random[7] does not exist: random holds 4 numbers, random[0] to random[3]; "
        "write random_numbers = 8 in the class for more",
    ),
    "random.uniform()": (
        reset("random.uniform(-1.0, 1.0)"),
        TUPLE.format("uniform", ARRAYS, "uniform(random[0], low, high)"),
    ),
    "random.integers()": (
        reset("random.integers(3)"),
        TUPLE.format("integers", ARRAYS, "randint(random[0], n)"),
    ),
    "random.random()": (reset("random.random()"), TUPLE.format("random", "", "random[0]")),
    "random()": (
        reset("random()"),
        "random is a tuple of 4 numbers, not a number; write random[0]",
    ),
    "random as a number": (
        reset("2.0 * random - 1.0"),
        "random is a tuple of 4 numbers, not a number; write random[0]",
    ),
    "random beside a number": (
        reset("random[1] + random"),
        "random is a tuple of 4 numbers, not a number; write random[0]",
    ),
    "uniform(low, high)": (
        reset("uniform(-1.0, 1.0)"),
        "uniform(-1.0, 1.0) draws nothing: its first argument is one of the numbers in `random`; "
        "write uniform(random[0], low, high)",
    ),
    "randint(low, high)": (
        reset("to_float(randint(0, 6))"),
        "randint(0, 6) draws nothing: its first argument is one of the numbers in `random`; "
        "write randint(random[0], n)",
    ),
    "uniform(u, low)": (
        reset("uniform(random[0], 1.0)"),
        "uniform() missing 1 required positional argument: 'high'; "
        "write uniform(random[0], low, high)",
    ),
    "Python's random": (reset("python_random.random()"), f"python_random.random{DRAWN}"),
    "NumPy's random": (reset("np.random.uniform()"), f"np.random.uniform{DRAWN}"),
    "a generator of one's own": (reset("RNG.normal()"), f"RNG.normal{DRAWN}"),
    # State and parameters
    "state.v = ...": (step("state.v = v"), f"`state.v` cannot be changed; {NEW}"),
    "state.v += ...": (step("state.v += v"), f"`state.v` cannot be changed; {NEW}"),
    "state[1] = ...": (
        step("state[1] = v"),
        "`state[...]` cannot be changed; make a new one: Cart.State(x, v, n), or "
        "state._replace(x=...)",
    ),
    "a new field": (step("state.speed = v"), f"State has no field 'speed' {FIELDS}"),
    "params.gravity = ...": (
        step("params.gravity = 1.0"),
        "`params.gravity` cannot be changed; make a new one: params._replace(gravity=...)",
    ),
    "setattr": (
        step("setattr(state, 'v', v)"),
        "State and Params cannot be changed; make a new one with state._replace(x=...)",
    ),
    "a misspelt field": (
        step("y = state.vel"),
        f"State has no field 'vel'; did you mean 'v'? {FIELDS}",
    ),
    "a misspelt parameter": (
        step("y = params.gravty"),
        "Params has no field 'gravty'; did you mean 'gravity'? (it has: gravity)",
    ),
    "a misspelt field of a new state": (
        returned("Cart.State(x=x, vv=v, n=0), 0.0, False"),
        f"State has no field 'vv'; did you mean 'v'? {FIELDS}",
    ),
    "_replace of an unknown field": (
        returned("state._replace(vel=v), 0.0, False"),
        f"State has no field 'vel'; did you mean 'v'? {FIELDS}",
    ),
    "a field without a value": (
        returned("Cart.State(x, v), 0.0, False"),
        "State has the fields x, v, n: n got no value",
    ),
    "a value too many": (
        returned("Cart.State(x, v, 0, 0), 0.0, False"),
        "State has the fields x, v, n: that is 3 values, but more were given",
    ),
    "state['x']": (
        step("y = state['x']"),
        "a field of the state is read as state.x, not by its name in brackets",
    ),
    "unpacking too few": (
        step("a, b = state"),
        "ValueError: too many values to unpack (expected 2) (state holds 3: x, v, n)",
    ),
    "a field of the class": (
        step("y = x * Cart.Params.gravity"),
        "a field is read from the argument: state.x or params.x, not from the class",
    ),
    # Text and side effects
    "f-string with a format": (step('text = f"{v:.2f}"'), f"an f-string or format() {TEXT}"),
    "plain f-string": (step('text = f"{v}"'), f"an f-string or format() {TEXT}"),
    "f-string of the state": (step('text = f"{state}"'), f"text {TEXT}"),
    "f-string with =": (step('text = f"{v=}"'), f"text {TEXT}"),
    "str()": (step("text = str(v)"), f"text {TEXT}"),
    "percent": (step('text = "%.2f" % v'), f"text {TEXT}"),
    "print": (step("print(v)"), f"print{SPOKEN}"),
    "print of nothing known": (step('print("here")'), f"print{SPOKEN}"),
    "sys.stdout.write": (step('sys.stdout.write("here")'), f"sys.stdout.write{SPOKEN}"),
    "logging": (step("import logging\nlogging.info('here')"), f"logging.info{SPOKEN}"),
    "open": (step('open("log", "a")'), f"open{SPOKEN}"),
    "print in a helper": (
        [
            (HEAD, f"def helper(x):\n    print(x)  #!\n    return x\n\n\n{HEAD}"),
            (LINE, "x = helper(state.x + v)"),
        ],
        f"print{SPOKEN}",
    ),
    "except": (
        step("try:  #!\n    y = x / v\nexcept ZeroDivisionError:\n    y = 0.0"),
        "`except` never runs in a compiled step, where nothing raises (x / 0.0 is infinite); "
        "remove it and choose: where(y != 0.0, x / y, 0.0)",
    ),
    "appending to a global": (step("LOG.append(v)"), f"`LOG.append(){CHANGED}"),
    "a global dict": (step("COUNTS['n'] = 1"), f"`COUNTS['n']{CHANGED}"),
    "a list in a global dict": (step("COUNTS['v'].append(v)"), f"`COUNTS['v'].append(){CHANGED}"),
    "a list at a place": (step("COUNTS[n].append(v)"), f"`COUNTS[n].append(){CHANGED}"),
    "another name of a global": (
        step("log = LOG\nlog.append(v)  #!"),
        f"`log.append(){CHANGED}",
    ),
    "a method with another name": (step("add = LOG.append\nadd(v)  #!"), f"`add(){CHANGED}"),
    "a method of the type": (step("list.append(LOG, v)"), f"`list.append(){CHANGED}"),
    "setattr on the class": (step("setattr(Cart, 'last', v)"), f"`setattr(){CHANGED}"),
    "the time": (
        step("v = v + time.time()"),
        "time.time() would run while the class is defined: one constant in every compiled step; "
        "count steps in a field of State",
    ),
    "a tracker of one's own": (
        [(LINE, f"{LINE}\n        TRACKER.add()"), ("self.total += 1", "self.total += 1  #!")],
        f"`self.total{CHANGED}",
    ),
    "global": (step("global TOTAL  #!\nTOTAL = 1"), f"`global TOTAL{CHANGED}"),
    "an attribute of the class": (step("Cart.total = v"), f"`Cart.total{CHANGED}"),
    "__init__": (
        ("    def reset(", "    def __init__(self):  #!\n        pass\n\n    def reset("),
        "Cart.__init__ would never run: an environment has no instances; put settings into class "
        "Params(NamedTuple), with defaults, and what changes into State",
    ),
    # Conditions
    "a == 2 & b > 0": (step("hit = action == 2 & x > 0"), f"{BRACKETS}(action == 2) & (x > 0)"),
    "a > 0.0 | b > 0.0": (step("hit = x > 0.0 | v > 0.0"), f"{BRACKETS}(x > 0.0) | (v > 0.0)"),
    "ints": (
        step("hit = state.n == 2 & action == 1"),
        f"{BRACKETS}(state.n == 2) & (action == 1)",
    ),
    "half the brackets": (step("hit = (x > 0.0) & v > 0.0"), f"{BRACKETS}(x > 0.0) & (v > 0.0)"),
    "three of them": (
        step("hit = x > 0.0 & v > 0.0 & state.n > 3"),
        f"{BRACKETS}(x > 0.0) & (v > 0.0) & (state.n > 3)",
    ),
    "if": (step("if x > 0:  #!\n    v = 0.0"), f"`if` on {PER_ENV}; write where(condition, a, b)"),
    "if on a parameter": (
        step("if params.gravity > 0:  #!\n    v = 0.0"),
        "`if` on a float parameter, which may change after compiling; declare it int, bool or str, "
        "or write where(condition, a, b)",
    ),
    "match": (
        step("match action:\n    case 0:  #!\n        v = 0.0"),
        f"`match` on {PER_ENV}; write where(x == 0, a, where(x == 1, b, c))",
    ),
    "and": (step("hit = x > 0 and v > 0"), f"`and` on {PER_ENV}; write (a) & (b)"),
    "or": (step("hit = x > 0 or v > 0"), f"`or` on {PER_ENV}; write (a) | (b)"),
    "not": (step("hit = not x > 0"), f"`not` on {PER_ENV}; write logical_not(a)"),
    "any()": (step("hit = any([x > 0, v > 0])"), f"any() on {PER_ENV}; write (a) | (b)"),
    "sorted()": (
        step("low, high = sorted([x, v])"),
        f"sorted() on {PER_ENV}; write minimum(a, b) and maximum(a, b)",
    ),
    "max()": (step("y = max(x, 0.0)"), f"max() on {PER_ENV}; write maximum(a, b)"),
    "a number where a condition is due": (
        step("y = where(action, 1.0, 0.0)"),
        "where() chooses by a truth value, got an int; write x != 0",
    ),
    "where() of states": (
        returned("where(x > 0, Cart.State(x, v, 0), state), 0.0, False"),
        "expected a number, got a State; choose field by field: where(condition, a.x, b.x)",
    ),
    "a string": (
        step("hit = action == 'left'"),
        "expected a number, got 'left'; number the cases 0, 1, 2",
    ),
    "None from a helper": (
        step("y = x + (lambda: None)()"),
        "expected a number, got None; values are never None (does a helper lack its `return`?)",
    ),
    # Numbers
    "math.sin": (step("y = math.sin(x)"), "math.sin() cannot be compiled; write operant.lang.sin"),
    "math.hypot": (
        step("y = math.hypot(x, v)"),
        "math.hypot() cannot be compiled; write sqrt(x * x + y * y)",
    ),
    "np.clip": (
        step("y = np.clip(x, -1, 1)"),
        "np.clip cannot be compiled; write operant.lang.clip",
    ),
    "np.array": (
        step("y = np.array([x, v])"),
        "np.array() cannot be compiled; write a tuple, (x, y)",
    ),
    "an element of an array": (
        step("y = np.zeros(2)\ny[0] = x"),
        "a NumPy array cannot hold a value that differs per environment; keep it in a variable or "
        "a tuple",
    ),
    "int()": (step("y = int(x)"), f"int() of {PER_ENV}; write to_int(x)"),
    "round()": (
        step("y = round(x, 2)"),
        f"round() of {PER_ENV}; write floor(x * 1e2 + 0.5) / 1e2",
    ),
    "divmod()": (
        step("y = divmod(state.n, 3)"),
        "divmod() cannot be compiled; write x // y and x % y",
    ),
    "a variable exponent": (
        step("y = x**v"),
        "`**` with a variable exponent; write exp(y * log(x)) for a positive x",
    ),
    "a word that does not exist": (
        step("y = operant.lang.isnan(x)"),
        "operant.lang has no isnan; write x != x",
    ),
    "a word with too many arguments": (
        step("y = clip(x, 0.0)"),
        "clip() missing 1 required positional argument: 'high'; write clip(x, low, high)",
    ),
    "sin(x, y)": (step("y = operant.lang.sin(x, v)"), "sin() got 2 numbers; write sin(x)"),
    "atan2(x)": (step("y = operant.lang.atan2(x)"), "atan2() got 1 numbers; write atan2(y, x)"),
    "range()": (
        step("for k in range(state.n):  #!\n    x = x + 1"),
        f"{PER_ENV} was used as a loop bound; loop over a constant range(n) and select with "
        "where(k < bound, a, b)",
    ),
    "an index": (
        step("y = [0.1, 0.2, 0.3][action]"),
        f"{PER_ENV} was used as an index; write where(action == 0, a, where(action == 1, b, c))",
    ),
    "a key": (
        step("y = {0: 0.1, 1: 0.2}[action]"),
        f"{PER_ENV} cannot be looked up in a dict or set; "
        "write where(x == 0, a, where(x == 1, b, c))",
    ),
    ".astype": (
        step("y = x.astype(int)"),
        ".astype of a number, which has no attributes; write to_int(x) or to_float(x)",
    ),
    "a missing `*`": (
        step("y = x(v + 1.0)"),
        "a number was called like a function; is a `*` missing?",
    ),
    "1 << action": (
        step("y = 1 << action"),
        "a shift needs a constant distance; choose with where(k == 0, 1, where(k == 1, 2, 4))",
    ),
    "x @ v": (
        step("y = x @ v"),
        "`@` cannot be compiled; write the products out: a[0] * b[0] + a[1] * b[1]",
    ),
    "an action that is a tuple": (
        [(ACTIONS, "action_space = Box(-1.0, 1.0, (1,))"), ("(action - 1)", "(action - 1)  #!")],
        "action is a tuple of 1 number, not a number; write action[0]",
    ),
    **{
        f"{wrong} of two": (
            [
                (ACTIONS, "action_space = MultiDiscrete([3, 3])"),
                ("(action - 1)", "action[0]"),
                step(f"y = {wrong}"),
            ],
            "action is a tuple of 2 numbers, not a number; write action[0]",
        )
        for wrong in (
            *("action == 1", "action != 1", "1.0 if action else 0.0", "action + 1.0", "action > 1"),
            *("action < 1", "action >= 1", "action <= 1", "action * 2.0", "2.0 * action"),
            *("-action", "action.x", "math.sin(action)", "x + action", "action / 2"),
        )
    },
    "a component that is not there": (
        [
            (ACTIONS, "action_space = MultiDiscrete([3, 3])"),
            ("(action - 1)", "action[0]"),
            step("y = action[2]"),
        ],
        "action[2] does not exist: action holds 2 numbers, action[0] to action[1]; the "
        "action_space is MultiDiscrete([3 3])",
    ),
    "an action that is none": (
        step("y = action[0]"),
        "a single number was indexed; a Discrete action is a plain int, not a tuple",
    ),
    # Names, and what else Python raises
    "self": (
        step("y = self.x"),
        "the name 'self' is not defined: the functions are not methods; what they need is in state "
        "and params",
    ),
    "a word that was not imported": (
        step("y = tanh(x)"),
        "the name 'tanh' is not defined; write from operant.lang import tanh",
    ),
    "a field without state": (
        ("0.1 * (action - 1)", "0.1 * (action - 1) + n  #!"),
        "the name 'n' is not defined; did you mean state.n?",
    ),
    "a misspelt name": (step("y = LOGG"), "the name 'LOGG' is not defined; did you mean 'LOG'?"),
    "isnan": (step("y = isnan(x)"), "the name 'isnan' is not defined; write x != x"),
    "IndexError": (
        step("pair = (1.0, 2.0)\ny = pair[5]"),
        "IndexError: pair[5] is outside: pair holds 2 values, 0 to 1",
    ),
    "IndexError at a name": (
        step("pair, k = (1.0, 2.0), 4\ny = pair[k + 1]"),
        "IndexError: pair[k + 1] with k = 4 is outside: pair holds 2 values, 0 to 1",
    ),
    "KeyError": (step("y = COUNTS['a']"), "KeyError: 'a' is no key of the dict"),
    # `is`
    "is None": (
        step("x = 0.0 if state.n is None else x"),
        "state.n is never None; leave the question out, or write -1 for nobody, and state.n == -1",
    ),
    "is not None of a variable": (
        step("y = state.n + 1\nx = 0.0 if y is not None else x"),
        "y is never None; leave the question out, or write -1 for nobody, and y != -1",
    ),
    "is True": (
        step("hit = x > 1.0\nx = 0.0 if hit is True else x"),
        "`hit is True` is False in every step: `is` compares no numbers; write hit (of an int, x "
        "!= 0)",
    ),
    "is not True": (
        step("x = 0.0 if (x > 1.0) is not True else x"),
        "`(x > 1.0) is not True` is True in every step: `is` compares no numbers; write "
        "logical_not(x > 1.0) (of an int, x == 0)",
    ),
    "is of a number": (
        step("y = 2\nx = 0.0 if action is y else x"),
        "`action is y` is False in every step: `is` compares no numbers; write action == y",
    ),
    "None is": (
        step("x = 0.0 if None is action else x"),
        "action is never None; leave the question out, or write -1 for nobody, and action == -1",
    ),
}
