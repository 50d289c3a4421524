"""What the names in an author's imperative function stand for, and how a line is refused."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from operant.compiler.env_functions import is_of_the_class
from operant.compiler.names import array_name, part_name, state_name, variable_name
from operant.compiler.outer import MISSING, outer_value
from operant.compiler.parsing.array_advice import LOOPS, draw_advice, method_advice, near
from operant.compiler.parsing.kinds import (
    BOOL,
    FLOAT,
    INT,
    OUTSIDE,
    PARAMS,
    RANDOM,
    STATE,
    TEXT,
    Array,
    Value,
    described,
)
from operant.lang.advice import LanguageError, is_known_word, word_for
from operant.lang.arrays import Cells

if TYPE_CHECKING:
    from operant.compiler.parsing.functions import Library


class Lookups(ABC):
    """Finds what a name or an attribute stands for, in one function."""

    def __init__(
        self, library: Library, function: FunctionType, arguments: dict[str, Any], first_line: int
    ) -> None:
        self.library = library
        self.function = function
        self.arguments = arguments
        self.variables: dict[str, str] = {}
        """The kinds of the function's own variables, as far as they are known."""
        self.views: dict[str, Array] = {}
        """Variables that stand for a part of an array."""
        self.bounds: dict[str, tuple[int, int]] = {}
        """Between which ints a variable of a loop runs."""
        self.assigned: set[str] = set()
        self._shift = first_line - 1

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Refuse a line."""
        raise LanguageError(f"{self.place(node)}: {message}")

    def place(self, node: ast.AST) -> str:
        """File and line of a piece of source."""
        line = getattr(node, "lineno", 1) + self._shift
        return f"{self.function.__code__.co_filename}:{line}"

    def constant(self, node: ast.AST, value: Any) -> Value:
        """A number that is known; ints have 64 bits."""
        if isinstance(value, bool | float | np.bool_):
            return constant(value)
        if not -(2**63) <= value < 2**63:
            self.fail(node, f"{int(value)} does not fit into 64 bits")
        return Value(self.library.dialect.integer(int(value)), INT, int(value))

    def name(self, node: ast.expr, name: str) -> Value:
        """A variable, an argument, or something outside."""
        if name in self.variables or name in self.views:
            if name not in self.assigned:
                self.fail(node, f"{name} may have no value yet here; give it one before")
            if name in self.views:
                return Value(variable_name(name), self.views[name])
            return Value(variable_name(name), self.variables[name])
        if name in self.arguments:
            kind = self.arguments[name]
            if isinstance(kind, tuple):  # an action of several parts
                parts = tuple(Value(part_name(name, k), part) for k, part in enumerate(kind))
                return Value(name, kind, parts=parts)
            if kind == PARAMS:
                return Value("params", kind)
            if kind == STATE:
                return Value(state_name(list(self.arguments).index(name)), kind)
            return Value(variable_name(name), kind)
        if name in self.function.__code__.co_varnames:
            self.fail(node, f"{name} has no value yet here{self._of_the_module(name)}")
        try:
            value = outer_value(self.function, name)
        except TypeError as error:
            self.fail(node, f"{name} is {error}; tables hold numbers: (0, 1, 2)")
        if value is MISSING:
            self.fail(node, f"nothing is called {name} here{self._missing(name)}")
        return self.outside(node, name, value)

    def _of_the_module(self, name: str) -> str:
        """Advice for a variable of the function that the module has, too: ``total += 1``."""
        if name not in self.function.__globals__:
            return "; give it one before"
        return (
            f": the {name} of the module cannot be changed; add {name} = int32[1] (or float32[1]) "
            f"to State and write state.{name}[0]"
        )

    def _missing(self, name: str) -> str:
        """Advice for a name that stands for nothing."""
        function, outer = self.function.__name__, self.function.__qualname__.split(".")
        if name in ("state", "action", "random", "params", "obs", "mask"):
            given = ", ".join(self.arguments)
            if name == "obs":
                return "; the observation is written in observe(state, obs)"
            if name == "mask":
                return "; the mask is written in action_mask(state, mask)"
            return f"; take it as an argument: def {function}({given}, {name})"
        if name in outer[:-1]:
            return f": {name} is still being defined; write constants and helpers above the class"
        if name == "self":
            return ": an environment has no self; what it remembers is in `state`"
        if is_of_the_class(self.function, name):
            return f": {name} is a name of the class, which functions do not see; write it above"
        known = {*self.variables, *self.views, *self.arguments, *self.function.__globals__}
        guess = near(name, (known | set(vars(builtins))) - {"__name__", "__file__"})
        return guess or " (put constants and helpers above the class, imports at the top)"

    def outside(self, node: ast.expr, name: str, value: Any) -> Value:
        """A constant, table, function or module."""
        if isinstance(value, bool | int | float | np.bool_):
            return self.constant(node, value)
        if isinstance(value, str):
            return Value(repr(value), TEXT, value)
        if isinstance(value, Cells):
            return Value(self.library.table(name, value), _table_kind(name, value))
        return Value(name, OUTSIDE, value)

    def attribute(self, node: ast.Attribute) -> Value:
        """``state.board``, ``params.gravity``, ``Ship.FUEL`` or ``lang.sin``."""
        base = self.visit(node.value)
        name = node.attr
        if base.kind == STATE:
            known = self.library.state
            if name not in known:
                text = f"the state has no array {name!r}; it has {', '.join(known)}"
                self.fail(node, text + near(name, known))
            return Value(array_name(base.text, name), known[name])
        if base.kind == PARAMS:
            return self.parameter(node, name)
        if isinstance(base.kind, Array):
            self.fail(node, method_advice(ast.unparse(node.value), name))
        if isinstance(base.value, ModuleType):
            self._refuse_library(node, base.value)
        if base.kind == OUTSIDE and hasattr(base.value, name):
            value = getattr(base.value, name)
            if isinstance(value, float | np.ndarray | tuple | list):
                text = ast.unparse(node)
                self.fail(node, f"give {text} a name above the class: {name.upper()} = {text}")
            return self.outside(node, name, value)
        what = described(base.kind)
        guess = ""
        if base.kind == OUTSIDE:
            is_class = isinstance(base.value, type)
            what = "a class" if is_class else f"a {type(base.value).__name__}"
            guess = near(name, [known for known in dir(base.value) if known[0] != "_"])
        self.fail(node, f"{ast.unparse(node.value)} is {what} and has no {name!r}{guess}")

    def _refuse_library(self, node: ast.Attribute, module: ModuleType) -> None:
        """Refuse what is taken from ``math``, ``numpy`` or ``random``, with the word instead."""
        text, name = ast.unparse(node), node.attr
        if module.__name__ in ("random", "numpy.random"):
            own = RANDOM in self.arguments.values()
            how = "" if own else "take `random` as an argument of reset() or step(), and "
            draws = draw_advice(name)
            self.fail(node, f"{text}() is not compiled and ignores the seed; {how}{draws}")
        if module.__name__ not in ("math", "numpy"):
            return
        if module.__name__ == "numpy" and (
            name in LOOPS or isinstance(getattr(module, name, None), ModuleType)
        ):
            return  # the call knows of what array; of np.random the function comes next
        if name == "pi":
            self.fail(node, f"{text} is not compiled; write from operant.lang import pi, then pi")
        if isinstance(getattr(module, name, None), float):
            self.fail(node, f"give {text} a name above the class: {name.upper()} = {text}")
        if name in ("array", "asarray", "empty", "ones", "zeros", "full", "arange"):
            self.fail(node, f"{text}() is not compiled; declare arrays in State: x = float32[8]")
        loop = module.__name__ == "numpy" and not is_known_word(name)
        better = "write a loop over the elements of arrays" if loop else word_for(name)
        self.fail(node, f"{text}() is not compiled; {better}")

    def parameter(self, node: ast.Attribute, name: str) -> Value:
        """A float parameter is read when the function runs; others are constants."""
        params = self.library.params
        if not hasattr(params, name):
            known = ", ".join(params._fields) or "none"
            text = f"there is no parameter {name!r}; there are: {known}"
            self.fail(node, text + near(name, params._fields))
        if name in self.library.float_params:
            return Value(f"params[{self.library.float_params.index(name)}]", FLOAT)
        return self.outside(node, name, getattr(params, name))

    @abstractmethod
    def visit(self, node: ast.expr) -> Value:
        """The text and kind of an expression."""


def literal(node: ast.expr) -> Any:
    """The value of an expression of literal numbers, as Python computes it; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, bool | int | float) else None
    if not isinstance(node, ast.BinOp | ast.UnaryOp):
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.Constant):
            if isinstance(part.value, bool) or not isinstance(part.value, int | float):
                return None
        elif not isinstance(part, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop):
            return None
    try:
        value = eval(compile(ast.Expression(node), "<literal>", "eval"), {})
    except (ArithmeticError, TypeError, ValueError):
        return None
    return value if isinstance(value, bool | int | float) else None


def constant(value: Any) -> Value:
    """A float or truth value that is known."""
    if isinstance(value, bool | np.bool_):
        return Value(str(bool(value)), BOOL, bool(value))
    return Value(f"f32({float(value)!r})", FLOAT, float(value))


def _table_kind(name: str, table: Cells) -> Array:
    dtype = {"f": "float32", "b": "bool"}.get(table.dtype.kind, "int64")
    return Array(dtype, table.shape, name, table=True)
