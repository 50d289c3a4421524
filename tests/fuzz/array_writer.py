"""Writes random array environments: well typed, every index and store in its range.

`program(seed)` is the text of a module with an environment ``Program``. Each expression knows its
kind; an int also knows between which numbers it lies, so that divisors are not zero and indices lie
inside. Ints may wrap around; floats may become anything, also infinite or NaN.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

FLOATS, INTS, BOOLS = {"f": (6,), "g": (3, 4)}, {"n": (5,), "u": (4, 3), "h": (2,)}, {"b": (7,)}
ARRAYS = FLOATS | INTS | BOOLS
RANGES = {"n": (-1_000_000, 1_000_000), "u": (0, 255), "h": (-(2**31), 2**31 - 1)}
VARIABLE = (-1_000_000, 1_000_000)
ANY = (-(2**63), 2**63 - 1)
LIMIT = 2**50  # of what is known when a function is compiled, where nothing may wrap around

HEAD = '''\
"""Written by tests/fuzz/array_writer.py, seed {seed}."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import operant
from operant import lang
from operant.lang import (
    Arrays, abs, atan, atan2, boolean, ceil, clip, cos, exp, float32, floor, int32, log,
    logical_not, maximum, minimum, sign, sin, sqrt, tan, tanh, to_float, to_int, uint8, where,
)

WEIGHTS = ({weights})
GRID = (({row0}), ({row1}))
STEPS = (3, -1, 4, 1, -5, 9, -2)
KINDS = np.array([[1, 2, 3], [250, -7, 0]], np.int16)
SAFE = [True, False, False, True, True]
DEEP = np.arange(12, dtype=np.float64).reshape(2, 3, 2) / 7
BONUS = {bonus}
COUNT = 5
STRICT = True


class Way(IntEnum):
    UP = 0
    LEFT = 1
    DOWN = 2


def whole(x):
    if x > -1000000.0 and x < 1000000.0:
        return to_int(x)
    return 7


def tame(x):
    return x if abs(x) < 1e4 else 0.5


def total(row):
    found = 0.0
    for k in range(len(row)):
        found += row[k]
    return found


def inner(block, k):
    row = block[k % 3]
    return row[0] - row[1]


def mixed(x, y):
    if x > y:
        return x * 3 - y
    return x - y * 2


def halves(state, i, x):
    low, high = 0.1, 0.7
    state.f[i] = tame(x * low + high * high * low)
    return high, i > 2


def spend(state, random, x):
    state.h[1] = (state.h[1] + 1) % 7
    return random.uniform(x, 2.0) if random.chance(0.5) else x * BONUS


class Program(operant.Env):
    observation_space = Box(-np.inf, np.inf, (8,), np.float32)
    action_space = Discrete(4)
    max_episode_steps = 20

    class Params(NamedTuple):
        gravity: float = 9.81
        slip: float = 0.3
        count: int = 3
        hard: bool = True
        mode: str = "day"

    class State(Arrays):
        f = float32[6]
        g = float32[3, 4]
        n = int32[5]
        u = uint8[4, 3]
        h = int32[2]
        b = boolean[7]

    def reset(state, random, params):
        for i in range(6):
            state.f[i] = random.uniform(-2.0, 2.0)
        for i in range(3):
            for j in range(4):
                state.g[i, j] = random.normal() * params.gravity
                state.u[j, i] = random.integers(256)
        for i in range(5):
            state.n[i] = random.integers(-100, 100)
        state.h[0] = random.integers(-(2**15), 2**15) * 65536 + random.integers(65536)
        for i in range(7):
            state.b[i] = random.chance(0.5)

    def step(state, action, random, params):
