"""Writes random environments whose state is numbers: everything that language allows.

`program(seed)` is the text of a module with an environment ``Program``. There are two kinds of
them. *Any* programs compute with any floats, infinite and NaN among them; where multiply-adds are
fused they may differ in the last bit, so they are compared without. *Whole* programs compute with
floats that are whole numbers, small enough that every product and sum is exact: there a fused
multiply-add changes nothing, and divisions, remainders and conversions meet exact multiples all the
time.
"""

from __future__ import annotations

import random
from typing import NamedTuple

WRONG_ONCE = (41, 47, 55, 61, 82, 83, 94, 97)
"""Divisors that a reciprocal instead of a division gets wrong on multiples."""
DIVISORS = (*WRONG_ONCE, 1, 2, 3, 5, 7, 10, 64, 100, 1000)
MOST = 2**22
"""Largest whole number that is computed with: two of their sums are still exact."""
SMALL = 2**11

WORDS = "sin cos tan exp log tanh atan sqrt floor ceil abs sign tame"

HEAD = '''\
"""Written by tests/fuzz/number_writer.py, seed {seed}."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.lang import (
    abs, atan, atan2, ceil, clip, cos, exp, floor, log, logical_not, maximum, minimum, normal, pi,
    randint, sign, sin, sqrt, tan, tanh, to_float, to_int, uniform, where,
)


def tame(x):
    return where(abs(x) < 1e6, x, 0.5)


class Program(operant.Env):
    random_numbers = {draws}
    observation_space = Box(-np.inf, np.inf, ({observations},), np.float32)
    action_space = {space}
    max_episode_steps = 9

    class Params(NamedTuple):
        gravity: float = {gravity}
        ring: float = {ring}
        count: int = 3
        hard: bool = True

    class State(NamedTuple):
{fields}
'''
SPACES = ("Discrete(5)", "Discrete(3, start=-1)", "MultiDiscrete([3, 4])", "Box(-2.0, 2.0, (2,))")


class Whole(NamedTuple):
    """A float expression that is a whole number, and how large it can be."""

    text: str
    size: int


