"""An author's imperative functions as source for a compiler: statements, and who calls whom.

A function is read from its source, typed, and printed. Each is printed once for every combination
of kinds it is called with. A variable has one kind; a name that may have no value yet, an index
that may lie outside its array and an int that would become a float unasked are found here, when the
class is defined.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from operant.compiler.emit.dialects import Dialect, Signature
from operant.compiler.names import (
    array_name,
    function_name,
    part_name,
    renamed_by_python,
    state_name,
    table_name,
    variable_name,
)
from operant.compiler.parsing.array_advice import for_advice, statement_advice
from operant.compiler.parsing.assignments import hashable
from operant.compiler.parsing.endless import ADVICE, LOOKED_AT, has_break, never_ends
from operant.compiler.parsing.kinds import (
    BOOL,
    INT,
    NOTHING,
    PARAMS,
    STATE,
    Array,
    described,
)
from operant.compiler.parsing.parsed import parsed
from operant.compiler.parsing.returns import Returns, signature_text
from operant.lang.advice import LanguageError
from operant.lang.arrays import Cells


@dataclass(frozen=True)
class Compiled:
    """A printed function: what it is called, and the kind it returns."""

    name: str
    returns: Any


class Place(NamedTuple):
    """What is looked at when a function runs: an index, a number to be stored, or a loop."""

    line: str
    """File and line of the author's."""
    label: str
    """The array that is indexed or written to, or the loop."""
    size: int
    """Of the axis that is indexed."""
    dtype: str
    """Of the array that is written to."""


@dataclass
class Library:
    """The functions of one environment, as far as they were asked for."""

    dialect: Dialect
    state: dict[str, Array]
    params: Any
    float_params: tuple[str, ...]
    shown: np.ndarray
    """Of the observation, bool, which elements some line may write to."""
    masks: bool = False
    """Whether some line may write to the mask."""
    texts: list[str] = field(default_factory=list)
    """The functions, those that others call first."""
    words: set[str] = field(default_factory=set)
    """Composed words that they call."""
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    """What is looked at when it runs."""
    looking: bool = False
    """Whether functions may not write to the state."""
    _known: dict[Any, Compiled | None] = field(default_factory=dict)

    def compile(
        self, function: FunctionType, kinds: list[Any], place: str, returns: Any = None
    ) -> Compiled:
        """Print `function` for arguments of these kinds, unless it is there already.

        `returns` is the kind it has to return, if that is given: ints may become floats.

        Raises:
            LanguageError: it does what cannot be compiled.
        """
        key = (function, tuple(hashable(kind) for kind in kinds), self.looking)
        if key in self._known:
            found = self._known[key]
            if found is None:
                raise LanguageError(f"{place}: {function.__name__}() calls itself; write a loop")
            return found
        self._known[key] = None
        name = function_name(function.__name__, len(self._known))
        body = _Body(self, function, kinds, place)
        text, kind = body.printed(name, returns)
        self.texts.append(text)
        self._known[key] = compiled = Compiled(name, kind)
        return compiled

    def look_only(self, looking: bool) -> None:
        """From now on functions may, or may not, write to the state."""
        self.looking = looking
        self.state = {name: replace(array, fixed=looking) for name, array in self.state.items()}

    def note_store(self, array: Array, reach: tuple[slice, ...]) -> None:
        """Remember what a line may write to, if that is an observation or a mask. Under another
        name, or as a row of it, all of it may be meant."""
        if self.looking and array.kind == BOOL:
            self.masks = True
        elif self.looking:
            self.shown[reach if array.label == "obs" else ()] = True

    def table(self, name: str, values: Cells) -> str:
        """The name of a table of constants in the printed module."""
        for known, array in self.tables.items():
            same = (array.dtype, array.shape) == (values.dtype, values.shape)
            if same and array.tobytes() == values.tobytes():  # 0.0 and -0.0 are two tables
                return known
        new = table_name(name, len(self.tables))
        self.tables[new] = np.asarray(values)
        return new

    def watch(self, line: str, label: str, size: int = 0, dtype: str = "") -> int:
        """The number of a `Place`."""
        entry = Place(line, label, size, dtype)
        if entry not in self.places:
            self.places.append(entry)
        return self.places.index(entry) + 1