'''
TAIL = """\
        for i in range(6):
            if not abs(state.f[i]) < 1e4 and random.chance(0.5):
                state.f[i] = random.uniform(-3.0, 3.0)
        for i in range(3):
            for j in range(4):
                state.g[i, j] = tame(state.g[i, j])
        return reward, random.chance(0.05)

    def observe(state, obs, params):
        for i in range(6):
            obs[i] = state.f[i]
        obs[6] = {float}
        obs[7] = {int}
"""


class Int(NamedTuple):
    """An int expression and its limits."""

    text: str
    low: int
    high: int
    known: bool = False
    """Whether its value may be known when the function is compiled."""


class Writer:
    """Writes the statements of one function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[str, str] = {"reward": "float"}  # variables that have a value here
        self.kinds: dict[str, str] = dict(self.names)  # all there are
        self.loops: dict[str, int] = {}
        self.rows: list[str] = []
        self.draws = True  # whether `random` is there
        self.calls = True  # whether anything may be called
        self.inside_loop = False
        self.nested = 0  # indices within indices

    # Helpers --------------------------------------------------------------------------------
    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def of_kind(self, kind: str) -> list[str]:
        return [name for name, known in self.names.items() if known == kind]

    def index(self, size: int) -> str:
        options = [str(self.random.randrange(size))]
        options += [name for name, limit in self.loops.items() if limit <= size] * 3
        if self.nested < 2 and self.random.random() < 0.5:
            self.nested += 1
            value = self.integer(2 - self.nested)
            self.nested -= 1
            inside = value.low >= 0 and value.high < size
            options.append(value.text if inside else f"({value.text}) % {size}")
        if size >= 3:
            options.append("Way.DOWN")
        if self.draws and self.calls:
            options.append(f"random.integers({size})")
        return self.random.choice(options)

    def place(self, name: str) -> str:
        shape = ARRAYS[name]
        inner = [self.index(size) for size in shape]
        if len(shape) == 2 and self.random.random() < 0.3:
            return f"state.{name}[{inner[0]}][{inner[1]}]"
        return f"state.{name}[{', '.join(inner)}]"

    def wrapped(self, value: Int, low: int, high: int) -> Int:
        """`value` moved into a range."""
        if low <= value.low and value.high <= high:
            return value
        size = high - low + 1
        if self.calls and self.random.random() < 0.3:
            return Int(f"clip({value.text}, {low}, {high})", low, high, value.known)
        shift = f" + {low}" if low > 0 else f" - {-low}" if low < 0 else ""
        return Int(f"(({value.text}) % {size}{shift})", low, high, value.known)

    # Expressions ----------------------------------------------------------------------------
    def integer(self, depth: int) -> Int:
        made = self._integer(depth)
        if made.known and max(-made.low, made.high) >= LIMIT:
            return self.wrapped(made, *VARIABLE)
        fits = ANY[0] <= made.low and made.high < ANY[1]  # abs() of the least int is negative
        return made if fits else Int(made.text, *ANY)

    def _leaf_int(self) -> Int:
        options = [self.constant_int(), self.constant_int()]
        for name in self.of_kind("int"):
            options.append(Int(name, *VARIABLE))
        for name, limit in self.loops.items():
            options.append(Int(name, 0, limit))
        name = self.pick(*INTS)
        options += [Int(self.place(name), *RANGES[name])] if self.random.random() < 0.6 else []
        options += [Int("action", 0, 3), Int("Way.LEFT", 1, 1, True), Int("COUNT", 5, 5, True)]
        options += [
            Int("params.count", 3, 3, True),
            Int("len(STEPS)", 7, 7, True) if self.calls else Int("2", 2, 2, True),
        ]
        options.append(Int(f"STEPS[{self.index(7)}]" if self.calls else "STEPS[1]", -5, 9))
        options.append(Int(f"KINDS[{self.index(2) if self.calls else 1}, 1]", -7, 2))
        return self.random.choice(options)

    def constant_int(self) -> Int:
        k = self.random.choice([0, 1, 2, 3, 7, 12, 100, -1, -8, 16777217, 1000003, 2**45 + 1])
        return Int(f"({k})" if k < 0 else str(k), k, k, True)

    def _integer(self, depth: int) -> Int:
        if depth <= 0:
            return self._leaf_int()
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        x, y = a.text, b.text
        bits = max(-a.low, a.high, -b.low, b.high).bit_length()
        size = max(-a.low, a.high)
        corners = [p * q for p in (a.low, a.high) for q in (b.low, b.high)]
        both = (min(a.low, b.low), max(a.high, b.high))
        divisor = self.random.choice([1, 2, 3, 7, 10, -2, -5, -13])
        ways = [
            Int(f"({x} + {y})", a.low + b.low, a.high + b.high),
            Int(f"({x} - {y})", a.low - b.high, a.high - b.low),
            Int(f"({x} * {y})", min(corners), max(corners)),
            Int(f"({x} // {divisor})", -(2**bits) - 1, 2**bits),
            Int(f"({x} % {divisor})", -13, 13),
            Int(f"({x} // ({y} | 1))", -(2**bits) - 1, 2**bits + 1),
            Int(f"({x} % ({y} | 1))", -(2**bits) - 1, 2**bits + 1),
            *[Int(f"({x} {s} {y})", -(2**bits), 2**bits) for s in "&|^"],
            Int(f"({x} << {self.random.randrange(9)})", -(2 ** (bits + 9)), 2 ** (bits + 9)),
            Int(f"({x} >> ({y} & 63))", min(a.low, -1), max(a.high, 0)),
            Int(f"(1 << ({y} & 31))", 0, 2**31),
            Int(f"(-{x})", -a.high, -a.low),
            Int(f"(~{x})", ~a.high, ~a.low),
            Int(f"({x} if {{p}} else {y})", *both),
        ]
        if self.calls:
            ways += [
                Int(f"abs({x})", 0, size),
                Int(f"{self.pick('min', 'max', 'minimum', 'maximum')}({x}, {y})", *both),
                Int(f"{self.pick('min', 'max')}({x}, {y}, 3)", min(both[0], 3), max(both[1], 3)),
                Int(f"where({{p}}, {x}, {y})", *both),
                Int(f"{self.pick('to_int', 'int')}({{p}})", 0, 1),
                Int("whole({x})", -1000000, 1000000),
                Int(f"clip({x}, -20, 30)", -20, 30),
            ]
            ways.append(Int(f"mixed({x}, {y})", -(2 ** (bits + 3)), 2 ** (bits + 3)))
            if self.draws:
                ways += [Int("random.integers(9)", 0, 8), Int("random.integers(-4, COUNT)", -4, 4)]
        made = self.random.choice(ways)
        known = a.known and b.known
        return made._replace(text=self.completed(made.text, depth - 1), known=known)

    def completed(self, template: str, depth: int) -> str:
        """`template` with floats for {x} and {y}, an int for {k}, truth values for {p} and {q}, a
        sign of comparison for {s}, and an index of an array of 3 for {3}."""
        makers = {
            "x": lambda: self.real(depth),
            "y": lambda: self.real(depth),
            "k": lambda: self.integer(depth).text,
            "m": lambda: self.integer(depth).text,
            "p": lambda: self.boolean(depth),
            "q": lambda: self.boolean(depth),
            "s": lambda: self.pick("<", "<=", ">", ">=", "==", "!="),
        }
        made: dict[str, str] = {}

        def part(found: re.Match[str]) -> str:
            key = found[1]
            if key.isdecimal():
                return self.index(int(key))
            if key not in made:
                made[key] = makers[key]()
            return made[key]

        return re.sub(r"\{(\w+)\}", part, template)

    def literal(self) -> str:
        number = self.random.uniform(-3, 3)
        tries = ["0.1", "-0.0", "0.0", "1.0", "1e-3", "3.3", "1e20", "1 / 3", "2 ** 0.5", "-1e-30"]
        return self.random.choice([*tries, repr(number), f"{number:.2f}"])

    def _leaf_real(self) -> str:
        options = [f"({self.literal()})", "params.gravity", "params.slip", "BONUS"]
        options += self.of_kind("float") * 2
        options += [self.place(self.pick(*FLOATS))] * 2
        options += [f"{row}[{{4}}]" for row in self.rows]
        options += ["WEIGHTS[{4}]", "GRID[{2}][{3}]", "DEEP[{2}, {3}, {2}]"]
        return self.completed(self.random.choice(options), 0)

    def real(self, depth: int) -> str:
        if depth <= 0:
            return self._leaf_real()
        ways = ["({x} + {y})", "({x} - {y})", "({x} * {y})", "({x} * {y})", "({x} / {y})"]
        ways += [way.format(s) for s in "+-*/" for way in ("({{x}} {} {{k}})", "({{k}} {} {{x}})")]
        ways += ["(-{x})", "({x} if {p} else {y})"]
        if self.calls:
            extreme = self.pick("min", "max", "minimum", "maximum")
            words = "sin cos tan exp log tanh atan lang.sin sqrt floor ceil abs sign tame"
            ways += [f"{word}({{x}})" for word in words.split()]
            ways += [
                "sqrt(abs({x}))",
                "atan2({x}, {y})",
                f"{extreme}({{x}}, {self.pick('{y}', '{k}')})",
                f"{self.pick('min', 'max')}({{k}}, {{x}}, {{y}})",
                f"where({{p}}, {{x}}, {self.pick('{y}', '{k}')})",
                f"{self.pick('to_float', 'float')}({self.pick('{k}', '{p}')})",
                f"clip({{x}}, {self.pick('-1', '-1.5', '{k}')}, {self.pick('2', '{y}')})",
                f"mixed({{x}}, {self.pick('{y}', '{k}')})",
                f"total({self.pick('state.f', 'WEIGHTS', 'state.g[{3}]', 'GRID[1]')})",
                "inner(DEEP[{2}], {k})",
                "lang.exp({x} * 0.1)",
            ]
            if self.draws:
                ways += ["random.uniform()", "random.uniform({x})", "random.uniform({x}, {y})"]
                ways += ["random.normal()", "spend(state, random, {x})"]
        return self.completed(self.random.choice(ways), depth - 1)

    def boolean(self, depth: int) -> str:
        if depth <= 0:
            options = [*self.of_kind("bool"), self.place("b"), "True", "params.hard", "STRICT"]
            return self.completed(self.random.choice([*options, "SAFE[{5}]"]), 0)
        ways = ["({x} {s} {y})", "({x} {s} {k})", "({k} {s} {m})", "({k} {s} {x})", "({p} == {q})"]
        ways += [
            "({p} != {q})",
            "({p} < {q})",
            "({p} >= {q})",
            "(not {p})",
            "({p} if {q} else {p})",
        ]
        ways += [f"({{p}} {s} {{q}})" for s in ("and", "or", "&", "|", "^")]
        ways += [
            "({p} and {q} or not {p})",
            f"(params.mode == '{self.pick('day', 'dusk')}' or {{p}})",
        ]
        if self.calls:
            ways += ["logical_not({p})", "bool({x})", "bool({k})", "where({p}, {q}, {p})"]
            was, self.calls = self.calls, False  # none in the middle
            ways.append(f"({{x}} {{s}} {self.real(1)} {self.pick('<', '<=', '!=')} {{k}})")
            self.calls = was
            if self.draws:
                ways += ["random.chance(0.4)", "random.chance({x})"]
        return self.completed(self.random.choice(ways), depth - 1)

    def expression(self, kind: str, depth: int) -> str:
        if kind == "float":
            return self.real(depth)
        return (
            self.wrapped(self.integer(depth), *VARIABLE).text
            if kind == "int"
            else self.boolean(depth)
        )

    # Statements -----------------------------------------------------------------------------
    def block(self, count: int) -> None:
        """Statements one level deeper; names that are new there are unknown afterwards."""
        names, rows, loops = dict(self.names), list(self.rows), dict(self.loops)
        self.depth += 1
        start = len(self.lines)
        for _ in range(count):
            self.statement()
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        self.names, self.rows, self.loops = names, rows, loops

    def variable(self, kind: str) -> str:
        known = self.of_kind(kind)
        if known and self.random.random() < 0.5:
            return self.random.choice(known)
        name = f"{kind[0]}{sum(k == kind for k in self.kinds.values())}"
        self.kinds[name] = kind
        return name

    def statement(self) -> None:
        ways = [self.assign] * 5 + [self.store] * 6 + [self.augment] * 3 + [self.augment_store] * 3
        ways += [self.several, self.fill, self.swap, self.row, self.unpack_call]
        if self.depth < 5:
            ways += [self.branch] * 4 + [self.loop] * 2 + [self.repeat, self.pruned]
        if self.inside_loop and self.random.random() < 0.3:
            ways = [self.escape]
        self.random.choice(ways)()

    def assign(self) -> None:
        kind = self.pick("float", "float", "int", "bool")
        value = self.expression(kind, self.random.choice([1, 2, 3]))
        name = self.variable(kind)
        self.emit(f"{name} = {value}")
        self.names[name] = kind

    def stored_value(self, name: str, depth: int) -> str:
        if name in FLOATS:
            whole = self.random.random() < 0.15
            return self.integer(depth).text if whole else self.real(depth)
        if name in BOOLS:
            return self.boolean(depth)
        return self.wrapped(self.integer(depth), *RANGES[name]).text

    def store(self) -> None:
        name = self.pick(*ARRAYS)
        value = self.stored_value(name, 2)
        self.emit(f"{self.place(name)} = {value}")

    def augment(self) -> None:
        floats, flags = self.of_kind("float"), self.of_kind("bool")
        if flags and self.random.random() < 0.4:
            self.emit(
                f"{self.random.choice(flags)} {self.pick('&=', '|=', '^=')} {self.boolean(2)}"
            )
        elif floats:
            sign = self.pick("+=", "-=", "*=", "/=")
            value = self.pick(self.real(2), self.integer(1).text)
            self.emit(f"{self.random.choice(floats)} {sign} {value}")

    def augment_store(self) -> None:
        self.calls = False  # in the index
        name = self.pick("f", "g", "u", "b", "h")
        place = self.place(name)
        self.calls = True
        if name in FLOATS:
            self.emit(f"{place} {self.pick('+=', '-=', '*=')} {self.real(2)}")
        elif name == "b":
            self.emit(f"{place} {self.pick('&=', '|=', '^=')} {self.boolean(2)}")
        else:
            value = self.wrapped(self.integer(1), 1, 255).text
            self.emit(
                f"{place} {self.pick('%=', '//=', '>>=') if name == 'h' else '%='} "
                f"{value if name == 'u' else self.wrapped(self.integer(1), 1, 63).text}"
            )

    def several(self) -> None:
        a, b = self.real(2), self.stored_value("n", 1)
        place = self.place("n")
        name = self.variable("float")
        self.emit(f"{name}, {place} = {a}, {b}")
        self.names[name] = "float"

    def unpack_call(self) -> None:
        call = f"halves(state, {self.index(6)}, {self.real(1)})"
        name = self.variable("float")
        self.names[name] = "float"
        flag = self.variable("bool")
        self.names[flag] = "bool"
        self.emit(f"{name}, {flag} = {call}")

    def fill(self) -> None:
        name = self.pick("f", "g", "n", "b", "u")
        part = f"state.{name}"
        if name in ("g", "u") and self.random.random() < 0.8:
            part += f"[{self.index(ARRAYS[name][0])}]"
        self.emit(f"{part}[:] = {self.stored_value(name, 1)}")

    def swap(self) -> None:
        name = self.pick("f", "n", "g")
        i, j = self.place(name), self.place(name)
        self.emit(f"{i}, {j} = {j}, {i}")

    def row(self) -> None:
        name = f"row{len(self.rows)}"
        self.emit(f"{name} = state.g[{self.index(3)}]")
        if name not in self.rows:
            self.rows.append(name)
        self.emit(f"{name}[{self.index(4)}] = {self.real(2)}")

    def branch(self) -> None:
        self.emit(f"if {self.boolean(2)}:")
        self.block(self.random.choice([1, 2, 3]))
        if self.random.random() < 0.3:
            self.emit(f"elif {self.boolean(1)}:")
            self.block(1)
        if self.random.random() < 0.5:
            self.emit("else:")
            self.block(self.random.choice([1, 2]))

    def pruned(self) -> None:
        known = self.pick("params.hard", "params.mode == 'night'", "COUNT > 4", "not STRICT")
        self.emit(f"if {known}:")
        self.block(1)
        self.emit("else:")
        self.block(1)

    def loop(self) -> None:
        size = self.random.choice([2, 3, 4])
        if sum(self.loops.values()) > 6:
            return
        name = f"k{len(self.loops)}"
        ways = [f"range({size})", f"range(1, {size})", f"range({size - 1}, -1, -1)"]
        ways += [f"range({self.wrapped(self.integer(1), 0, size).text})", f"range(0, {size}, 2)"]
        self.emit(f"for {name} in {self.random.choice(ways)}:")
        before, self.loops = self.loops, self.loops | {name: size}
        was, self.inside_loop = self.inside_loop, True
        self.block(self.random.choice([1, 2, 3]))
        self.loops, self.inside_loop = before, was

    def repeat(self) -> None:
        name = f"w{len(self.kinds)}"
        self.kinds[name] = "int"
        self.emit(f"{name} = 0")
        self.emit(f"while {name} < {self.random.choice([2, 4])} and {self.boolean(2)}:")
        self.depth += 1
        self.emit(f"{name} += 1")
        self.depth -= 1
        was, self.inside_loop = self.inside_loop, True
        before = len(self.lines)
        self.block(2)
        assert len(self.lines) > before
        self.inside_loop = was

    def escape(self) -> None:
        self.emit(f"if {self.boolean(1)}:")
        self.depth += 1
        leave = self.pick("break", "continue", "return 0.25, True")
        self.emit(leave)
        self.depth -= 1


def program(seed: int, statements: int = 60) -> str:
    """The text of a module with an environment called ``Program``."""
    writer = Writer(seed)
    numbers = [f"{writer.random.uniform(-2, 2):.3f}" for _ in range(11)]
    head = HEAD.format(
        seed=seed,
        weights=", ".join(numbers[:4]),
        row0=", ".join(numbers[4:7]),
        row1=", ".join(numbers[7:10]),
        bonus=numbers[10],
    )
    writer.emit("reward = 0.0")
    for _ in range(statements):
        writer.statement()
    writer.names = {}
    writer.rows, writer.loops, writer.draws = [], {"i": 6}, False
    before = writer.lines
    writer.lines = []
    writer.depth = 2
    watcher = Writer(seed + 1)
    watcher.names, watcher.draws = {}, False
    watcher.random = writer.random
    view = TAIL.format(float=_watched(watcher.real(2)), int=_watched(watcher.integer(2).text))
    return head + "\n".join(before) + "\n" + view


def _watched(text: str) -> str:
    """`observe` is not told the action."""
    return text.replace("action", "(state.n[1] % 4)")