class Writer:
    """Writes the functions of one program."""

    def __init__(self, seed: int, whole: bool) -> None:
        self.random = random.Random(seed)
        self.whole = whole
        self.fields = {f"f{k}": "float" for k in range(self.random.randint(1, 3))}
        self.fields |= {f"i{k}": "int" for k in range(self.random.randint(0, 2))}
        self.fields |= {f"b{k}": "bool" for k in range(self.random.randint(0, 2))}
        self.draws = self.random.choice([1, 2, 4, 8, 9, 16, 17, 31, 33, 48, 63, 64])
        self.space = self.random.choice(SPACES)
        self.names: dict[str, list[str]] = {"float": [], "int": [], "bool": []}
        self.has_random = self.has_state = True

    # Leaves ---------------------------------------------------------------------------------
    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def field(self, kind: str) -> list[str]:
        known = [f"state.{name}" for name, dtype in self.fields.items() if dtype == kind]
        return known if self.has_state else []

    def drawn(self) -> list[str]:
        return [f"random[{self.random.randrange(self.draws)}]"] if self.has_random else []

    def action(self, kind: str) -> list[str]:
        if not (self.has_state and self.has_random):
            return []
        float_action = self.space.startswith("Box")
        if float_action != (kind == "float"):
            return []
        return ["action"] if self.space.startswith("Discrete") else ["action[0]", "action[1]"]

    def symbols(self, kind: str) -> list[str]:
        """What is not known when the program is recorded; there is always a float."""
        return self.field(kind) + self.names[kind] + (self.drawn() if kind == "float" else [])

    # Any floats -----------------------------------------------------------------------------
    # An operation has at least one operand that is not known: what is, Python computes by itself.
    def real(self, depth: int, symbol: bool = False) -> str:
        if self.whole:
            return self.small(depth, symbol).text
        if depth <= 0 and symbol:
            return self.random.choice(self.symbols("float"))
        if depth <= 0:
            literals = ["0.1", "-0.0", "0.0", "1.0", "1e-3", "41.0", "1e20", "-1e-30", "1e-40"]
            options = [*literals, "params.gravity", "params.ring", f"{self.random.uniform(-3, 3)}"]
            options += 3 * self.symbols("float")
            return self.random.choice([*options, *self.action("float")])
        x, y, k = self.real(depth - 1, True), self.real(depth - 1), self.integer(depth - 1)
        p, n = self.truth(depth - 1), self.random.choice(DIVISORS)
        ways = [f"({x} {s} {y})" for s in "+-*/"] + [f"({x} {s} {k})" for s in "+-*/"]
        ways += [f"({x} % {n}.0)", f"({x} // {n}.0)", f"({x} % {y})", f"({x} // {y})", f"(-{x})"]
        ways += [
            f"{word}({x})"
            for word in ["sin", "cos", "tan", "exp", "log", "tanh", "atan", "sqrt", "floor", "ceil"]
        ]
        ways += [f"{word}({x})" for word in ("abs", "sign", "tame")]
        ways += [f"atan2({x}, {y})", f"minimum({x}, {y})", f"maximum({x}, {k})", f"({x} ** 2)"]
        ways += [f"clip({x}, -1.5, {y})", f"clip({x}, -0.0, 0.0)", f"where({p}, {x}, {y})"]
        k = self.integer(depth - 1, True)
        ways += [f"to_float({k})", f"to_float({p})", f"minimum({x}, 0.0)", f"maximum(-0.0, {x})"]
        if self.has_random:
            u, v = self.drawn()[0], self.drawn()[0]
            ways += [f"uniform({u}, {x}, 2.0)", f"normal({u}, {v})", f"floor({x} / {n}.0)"]
        return self.random.choice(ways)

    # Whole floats ---------------------------------------------------------------------------
    def small(self, depth: int, symbol: bool = False) -> Whole:
        """A whole number up to `SMALL`, so that products of two are exact."""
        made = self.whole_number(depth, symbol)
        if made.size <= SMALL:
            return made
        n = self.random.choice([n for n in DIVISORS if n <= SMALL])
        return Whole(f"({made.text} % {n}.0)", n)

    def whole_number(self, depth: int, symbol: bool = False) -> Whole:
        if depth <= 0:
            options = [Whole(f"floor({u} * 64.0)", 64) for u in self.drawn()]
            options += [Whole(text, SMALL) for text in self.field("float") + self.names["float"]]
            if not symbol:
                options += [Whole(f"{k}.0", k) for k in (0, 1, 2, 41, 97)]
                options += [Whole("params.ring", 2000)]
            return self.random.choice(options)
        a, b = self.small(depth - 1, True), self.small(depth - 1)
        x, y = a.text, b.text
        p, n = self.truth(depth - 1), self.random.choice(DIVISORS)
        most = max(a.size, b.size)
        ways = [
            Whole(f"({x} + {y})", a.size + b.size),
            Whole(f"({x} - {y})", a.size + b.size),
            Whole(f"({x} * {y})", a.size * b.size),
            Whole(f"({x} * {n}.0) % {n}.0", 1),
            Whole(f"floor(({x} * {n}.0) / {n}.0)", a.size),
            Whole(f"to_float(to_int(({x} * {n}.0) / {n}.0))", a.size),
            Whole(f"(({x} * {y}) // ({y} * {y} + 1.0))", a.size * b.size),
            Whole(f"({x} // {n}.0)", a.size + 1),
            Whole(f"({x} % params.ring)", 2000),
            Whole(f"({x} // params.ring)", a.size + 1),
            Whole(f"to_float(to_int({x} / {n}.0))", a.size),
            Whole(f"ceil({x} / {n}.0)", a.size + 1),
            Whole(f"where({p}, {x}, {y})", most),
            Whole(f"where(({x} % {n}.0) == 0.0, {x}, {y})", most),
            Whole(f"minimum({x}, {y})", most),
            Whole(f"clip({x}, -{n}.0, {n}.0)", n),
            Whole(f"abs({x})", a.size),
            Whole(f"(-{x})", a.size),
            Whole(f"sign({x})", 1),
            Whole(f"to_float({self.integer(depth - 1, True)} % {n})", n),
        ]
        found = self.random.choice([way for way in ways if way.size <= MOST])
        return Whole(f"({found.text})", found.size)

    # Ints and truth values ------------------------------------------------------------------
    def integer(self, depth: int, symbol: bool = False) -> str:
        if depth <= 0:
            options = 3 * self.symbols("int") + self.action("int")
            if symbol:
                return self.random.choice(options or [f"to_int({self.real(0, True)} * 41.0)"])
            options += ["0", "1", "3", "(-1)", "7", "41", "65537", "2147483647", "params.count"]
            return self.random.choice(options)
        a, b = self.integer(depth - 1, True), self.integer(depth - 1)
        n, p = self.random.choice(DIVISORS), self.truth(depth - 1)
        x = self.real(depth - 1, True)
        ways = [f"({a} {s} {b})" for s in ("+", "-", "*", "//", "%", "&", "|", "^")]
        ways += [f"({a} << {self.random.randrange(32)})", f"({a} >> {self.random.randrange(32)})"]
        ways += [f"(-{a})", f"abs({a})", f"minimum({a}, {b})", f"maximum({b}, {a})"]
        ways += [f"clip({a}, -20, 30)", f"where({p}, {a}, {b})", f"to_int({p})"]
        ways += [f"to_int({x})", f"to_int({x} / {n}.0)", f"({a} % {n})", f"({a} // {n})"]
        if self.has_random:
            ways += [f"randint({self.drawn()[0]}, {n})"]
        return self.random.choice(ways)

    def truth(self, depth: int) -> str:
        """Never known."""
        if depth <= 0:
            known = 3 * self.symbols("bool")
            return self.random.choice([*known, f"({self.real(0, True)} < {self.real(0)})"])
        x, y = self.real(depth - 1, True), self.real(depth - 1)
        a, b = self.integer(depth - 1, True), self.integer(depth - 1)
        p, q = self.truth(depth - 1), self.truth(depth - 1)
        s = self.pick("<", "<=", ">", ">=", "==", "!=")
        ways = [f"({x} {s} {y})", f"({y} {s} {x})", f"({a} {s} {b})"]
        ways += [f"({p} {sign} {q})" for sign in "&|^"]
        ways += [f"(~{p})", f"logical_not({p})", f"where({p}, {q}, {p})", f"({p} & params.hard)"]
        if not self.whole:  # a large int becomes a float that is no longer whole for certain
            ways.append(f"({x} {s} {a})")
        return self.random.choice(ways)

    # Functions ------------------------------------------------------------------------------
    def value(self, kind: str, depth: int) -> str:
        if kind == "float" and not self.whole:
            return f"tame({self.real(depth)})"
        return {"float": self.real, "int": self.integer, "bool": self.truth}[kind](depth)

    def state(self, depth: int) -> str:
        values = ", ".join(self.value(kind, depth) for kind in self.fields.values())
        return f"Program.State({values})"

    def function(self, head: str, result: str, variables: list[str]) -> str:
        return f"\n    def {head}:\n" + "".join(f"        {v}\n" for v in variables) + result

    def reset(self) -> str:
        self.has_state = False
        text = self.function("reset(random, params)", f"        return {self.state(1)}\n", [])
        self.has_state = True
        return text

    def step(self) -> str:
        lines = []
        for k in range(self.random.randint(0, 4)):
            kind = self.pick("float", "int", "bool")
            lines.append(f"x{k} = {self.value(kind, 2)}")
            self.names[kind].append(f"x{k}")
        over = f"({self.drawn()[0]} < 0.1) & {self.truth(1)}"
        result = f"        return {self.state(3)}, {self.value('float', 2)}, {over}\n"
        text = self.function("step(state, action, random, params)", result, lines)
        self.names = {"float": [], "int": [], "bool": []}
        return text

    def seen(self, count: int) -> str:
        self.has_random = False
        values = ", ".join(self.value("float", 2) for _ in range(count))
        text = self.function("observe(state, params)", f"        return ({values},)\n", [])
        if self.space == "Discrete(5)" and self.random.random() < 0.5:
            allowed = ", ".join(["state.f0 == state.f0 + 0.0", *[self.truth(1) for _ in range(4)]])
            text += self.function("action_mask(state, params)", f"        return ({allowed})\n", [])
        return text


def program(seed: int) -> str:
    """The text of a module with an environment called ``Program``; those of odd seeds are whole."""
    writer = Writer(seed, whole=is_whole(seed))
    observations = writer.random.randint(1, 4)
    head = HEAD.format(
        seed=seed,
        draws=writer.draws,
        observations=observations,
        space=writer.space,
        gravity=writer.random.choice([9.81, 41.0, 0.1]),
        ring=float(writer.random.choice(DIVISORS)),
        fields="\n".join(f"        {name}: {kind}" for name, kind in writer.fields.items()),
    )
    return head + writer.reset() + writer.step() + writer.seen(observations)


def is_whole(seed: int) -> bool:
    """Whether a program computes with whole floats."""
    return seed % 2 == 1