class _Body(Returns):
    """One function, printed for the kinds of its arguments."""

    def __init__(
        self, library: Library, function: FunctionType, kinds: list[Any], place: str
    ) -> None:
        tree, self.stores, foreign = parsed(function)
        names = [argument.arg for argument in tree.args.args]
        given = tree.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults or given.posonlyargs:
            head = f"def {function.__name__}({ast.unparse(given)})"
            raise LanguageError(
                f"{place}: {function.__name__}() takes plain arguments only, without defaults, * "
                f"and /, got {head}"
            )
        if len(names) != len(kinds):
            raise LanguageError(
                f"{place}: {function.__name__}({', '.join(names)}) takes {len(names)} "
                f"argument{'s' * (len(names) != 1)}, got {len(kinds)}"
            )
        if kinds.count(PARAMS) > 1:
            raise LanguageError(f"{place}: {function.__name__}() is given the parameters twice")
        arguments = {
            name: replace(kind, label=f"{name} of {function.__name__}()")
            if isinstance(kind, Array) and kind.label != name
            else kind
            for name, kind in zip(names, kinds, strict=True)
        }
        super().__init__(library, function, arguments, first_line=1)
        self.tree = tree
        if not function.__name__.isascii():
            foreign = [(tree, function.__name__)]
        for node, name in foreign:
            self.fail(node, f"{name}: names in compiled functions are ASCII letters")
        for node, name in renamed_by_python(tree, function.__code__):
            self.fail(node, f"Python renames {name} within a class; begin with one underscore")
        self.returns = []
        self.wanted = None
        self.lines = []
        self.depth = 1
        self.temporaries = 0
        for argument in names:
            if self.stores[argument]:
                self.fail(_first_store(tree, argument), _other_value(argument, arguments[argument]))

    def printed(self, name: str, wanted: Any) -> tuple[str, Any]:
        """The text of the function and the kind it returns."""
        self.wanted = wanted
        ends = self.block(self.tree.body)
        kinds = {kind for _, kind in self.returns}
        if len(kinds) > 1:
            node, kind = self.returns[-1]
            other = described(self.returns[0][1])
            self.fail(node, f"returns {described(kind)} here and {other} elsewhere")
        returns = kinds.pop() if kinds else NOTHING
        if returns != NOTHING and not ends:
            what = signature_text(wanted) if wanted is not None else "a value"
            last = f"; let its last line return {what}"
            self.fail(self.tree, f"{self.function.__name__}() may end without a return{last}")
        if wanted not in (None, NOTHING) and not self.returns:
            self.fail(self.tree, f"{self.must_return()}, and it has no return")
        variables = {
            variable_name(key): kind for key, kind in (self.variables | self.views).items()
        }
        signature = Signature(name, self.parameters(), variables, returns)
        return self.library.dialect.function(signature, self.lines), returns

    def parameters(self) -> list[tuple[str, Any]]:
        """The names and kinds of the arguments: a state's arrays one by one."""
        found: list[tuple[str, Any]] = []
        for position, (argument, kind) in enumerate(self.arguments.items()):
            if kind == STATE:
                state = state_name(position)
                arrays = self.library.state.items()
                found += [(array_name(state, name), array) for name, array in arrays]
            elif isinstance(kind, tuple):
                found += [(part_name(argument, k), part) for k, part in enumerate(kind)]
            else:
                found.append(("params" if kind == PARAMS else variable_name(argument), kind))
        return found

    # Statements -----------------------------------------------------------------------------
    def block(self, statements: list[ast.stmt]) -> bool:
        """Print statements; whether what follows them is never reached."""
        return any(self.statement(statement) for statement in statements)

    def statement(self, node: ast.stmt) -> bool:
        """Print a statement; whether it leaves the block for sure."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return False
            case ast.Expr(value=ast.Call() as call):
                self.emit(self.visit(call).text)
                return False
            case ast.Assign(targets=[_, _, *_] as several, value=value):
                lines = ", then ".join(f"{ast.unparse(t)} = {ast.unparse(value)}" for t in several)
                self.fail(node, f"one name at a time: write {lines}")
            case ast.Assign(targets=[target], value=value):
                self.assign(node, target, value)
                return False
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(node, target, value)
                return False
            case ast.AugAssign():
                self.augment(node)
                return False
            case ast.If():
                return self.branch(node)
            case ast.For():
                self.loop(node)
                return False
            case ast.While():
                return self.repeat(node)
            case ast.Break() | ast.Continue():
                self.emit("break" if isinstance(node, ast.Break) else "continue")
                return True
            case ast.Return():
                self.leave(node)
                return True
        self.fail(node, statement_advice(node))

    def inner(self, statements: list[ast.stmt]) -> bool:
        """Print an indented block."""
        self.depth += 1
        start = len(self.lines)
        ends = self.block(statements)
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        self.add(*self.library.dialect.closing())
        return ends

    def branch(self, node: ast.If) -> bool:
        """``if``; of a condition known beforehand only the branch taken is printed."""
        test = self.condition(node.test)
        if test.known:
            return self.block(node.body if test.value else node.orelse)
        before = set(self.assigned)
        self.add(self.library.dialect.opening("if", test.text))
        ends = self.inner(node.body)
        after = self.assigned
        self.assigned = set(before)
        others_end = False
        if node.orelse:
            self.add(self.library.dialect.opening("else"))
            others_end = self.inner(node.orelse)
        if ends:
            after = self.assigned
        elif not others_end:
            after = after & self.assigned
        self.assigned = set(after)
        return ends and others_end

    def loop(self, node: ast.For) -> None:
        """``for i in range(...)``."""
        call = node.iter
        is_range = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "range"
            and not call.keywords
        )
        if not is_range or not isinstance(node.target, ast.Name) or node.orelse:
            self.fail(node, self._for_advice(node))
        assert isinstance(call, ast.Call)
        if self.visit(call.func).value is not range:
            self.fail(node, "range is something else here; give that another name")
        limits = [self.number(part, INT, "range()") for part in self.counted(call, 1, 3)]
        if len(limits) == 3 and not (limits[2].known and limits[2].value):
            step = ast.unparse(call.args[2])
            text = f"the step of a range is a constant that is not 0, got {step}"
            self.fail(node, f"{text}; count in a while loop instead")
        name = node.target.id
        self.declare(node, name, INT)
        once = self.stores[name] == _loops(self.tree, name) and _loops(node, name) == 1
        known = [limit.value for limit in limits if limit.known]
        before, bounds = set(self.assigned), self.bounds.pop(name, None)
        if once and len(known) == len(limits) <= 2:
            self.bounds[name] = (0, known[0]) if len(known) == 1 else (known[0], known[1])
        self.assigned = before | {name}
        texts = [limit.text for limit in limits]
        self.add(*self.library.dialect.counting(variable_name(name), texts, len(self.lines)))
        self.inner(node.body)
        self.assigned = before
        self.bounds.pop(name, None)
        if bounds is not None:
            self.bounds[name] = bounds

    def repeat(self, node: ast.While) -> bool:
        """``while``; one that is always true and has no break is never left but by return.

        Its passes are counted: one that never ended would hang a compiled batch for good.
        """
        if node.orelse:
            self.fail(node, "while ... else is not compiled; write what follows below the loop")
        before = set(self.assigned)
        test = self.condition(node.test)
        why = never_ends(node)
        if why and not (test.known and not test.value):
            self.fail(node, why)
        dialect, passes = self.library.dialect, f"passes{len(self.lines)}"
        label = f"`while {ast.unparse(node.test)}`"
        place = self.library.watch(self.place(node), label)
        self.add(dialect.named(passes, dialect.integer(0)))
        self.add(dialect.opening("while", test.text))
        self.depth += 1
        self.emit(f"{passes} += 1")
        asked = f"({passes} & {LOOKED_AT - 1}) == 0 and endless({passes}, {place}, trouble)"
        self.add(dialect.opening("if", asked))
        self.depth += 1
        self.emit("break")
        self.depth -= 1
        self.add(*dialect.closing())
        self.depth -= 1
        self.inner(node.body)
        self.assigned = before
        forever = test.known and test.value is True and not has_break(node)
        if forever and not self.returns:  # the parameters leave out the branch with the return
            self.fail(node, f"{label} is left by no return with these parameters; {ADVICE}")
        if forever:
            self.return_zeros()
        return forever

    def _for_advice(self, node: ast.For) -> str:
        """What to write instead of a loop over something else than a range."""
        over = node.iter
        if isinstance(over, ast.Call) and over.args and ast.unparse(over.func) != "range":
            over = over.args[0]  # enumerate(array)
        is_name = isinstance(over, ast.Name | ast.Attribute | ast.Subscript)
        kind = self.visit(over).kind if is_name else None
        return for_advice(node, kind.shape if isinstance(kind, Array) else ())


def _first_store(tree: ast.FunctionDef, name: str) -> ast.AST:
    """Where an argument is given another value."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return next(node for node in nodes if isinstance(node.ctx, ast.Store))


def _other_value(name: str, kind: Any) -> str:
    """Advice for an argument that is given another value."""
    text = f"the argument {name} is given another value"
    if isinstance(kind, Array):
        return f"{text}; write its elements, {name}[k] = ..., or {name}[:] = 0.0"
    return f"{text}; use a new name"


def _loops(tree: ast.AST, name: str) -> int:
    """How many loops in `tree` give `name` its values."""
    return sum(
        isinstance(part, ast.For) and isinstance(part.target, ast.Name) and part.target.id == name
        for part in ast.walk(tree)
    )
