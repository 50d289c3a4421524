"""Calls in an imperative function: words, draws of random numbers, the author's functions."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from operant.compiler.emit.program_source import COMPOSED
from operant.compiler.names import array_name, variable_name
from operant.compiler.parsing.array_advice import LOOPS, call_advice, draw_advice, loop_advice
from operant.compiler.parsing.expressions import Expressions
from operant.compiler.parsing.kinds import (
    BOOL,
    FLOAT,
    INT,
    NUMBERS,
    OUTSIDE,
    PARAMS,
    RANDOM,
    STATE,
    TEXT,
    Array,
    Value,
    described,
)
from operant.compiler.parsing.lookups import constant
from operant.lang import words
from operant.lang.advice import is_known_word, word_for

_COMPOSED = {getattr(words, name): name for name in COMPOSED}
_INSTRUCTIONS = {words.floor: "floor", words.ceil: "ceil", words.sqrt: "sqrt"}
_EXTREMA = {
    words.minimum: "minimum",
    builtins.min: "minimum",
    words.maximum: "maximum",
    builtins.max: "maximum",
}
_MOST_CHOICES = 1 << 24
_DRAWS = {"uniform": (0, 2), "integers": (1, 2), "chance": (1, 1), "normal": (0, 0)}


class Calls(Expressions):
    """Writes calls."""

    def call(self, node: ast.Call) -> Value:
        """A word, a draw of random numbers, or a function of the author's."""
        self.refuse_reductions(node)
        text = ast.unparse(node.func)
        if node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
            names = [f"{part.arg}=" if part.arg else "**" for part in node.keywords] or ["*"]
            said = f"{text}() is given its arguments in order, without {names[0]}"
            self.fail(node, said + self.in_order(node))
        if isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and self.arguments.get(owner.id) == RANDOM:
                return self.draw(node, variable_name(owner.id), node.func.attr)
        function = self.visit(node.func)
        if function.kind != OUTSIDE:
            advice = f"; write {text}.uniform()" if function.kind == RANDOM else ""
            self.fail(node, f"{text} is {described(function.kind)} and cannot be called{advice}")
        called = function.value
        try:
            hash(called)
        except TypeError:
            self.fail(node, f"{text}, a {type(called).__name__}, cannot be compiled")
        found = self.word(node, called)
        if found is not None:
            return found
        if isinstance(called, FunctionType):
            return self.own_function(node, called)
        self.fail(node, self.no_call(node, called))

    def in_order(self, node: ast.Call) -> str:
        """Advice for a call of the author's function with arguments by name."""
        function = self.visit(node.func).value if isinstance(node.func, ast.Name) else None
        starred = any(isinstance(part, ast.Starred) for part in node.args)
        if starred or not isinstance(function, FunctionType):
            return ""
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        given = dict(zip(names, map(ast.unparse, node.args), strict=False))
        given |= {part.arg: ast.unparse(part.value) for part in node.keywords if part.arg}
        if set(given) != set(names):
            return ""
        return f"; write {ast.unparse(node.func)}({', '.join(given[name] for name in names)})"

    def refuse_reductions(self, node: ast.Call) -> None:
        """``sum(array)``, ``any(... for k in ...)``, ``np.sum(array)``, ``array.sum()``: a loop."""
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name not in LOOPS or len(node.args) > 1:
            return
        owner = self.visit(func.value if isinstance(func, ast.Attribute) else func)
        if isinstance(owner.kind, Array):
            self.fail(node, loop_advice(name, node, owner.kind.shape, owner.kind.kind))
        if owner.value not in (np, getattr(builtins, name, np)) or not node.args:
            return
        if isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            kind = FLOAT if self._of_floats(node.args[0].elt) else INT
            self.fail(node, loop_advice(name, node, kind=kind))
        of = self.visit(node.args[0])
        if isinstance(of.kind, Array):
            self.fail(node, loop_advice(name, node, of.kind.shape, of.kind.kind))

    def _of_floats(self, node: ast.expr) -> bool:
        """Whether an expression reads arrays of floats; its variables need not be known."""
        parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Subscript)]
        kinds = [self.visit(part).kind for part in parts if isinstance(part, ast.Attribute)]
        return any(isinstance(kind, Array) and kind.kind == FLOAT for kind in kinds)

    def no_call(self, node: ast.Call, called: Any) -> str:
        """What to write instead of calling what is not compiled."""
        text, name = ast.unparse(node.func), getattr(called, "__name__", "")
        owner = getattr(called, "__self__", None)
        if isinstance(owner, list | dict | set) and isinstance(node.func, ast.Attribute):
            kept = ast.unparse(node.func.value)
            return (
                f"{text}() changes {kept}, which all environments would share; keep it in State: "
                f"{kept.lower()} = int32[8], and a count n = int32[1]"
            )
        if isinstance(called, MethodType):
            return (
                f"{text}() is a method of an object, which all environments would share; write a "
                f"function above the class, def {name}(...), and keep the object's numbers in State"
            )
        module = getattr(called, "__module__", "") or getattr(owner, "__module__", "")
        if module in ("time", "datetime"):
            return (
                f"{text}() is not compiled: no step may depend on the clock; count steps in State: "
                "steps = int32[1], then state.steps[0] += 1"
            )
        if module.startswith("numpy"):
            has_word = module != "numpy" and is_known_word(name)
            loop = "write a loop over the elements of arrays"
            return f"{text}() is not compiled; {word_for(name) if has_word else loop}"
        if hasattr(called, "__wrapped__"):
            return f"{text}() is decorated, which is not compiled; write a plain function with def"
        if isinstance(called, type) and called.__module__ != "builtins":
            return f"{text}() is not compiled; keep its numbers in arrays of State"
        return call_advice(text, name)

    def word(self, node: ast.Call, called: Any) -> Value | None:
        """One of the words of `operant.lang` or of Python; None for another function."""
        if called in _COMPOSED:
            self.library.words.add(_COMPOSED[called])
            values = [self.number(part, FLOAT) for part in self.counted(node, *_takes(called))]
            return self.called(f"{_COMPOSED[called]}_exact", values, FLOAT)
        if called in _INSTRUCTIONS:
            (part,) = self.counted(node, 1, 1)
            return self.called(_INSTRUCTIONS[called], [self.number(part, FLOAT)], FLOAT)
        if called in _EXTREMA:
            return self.extremum(node, _EXTREMA[called])
        if called in (words.to_float, builtins.float):
            return self.to_float(node)
        if called in (words.to_int, builtins.int):
            value = self.number(self.counted(node, 1, 1)[0])
            if value.kind == INT:
                return value
            return self.called("whole64" if value.kind == FLOAT else "i64", [value], INT)
        if called is builtins.bool:
            value = self.number(self.counted(node, 1, 1)[0])
            return value if value.kind == BOOL else self.combined("({0} != 0)", [value], BOOL)
        if called in (words.abs, builtins.abs):
            value = self.number(self.counted(node, 1, 1)[0])
            if value.kind == BOOL:
                self.fail(node, "abs() of a truth value; write to_int(x)")
            return self.called("fabs" if value.kind == FLOAT else "absolute", [value], value.kind)
        if called is words.logical_not:
            value = self.condition(self.counted(node, 1, 1)[0])
            return self.combined("(not {0})", [value], BOOL)
        if called is words.where:
            test, *rest = self.counted(node, 3, 3)
            chooser = self.condition(test)
            a, b = self.same(node, [self.number(part) for part in rest], "where()")
            return self.called("pick", [chooser, a, b], a.kind)
        if called is builtins.len:
            value = self.visit(self.counted(node, 1, 1)[0])
            if not isinstance(value.kind, Array):
                got = f"a {type(value.value).__name__}" if value.kind == OUTSIDE else ""
                self.fail(node, f"len() is of an array, got {got or described(value.kind)}")
            return self.constant(node, value.kind.shape[0])
        if called is builtins.range:
            self.fail(node, "range() belongs into a loop: for k in range(n)")
        if called is builtins.print:
            self.fail(
                node,
                "print() is not compiled; leave it out, and look at values with "
                "make(..., backend='reference') and a breakpoint, or env.get_state()",
            )
        return None

    def to_float(self, node: ast.Call) -> Value:
        """``to_float(x)``."""
        value = self.number(self.counted(node, 1, 1)[0])
        if value.kind == INT:
            return self.as_kind(node, value, FLOAT, "to_float()")
        return value if value.kind == FLOAT else self.called("f32", [value], FLOAT)

    def called(self, name: str, values: list[Value], kind: Any) -> Value:
        """The call of a function of the printed module."""
        places = ", ".join(f"{{{k}}}" for k in range(len(values)))
        return self.combined(f"{name}({places})", values, kind)

    def extremum(self, node: ast.Call, word: str) -> Value:
        """The least or greatest of two or more."""
        values = [self.number(part) for part in self.counted(node, 2, 8)]
        values = self.same(node, values, f"{word}()")
        if values[0].kind == BOOL:
            self.fail(node, f"{word}() of truth values; write a and b, or a or b")
        name = word if values[0].kind == FLOAT else {"minimum": "least", "maximum": "most"}[word]
        template = "{0}"
        for k in range(1, len(values)):
            template = f"{name}({template}, {{{k}}})"
        return self.combined(template, values, values[0].kind)

    def counted(self, node: ast.Call, least: int, most: int) -> list[ast.expr]:
        """The arguments, if there are as many as there should be."""
        if not least <= len(node.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            what = ast.unparse(node.func)
            s = "" if wanted == "1" else "s"
            self.fail(node, f"{what}() takes {wanted} argument{s}, got {len(node.args)}")
        return node.args

    def draw(self, node: ast.Call, random: str, name: str) -> Value:
        """``random.uniform()`` and its kin."""
        if name not in _DRAWS:
            self.fail(node, f"`{ast.unparse(node.func)}` does not exist; {draw_advice(name)}")
        given = self.counted(node, *_DRAWS[name])
        kind = INT if name == "integers" else FLOAT
        values = [self.number(part, kind) for part in given]
        if name == "integers" and all(value.known for value in values):
            count = values[-1].value - (values[0].value if len(values) == 2 else 0)
            if not 1 <= count <= _MOST_CHOICES:
                self.fail(node, f"integers() chooses among 1 to 2**24 numbers, got {count}")
        match name, values:
            case "uniform", []:
                return Value(f"draw({random})", FLOAT, acts=True)
            case "uniform", [high]:
                values = [constant(0.0), high]
            case "integers", [count]:
                values = [self.constant(node, 0), count]
            case "normal", _:
                self.library.words |= {"log", "cos"}
        result = {"integers": INT, "chance": BOOL}.get(name, FLOAT)
        drawn = self.called(f"draw_{name}", [Value(random, RANDOM), *values], result)
        return replace(drawn, acts=True)

    def own_function(self, node: ast.Call, function: FunctionType) -> Value:
        """Another function of the author's, compiled for the kinds it is given."""
        values = [self.visit(part) for part in node.args]
        for part, value in zip(node.args, values, strict=True):
            good = value.kind in (*NUMBERS, STATE, RANDOM, PARAMS) or isinstance(value.kind, Array)
            if not good:
                what = "the function" if isinstance(value.value, FunctionType) else "text"
                self.fail(
                    part,
                    f"{function.__name__}() is given numbers and arrays, not "
                    f"{what if value.kind in (OUTSIDE, TEXT) else 'the tuple'} {ast.unparse(part)}",
                )
        called = self.library.compile(function, [value.kind for value in values], self.place(node))
        given: list[Value] = []
        for value in values:
            arrays = [Value(array_name(value.text, name), STATE) for name in self.library.state]
            given += arrays if value.kind == STATE else [value]
        given += [Value(name, INT) for name in self.library.dialect.extra]
        return replace(self.called(called.name, given, called.returns), acts=True)


def _takes(word: Any) -> tuple[int, int]:
    """How many arguments a composed word takes, at least and at most."""
    count = 2 if word is words.atan2 else 1
    return count, count
